"""A training of seconds under three faults in every run of the tests; `make soak` has half an hour of all of them."""

from pathlib import Path

import pytest

from .disturbances import FAULTS, CannotDisturb, stage
from .fork_server import fork_server
from .soak import Plan, Record, Sample, growth, lost_seconds, memory_slope, report, soak


@pytest.mark.slow
def test_a_training_under_faults_ends_with_the_right_answer(shapes: Path, tmp_path: Path) -> None:
    faults = ("clock jump", "disk full", "kill of a rank")
    plan = Plan(seconds=10, every_s=2, fault_s=0.5, faults=faults, least=len(faults))
    try:
        with stage(tmp_path / "stage") as ready, fork_server(ready.environ()) as server:
            record = soak(ready, shapes, server.start_ranks, plan)
    except CannotDisturb as reason:
        pytest.skip(str(reason))
    assert record.differences == [], report(record)
    assert record.steps > 0
    assert set(record.faults) == set(faults)


def _samples(slope_mb_per_s: float) -> list[Sample]:
    return [
        Sample(pid, float(second), 100 * pid + slope_mb_per_s * second, 20 + pid, 5 + (second > 30))
        for pid in (1, 2, 3, 4)
        for second in range(60)
    ]


def test_the_slope_of_memory_is_that_within_processes() -> None:
    assert memory_slope(_samples(0.01)) == (pytest.approx(36.0), pytest.approx(0.0, abs=1e-6))
    assert memory_slope(_samples(0.0)[:60]) is None, "one process says nothing about others"


def test_growth_is_counted_within_a_process() -> None:
    assert growth(_samples(0.0), "descriptors") == (21, 24, 0)
    assert growth(_samples(0.0), "threads") == (5, 6, 1)
    assert growth([], "threads") == (0, 0, 0)


def test_a_fault_costs_the_time_that_no_step_accounts_for() -> None:
    progress = [(0.0, "start", 0), (10.0, "disk full", 80), (20.0, "end", 150)]
    record = Record(progress=progress, undisturbed_step_s=0.1, wall_s=20.0, steps=150)
    assert lost_seconds(record) == {"start": [pytest.approx(2.0)], "disk full": [pytest.approx(3.0)]}
    assert "useful time: 75.0 %" in report(record)


def test_every_kind_of_fault_is_in_the_plan_of_the_long_run() -> None:
    assert Plan(seconds=1, every_s=1, fault_s=1).faults == tuple(FAULTS)
