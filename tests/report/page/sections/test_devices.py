"""The devices section: a study's outliers and correlations."""

from collections.abc import Callable
from pathlib import Path

from tests.report.page.conftest import text_of
from vernier.report.page.build import Page

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "0.1"
PageOf = Callable[..., Page]


def test_a_study_names_outliers_and_correlations(real_data: Callable[[str], Path], page_of: PageOf) -> None:
    page = page_of(real_data("gpu-variability") / "resnet-longhorn-agg.csv")
    assert [s.name for s in page.sections] == ["glance", "devices"]
    names = set(page.figures)
    assert {"cabinet-0", "ranked-0", "against-freq-0", "against-power-0", "against-temp-0", "correlation-0"} <= names
    ranked = page.figures["ranked-0"].rows
    certain = [row[1] for row in ranked if row[5] == "certainly slow, as its whole host"]
    assert sorted(certain) == ["c008-8-0", "c008-8-1", "c008-8-2", "c008-8-3"]
    assert f"slow: {certain[0]}, " in text_of(str(page.sections[1].html))
    diagonal = [r[2] for r in page.figures["correlation-0"].rows if r[0] == r[1]]
    assert all(abs(v - 1) < 1e-9 for v in diagonal)


def test_a_study_of_version_0_1_shows_its_telemetry_and_its_simulated_devices(page_of: PageOf) -> None:
    page = page_of(GOLDEN / "study")
    assert {"device-0", "ranked-0", "study-util_pct-0"} <= set(page.figures)
    html = text_of(str(next(s for s in page.sections if s.name == "devices").html))
    assert "family-wise error" in html
    assert "slow: no device" in html
