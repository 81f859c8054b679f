"""What a person saw on a terminal while a run trained, and after it."""

import io
import re
import time
from dataclasses import replace

import pytest
from rich.console import Console

from tests.report.live.test_console import START, step_event
from vernier.records.events import StartEvent
from vernier.records.run import RunSummary
from vernier.report.live import console
from vernier.report.live.console import ConsoleObserver, closing_lines

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
