"""A kind of subject of an outside package is recognized, read and shown as Vernier's own are."""

from collections.abc import Callable
from pathlib import Path

from tests.report.plugins import Install, install
from tests.report.run_dirs import write_run
from vernier.report.page.build import Page
from vernier.report.page.collect import collect

__all__ = ["install"]
SWEEP = """
from vernier.frozen import frozen
from vernier.report.page.html import tile
from vernier.report.page.subjects import Kind, Subject


@frozen
class Sweep(Subject):
    kind: str = "sweep"
    best: str

    def tiles(self):
        return [tile("best of the sweep", self.best)]


def read(path, brief):
    return [Sweep(name=path.name, path=path, status="finished", best=(path / "sweep.txt").read_text())]


KIND = Kind(recognizes=lambda path, _: (path / "sweep.txt").is_file(), read=read, order=5)
"""


def test_a_kind_of_an_outside_package_appears(tmp_path: Path, install: Install, page_of: Callable[..., Page]) -> None:
    run = write_run(tmp_path / "runs", "one", [0.1] * 20)
    (tmp_path / "runs" / "sweep.txt").write_text("lr <0.3>")
    assert [s.kind for s in collect([tmp_path / "runs"])] == ["training"]
    install("sweeps", SWEEP, report_kinds="KIND")
    sweep, single = collect([tmp_path / "runs", run])
    assert (sweep.kind, sweep.status, single.kind) == ("sweep", "finished", "training")
    page = page_of(tmp_path / "runs", run)
    assert "best of the sweep" in page.html()
    assert "lr &lt;0.3&gt;" in page.html()
    assert {"training", "environment"} <= {s.name for s in page.sections}
