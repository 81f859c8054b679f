"""How far a benchmark is: the file of a measuring process, and the time that is left."""

from pathlib import Path

import pytest

from tests.lab.bench.sample_rounds import step_result
from vernier.lab.bench import progress
from vernier.lab.bench.progress import (
    MEASURING,
    START_UP,
    WARM_UP,
    PhaseWatch,
    expected_process_s,
    remaining_s,
    total_spent_s,
)
from vernier.lab.records.bench import Failure, MeasuredResult, MeasuringProgress, Plan, Round
from vernier.records.statistics import Estimate
from vernier.store import read_record


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    simulated = Clock()
    monkeypatch.setattr(progress, "now_s", simulated)
    return simulated


def test_a_process_accounts_for_its_time_from_its_start_on(clock: Clock) -> None:
    watch = PhaseWatch(started_s=94.0)
    watch.enter(WARM_UP)
    clock.now += 3
    watch.enter(MEASURING)
    clock.now += 20
    assert watch.extra_s() == pytest.approx(9)
    watch.enter(progress.END)
    assert watch.spent_s == {START_UP: 6.0, WARM_UP: 3.0, MEASURING: 20.0}
    assert watch.extra_s() == pytest.approx(9)
    watch.one_off_s = 4.0
    assert watch.extra_s() == pytest.approx(5)  # compiling does not count


def test_compiling_is_no_warm_up(clock: Clock) -> None:
    watch = PhaseWatch(compiles=True)
    watch.enter(WARM_UP)
    clock.now += 33
    watch.one_off_s = 30.0
    watch.enter(MEASURING)
    assert watch.spent_s == {START_UP: 0.0, WARM_UP: 3.0, progress.COMPILING: 30.0}


def test_the_file_says_phase_step_and_rate_at_most_once_per_second(clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "progress"
    watch = PhaseWatch(path=path)
    watch.enter(MEASURING)
    clock.now += 0.5
    watch.show([0.1] * 5, images=4)
    assert read_record(MeasuringProgress, path) == MeasuringProgress(phase=MEASURING)
    clock.now += 0.6
    watch.show([0.1] * 11, images=4)
    shown = read_record(MeasuringProgress, path)
    assert (shown.phase, shown.steps) == (MEASURING, 11)
    assert isinstance(shown.rate, Estimate)
    assert shown.rate.value == pytest.approx(40)


def result(configuration: str, process_s: float | None, number: int = 0) -> Round:
    answer: MeasuredResult = Failure(status="refused", why="no")
    if process_s is not None:
        answer = step_result([1.0, 1.0])
        object.__setattr__(answer, "process_s", process_s)
    return Round(configuration=configuration, round=number, order=number, result=answer)


def test_the_time_left_is_refined_with_every_process() -> None:
    plan = Plan(max_seconds=20, warmup_max_seconds=10, extra_max_seconds=18)
    each_s = expected_process_s(plan)
    assert 20 < each_s < 40
    assert remaining_s([], 4, plan, 5.0, MEASURING) == pytest.approx(4 * each_s - 5)
    assert remaining_s([result("a", 30)], 4, plan, 0.0) == pytest.approx(3 * 30)
    assert remaining_s([result("a", 30), result("b", 50)], 4, plan, 10.0, MEASURING) == pytest.approx(70)
    assert remaining_s([result("a", 30), result("b", None)], 4, plan, 0.0) == pytest.approx(60)


def test_a_process_that_is_late_moves_the_end() -> None:
    plan = Plan(max_seconds=20, warmup_max_seconds=10, extra_max_seconds=18)
    # It has yet to measure, and the next one will take as long.
    assert remaining_s([], 2, plan, 60.0, WARM_UP) == pytest.approx(20 + 80)
    assert remaining_s([result("a", 30)], 3, plan, 90.0, MEASURING) == pytest.approx(30)


def test_what_no_process_accounts_for_is_other() -> None:
    one = result("a", 30)
    object.__setattr__(one.result, "spent_s", {START_UP: 5.0, MEASURING: 20.0})
    spent_s = total_spent_s([one, result("b", None)], 30.0)
    assert spent_s == {"total": 30.0, MEASURING: 20.0, START_UP: 5.0, "other": 5.0}
    assert total_spent_s([result("a", 30)], 30.0) == {"total": 30.0, "other": 30.0}  # of an older version
