"""Published figures that plug in: rows of every package, for recipes by their names."""

import pytest

from vernier.measure import published
from vernier.measure.published import (
    PublishedFigures,
    PublishedRate,
    Source,
    figures_of,
    published_speeds,
    rate_cells,
    rates,
)

RATE = PublishedRate(
    model="resnet50",
    device="Abacus",
    recipes=("mine-*",),
    source=Source(citation="a page", year=2026),
    what="train",
    image_px=224,
    device_batch=64,
    images_per_s=800.0,
    devices=4,
)


@pytest.fixture
def abacus(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = PublishedFigures(rates=lambda: [RATE], times=lambda: [], compare=lambda ran, rate: [])
    monkeypatch.setattr(published, "load_group", lambda group, kind: {"abacus": figures})


@pytest.mark.usefixtures("abacus")
def test_figures_are_those_of_the_packages_that_plug_in() -> None:
    assert rates() == (RATE,)
    assert figures_of("mine-90e") == ([RATE], [])
    assert figures_of("shapes-quick") == ([], [])


def test_a_rate_is_shown_per_device_too() -> None:
    assert rate_cells(RATE)["per_device"] == 200.0


def test_without_what_ran_nothing_is_compared() -> None:
    assert published_speeds(None, 100.0) == ()
