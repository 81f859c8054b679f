"""The detection section."""

from collections.abc import Callable
from pathlib import Path

from tests.report.page.conftest import detector
from vernier.report.page.build import Page

PageOf = Callable[..., Page]


def test_a_detector_shows_twelve_figures_classes_and_boxes(tmp_path: Path, page_of: PageOf) -> None:
    page = page_of(detector(tmp_path))
    part = next(s for s in page.sections if s.name == "detection")
    assert [r[0] for r in page.figures["class-ap"].rows] == ["disc", "star"]
    html = str(part.html)
    assert html.count("<tr>") == 13  # a heading and twelve
    assert 'x="10.00" y="20.00" width="50.00" height="50.00"' in html
    assert "star 0.90" in html
    assert '<span class="key"><i class="swatch b0"></i><span>star</span></span>' in html  # what its colour means
    assert html.index('class="under"') < html.index('class="truth"')  # dark below white: seen on any image
