"""What a person sees of a running benchmark."""

import io

from rich.console import Console

from tests.lab.bench.test_progress import result
from vernier.lab.bench.arms import Arm
from vernier.lab.report import benchmark
from vernier.lab.report.benchmark import LiveDisplay, opening_line, progress_line
from vernier.records.bench import ArmLabels, ArmProgress, ArmRequest, BenchRequest, Plan
from vernier.records.statistics import Estimate

PLAN = Plan(max_seconds=20, warmup_max_seconds=10, extra_max_seconds=18)
REQUEST = BenchRequest(what="train", config={}, plan=PLAN, repeats=2)
ARM = Arm(name="batch=16", labels=ArmLabels(batch=16), request=ArmRequest(what="train", config={}))


def test_the_first_line_counts_start_up_and_warm_up() -> None:
    line = opening_line(REQUEST, 2)
    assert line.startswith("4 processes (2 arms x 2 repeats): measuring at most 1:20, about 2:0")
    compiled = BenchRequest(what="train", config={}, plan=PLAN, modes=("eager", "compile"))
    assert opening_line(compiled, 2).endswith("; compiling comes on top")
    assert "3 steps each" in opening_line(BenchRequest(what="train", config={}, plan=Plan(steps=3)), 1)


def test_the_line_of_a_process_begins_with_what_matters_most() -> None:
    rate = Estimate(value=41.23, low=39.9, high=42.6, n=5, basis="")
    line = progress_line("2/4", "batch=16", ArmProgress(phase="measuring", steps=4, rate=rate), 75)
    assert line == "1:15 left  2/4  batch=16  measuring, step 5  41.2 [39.9, 42.6] img/s"
    assert progress_line("1/1", "batch=16", None, 0.2) == "nearly done  1/1  batch=16  start-up"


def test_without_a_terminal_there_is_a_line_every_ten_seconds() -> None:
    out = io.StringIO()
    display = LiveDisplay(Console(file=out, highlight=False))
    with display:
        display.begin(REQUEST, ["batch=16"])
        display.update(ARM, ArmProgress(phase="warm-up", steps=1))
        assert len(out.getvalue().splitlines()) == 1
        display._printed_s -= benchmark.PLAIN_EVERY_S
        display.update(ARM, ArmProgress(phase="warm-up", steps=1))
        display.finish([result("batch=16", 30.0)])
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert "batch=16  warm-up, step 2" in lines[1]
    assert lines[2] == "process 1 of 2 (batch=16) took 0:30: about 0:30 left"


def test_a_narrow_terminal_keeps_the_time_that_is_left() -> None:
    out = io.StringIO()
    with LiveDisplay(Console(file=out, force_terminal=True, width=40, highlight=False)) as display:
        display.begin(REQUEST, ["batch=16"])
        display.update(ARM, ArmProgress(phase="measuring", steps=1))
    assert " left  1/2  batch=16" in out.getvalue()
