"""Published figures that plug in: rows of every package, for recipes by their names."""

import pytest

from vernier.measure import published
from vernier.measure.published import PublishedFigures, PublishedRow, published_rows, published_speeds

ROW = PublishedRow(kind="speeds", record=None, cells={"model": "resnet50", "img/s": 800.0})


def test_figures_are_those_of_the_packages_that_plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(recipe: str | None) -> list[PublishedRow]:
        return [ROW] if recipe == "mine-90e" else []

    figures = PublishedFigures(rows=rows, compare=lambda ran, rate: [])
    monkeypatch.setattr(published, "load_group", lambda group, kind: {"abacus": figures})
    assert published_rows("mine-90e") == [ROW]
    assert published_rows("shapes-quick") == []


def test_without_what_ran_nothing_is_compared() -> None:
    assert published_speeds(None, 100.0) == ()
