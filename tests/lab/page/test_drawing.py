"""Charts and tables of the laboratory's `designs.toml`."""

from types import SimpleNamespace

import pytest

from vernier.lab.page.drawing import TABLES, draw
from vernier.report.page.designs import TableColumn


def test_words_fill_the_texts_and_fields_replace_those_of_the_chart() -> None:
    figure = draw("percentiles", [["p50", "a", 1.2, 1.0, 1.4]], max=120.0)
    assert (figure.name, figure.chart.max, figure.title) == ("percentiles", 120.0, "Latency percentiles")  # type: ignore[union-attr]
    level = draw("level", [], {"level": "node", "value": "rate", "what": "{x}", "dots": "dots"})
    assert (level.name, level.title, level.columns[2]) == ("node", "By node", "relative rate")
    assert level.caption.startswith("{x}, divided")  # a text from a file is not filled in again
    with pytest.raises(KeyError):
        draw("level", [])


def test_a_cell_follows_attributes_and_dictionaries_and_is_empty_without_them() -> None:
    column = TableColumn("p50", value="latency.percentiles.p50", factor=1000)
    row = SimpleNamespace(latency=SimpleNamespace(percentiles={"p50": 0.25}))
    assert (column.cell(row), column.cell(SimpleNamespace())) == (250.0, None)
    total = next(c for c in TABLES["kernels"] if c.name == "total ms")
    assert total.cell(SimpleNamespace(total_ms=3.0)) == 3.0
