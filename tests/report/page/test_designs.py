"""Charts of all files `designs.toml`."""

import pytest

from vernier.lab.page.drawing import DESIGNS
from vernier.report.page import figures
from vernier.report.page.designs import Designs
from vernier.report.page.sections import training

CHARTS = [(designs, key) for designs in (DESIGNS, training._DESIGNS) for key in designs.charts]


@pytest.mark.parametrize(("designs", "key"), CHARTS, ids=[key for _, key in CHARTS])
def test_a_chart_draws_columns_that_its_data_has(designs: Designs, key: str) -> None:
    words = dict.fromkeys(
        ("scaling", "title", "what", "level", "value", "dots", "sensor", "unit", "reading", "reading_unit", "metric"),
        "word",
    )
    colours = {"part_colours": {"data": 4}} if designs.charts[key].kind == "Stack" else {}
    nothing = dict.fromkeys(("remark", "where", "which", "of", "why", "loss"), "")
    figure = designs.draw(key, [], words | nothing, **colours)
    drawn = {getattr(figure.chart, axis, None) for axis in ("x", "y", "by", "category", "value", "part", "low", "high")}
    assert drawn - {None} <= set(figure.columns)
    assert isinstance(figure.chart, getattr(figures, designs.charts[key].kind))
