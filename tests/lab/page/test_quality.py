"""The sections about classes and calibration on the page of a run."""

from collections.abc import Callable
from pathlib import Path

from tests.conftest import Done, only_run
from vernier.lab.page.quality import SECTION
from vernier.report.page.runs import read_run
from vernier.store import RunDir


def test_a_page_has_a_table_by_class_and_a_reliability_diagram(
    vernier_here: Callable[..., Done], tiny: list[str], tmp_path: Path
) -> None:
    assert vernier_here("train", *tiny, "--steps", "2").code == 0
    run = read_run(RunDir(only_run(tmp_path / "runs")), False)
    content = SECTION.build([run])
    assert content is not None
    (figure,) = content.figures
    assert figure.name == "reliability-0"
    assert sum(row[3] for row in figure.rows) == 50
    assert vernier_here("report", str(run.path), "--out", str(tmp_path / "page.html")).code == 0
    page = (tmp_path / "page.html").read_text()
    assert "Quality by class" in page
    assert "expected calibration error" in page
