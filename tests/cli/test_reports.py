"""`vernier compare`, `report` and `convert`: what they print and write, and wrong use."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done, only_run
from tests.lab.logs.conftest import TIMES
from tests.report.page.conftest import detector
from tests.report.run_dirs import write_run
from vernier.report.page.collect import collect

Runner = Callable[..., Done]


def test_a_run_is_converted_once_and_read_again(tmp_path: Path, vernier_here: Runner) -> None:
    path = write_run(tmp_path / "runs", "example", TIMES)
    target = tmp_path / "deep" / "raport.json"
    done = vernier_here("convert", str(path), "--to", "raport", "-o", str(target), "--json")
    assert (done.code, done.json()["written"]) == (0, [str(target)])
    again = vernier_here("convert", str(path), "--to", "raport", "--out", str(target))
    assert (again.code, "exists already" in again.err) == (2, True)
    compared = vernier_here("compare", str(path), str(target), "--json").json()
    assert compared["comparison"]["ratio"] == pytest.approx(1)
    assert vernier_here("convert", str(tmp_path / "no"), "--to", "raport", "--out", "x").code == 2
    empty = write_run(tmp_path / "runs", "empty", [])
    nothing = vernier_here("convert", str(empty), "--to", "mllog", "--out", str(tmp_path / "x"))
    assert (nothing.code, "nothing to convert" in nothing.err) == (2, True)
    assert not (tmp_path / "x").exists()
    several = vernier_here("convert", str(tmp_path / "runs"), "--to", "mllog", "--out", str(tmp_path / "x"))
    assert (several.code, "holds 2 runs" in several.err) == (2, True)


def test_the_page_is_written_to_the_path_that_is_printed(vernier_here: Runner, tmp_path: Path) -> None:
    run = detector(tmp_path / "runs")
    done = vernier_here("report", str(run), "-o", str(tmp_path / "new" / "page.html"), "--json")
    assert done.code == 0, done.err
    document = done.json()
    assert Path(document["page"]).stat().st_size == document["bytes"]
    assert document["runs"][0]["status"] == "finished"
    assert document["runs"][0]["smoke"] is False
    plain = vernier_here("report", str(run))
    assert plain.code == 0
    assert (run / "report.html").is_file()
    assert "At a glance, Training" in plain.out


def test_wrong_use_gets_a_message_with_a_way_out(vernier_here: Runner, tmp_path: Path) -> None:
    run = detector(tmp_path / "runs")
    for arguments, named in (
        ((), "RUN"),
        ((str(tmp_path / "none"),), str(tmp_path / "none")),
        ((str(tmp_path),), str(tmp_path)),
        ((str(run), "-o", "/proc/none/x.html"), "/proc/none"),
    ):
        done = vernier_here("report", *arguments)
        assert done.code == 2, arguments
        assert named in done.err


def test_a_damaged_file_is_named(vernier_here: Runner, tmp_path: Path) -> None:
    damaged = tmp_path / "bench.json"
    damaged.write_text('{"rounds": [], "rows": [{"arm": "x"}]}')
    done = vernier_here("report", str(damaged), "-o", str(tmp_path / "page.html"))
    assert done.code == 2
    assert f"Cannot read {damaged}" in done.err
    assert not (tmp_path / "page.html").exists()


def test_a_profiled_run_links_to_its_trace(vernier_here: Runner, tiny: list[str], tmp_path: Path) -> None:
    done = vernier_here("train", *tiny, "--max-steps", "8", "--profile-steps", "4:5", "--train-only")
    assert done.code == 0, done.err
    run = only_run(tmp_path / "runs")
    assert vernier_here("report", str(run)).code == 0
    html = (run / "report.html").read_text()
    link = re.search(r'<a href="(traces/trace[^"]+)"', html)
    assert link is not None
    assert (run / link[1]).is_file()
    (subject,) = collect([run])
    assert len(subject.profiles[0].kernels) > 10
    assert "kernels and operations" in html
