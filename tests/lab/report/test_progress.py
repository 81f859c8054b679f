"""What a person sees of a running benchmark."""

import io
from typing import Any

from rich.console import Console

from tests.lab.bench.test_progress import result
from vernier.api.session import Session
from vernier.api.wording import PythonWords
from vernier.lab.bench.configurations import Configuration
from vernier.lab.records.bench import BenchRequest, ConfigurationLabels, MeasureRequest, MeasuringProgress, Plan
from vernier.lab.report import progress
from vernier.lab.report.progress import BenchDisplay, Display, opening_line, progress_line
from vernier.lab.requests.benchmarks import BenchTrain
from vernier.records.statistics import Estimate

PLAN = Plan(max_seconds=20, warmup_max_seconds=10, extra_max_seconds=18)
REQUEST = BenchRequest(what="train", config={}, plan=PLAN, repeats=2)
ARM = Configuration(
    name="batch=16", labels=ConfigurationLabels(batch=16), request=MeasureRequest(what="train", config={})
)


class Recording(Session):
    """A session that prints everything to `out`."""

    def __init__(self, out: io.StringIO, **terminal: Any) -> None:
        super().__init__(PythonWords(BenchTrain))
        self._console = Console(file=out, highlight=False, **terminal)

    def rich_console(self) -> Console:
        return self._console

    def warn(self, *lines: str) -> None:
        for line in lines:
            self._console.print(line, markup=False, soft_wrap=True)


session = Recording


def test_a_state_is_a_moving_line_on_a_terminal_and_news_a_line_elsewhere() -> None:
    plain, moving = io.StringIO(), io.StringIO()
    for out, terminal in ((plain, {}), (moving, {"force_terminal": True})):
        with Display(session(out, **terminal)) as display:
            display.show("round 1")
            display.show("round 2", news=True)
    assert plain.getvalue() == "round 2\n"
    assert "round 1" in moving.getvalue()


def test_the_first_line_counts_start_up_and_warm_up() -> None:
    line = opening_line(REQUEST, 2)
    assert line.startswith("4 processes (2 configurations x 2 repeats): measuring at most 1:20, about 2:0")
    compiled = BenchRequest(what="train", config={}, plan=PLAN, modes=("eager", "compile"))
    assert opening_line(compiled, 2).endswith("; compiling comes on top")
    assert "3 steps each" in opening_line(BenchRequest(what="train", config={}, plan=Plan(steps=3)), 1)


def test_the_line_of_a_process_begins_with_what_matters_most() -> None:
    rate = Estimate(value=41.23, low=39.9, high=42.6, n=5, basis="")
    line = progress_line("2/4", "batch=16", MeasuringProgress(phase="measuring", steps=4, rate=rate), 75)
    assert line == "1:15 left  2/4  batch=16  measuring, step 5  41.2 [39.9, 42.6] img/s"
    assert progress_line("1/1", "batch=16", None, 0.2) == "nearly done  1/1  batch=16  start-up"


def test_without_a_terminal_there_is_a_line_every_ten_seconds() -> None:
    out = io.StringIO()
    display = BenchDisplay(session(out))
    with display:
        display.begin(REQUEST, ["batch=16"], [])
        display.update(ARM, MeasuringProgress(phase="warm-up", steps=1))
        assert len(out.getvalue().splitlines()) == 1
        display._printed_s -= progress.PLAIN_EVERY_S
        display.update(ARM, MeasuringProgress(phase="warm-up", steps=1))
        display.finish([result("batch=16", 30.0)])
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert "batch=16  warm-up, step 2" in lines[1]
    assert lines[2] == "process 1 of 2 (batch=16) took 0:30: about 0:30 left"


def test_a_narrow_terminal_keeps_the_time_that_is_left() -> None:
    out = io.StringIO()
    with BenchDisplay(session(out, force_terminal=True, width=40)) as display:
        display.begin(REQUEST, ["batch=16"], [])
        display.update(ARM, MeasuringProgress(phase="measuring", steps=1))
    assert " left  1/2  batch=16" in out.getvalue()
