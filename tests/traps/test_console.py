"""What a person saw on a terminal while a run trained, and after it."""

import io
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.conftest import Done
from tests.examples import RAN
from tests.report.live.test_console import START, step_event
from tests.report.run_dirs import write_run
from vernier.records.events import StartEvent
from vernier.records.run import RunSummary
from vernier.report.live import console
from vernier.report.live.console import ConsoleObserver, closing_lines

Vernier = Callable[..., Done]
LONG: StartEvent = replace(START, stop_step=150_000, epochs=90.0)


def _frames(width: int) -> str:
    """What a terminal of this width was sent during a step and an evaluation."""
    out = io.StringIO()
    with ConsoleObserver(Console(file=out, width=width, force_terminal=True, color_system=None)) as observer:
        observer.emit(LONG)
        observer.emit(step_event(2000))
        time.sleep(0.4)
        observer.progress("evaluate", 3, 10)
        time.sleep(0.4)
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 60])
def test_bar_and_time_left_survive_a_narrow_terminal(width: int) -> None:
    """On 80 columns the label became "t…", and bar, spinner and eta were gone after the first step."""
    shown = _frames(width)
    assert re.search(r"train .*1 % eta 41:06:40  loss 1\.5000", shown)
    assert re.search(r"evaluate ━+╸? +30 % 3/10", shown)
    assert "…" not in shown


def test_the_lines_about_a_long_step_count_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of minutes said "still running after 15 s" again and again."""
    clock = [0.0]
    monkeypatch.setattr(console, "now_s", lambda: clock[0])
    out = io.StringIO()
    with ConsoleObserver(Console(file=out, width=200)) as observer:
        observer.emit(LONG)
        for lines in (1, 2):
            clock[0] += 20.0
            deadline = time.monotonic() + 60
            while out.getvalue().count("still running") < lines and time.monotonic() < deadline:
                time.sleep(0.02)
    assert re.findall(r"still running after (\d+) s", out.getvalue()) == ["20", "40"]


def test_the_last_line_says_how_to_look_at_the_run() -> None:
    """The summary named the run directory, and nothing said what to do with it."""
    lines = closing_lines(RunSummary(spent_s={"total": 1.0}), "runs/x", "finished")
    assert lines[-1].split() == ["open", "vernier", "report", "runs/x"]


def test_runs_of_one_recipe_are_told_apart(vernier_here: Vernier, tmp_path: Path) -> None:
    """Five runs of one recipe were five equal rows."""
    for seed in (1, 2):
        write_run(tmp_path / "runs", "same", [0.1] * 20, seed=seed)
    rows = vernier_here("runs", str(tmp_path / "runs"), "--json").json()
    assert [row["differs"] for row in rows] == ["seed 1", "seed 2"]
    assert "seed 2" in vernier_here("runs", str(tmp_path / "runs")).out


def test_a_failure_is_shown_once_on_the_terminal_and_once_on_the_page(
    shapes: Path, tiny: list[str], vernier_here: Vernier, tmp_path: Path
) -> None:
    """The sentence about bad images came three times in a row, and twice on the page."""
    shutil.copytree(shapes, tmp_path / "damaged")
    for path in sorted((tmp_path / "damaged" / "train").rglob("*.jpg"))[::4]:
        path.write_bytes(b"no picture")
    done = vernier_here("train", *tiny, "--data", str(tmp_path / "damaged"))
    assert done.code == 1
    assert (done.out + done.err).count("the limit is 3") == 1
    page = tmp_path / "failed.html"
    assert vernier_here("report", str(tmp_path / "runs"), "--out", str(page)).code == 0
    assert page.read_text().count("the limit is 3") == 1


def test_one_class_is_not_one_classes() -> None:
    assert replace(RAN, classes=1).parts()["classes"] == "1 class"
