"""A benchmark from request to run directory; the measuring processes are replaced by fixed results."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.bench.sample_rounds import step_result
from vernier.config import Config, to_dict
from vernier.errors import ConfigError, RunFailed
from vernier.lab.bench import arms as bench_arms
from vernier.lab.bench.arms import Arm
from vernier.lab.bench.session import Outcome, run_bench
from vernier.records.bench import ArmFailure, ArmProgress, ArmResult, BenchRequest, Round
from vernier.records.what_ran import WhatRan
from vernier.store import find_runs

REQUEST = BenchRequest(what="train", config=to_dict(Config()), batches=(4,), repeats=2)
Run = Callable[[Callable[[Arm], ArmResult]], Outcome]


class Silent:
    """Shows nothing."""

    def begin(self, request: BenchRequest, arms: Sequence[str]) -> None: ...

    def update(self, arm: Arm, progress: ArmProgress | None) -> None: ...

    def finish(self, rounds: Sequence[Round]) -> None: ...


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a benchmark of one arm, two repeats, with this function as the process."""

    def start(process: Callable[[Arm], ArmResult]) -> Outcome:
        monkeypatch.setattr(bench_arms, "run_in_process", lambda arm, _: process(arm))
        return run_bench(REQUEST, tmp_path, Silent())

    return start


def test_the_run_directory_holds_every_sample_and_the_summary_of_one_training(run: Run) -> None:
    outcome = run(lambda arm: step_result([0.5, 0.5], images=4))
    assert outcome.run.read_bench() == outcome.result
    assert len(outcome.result.rounds) == 2
    status = outcome.run.status()
    assert status.status == "finished"
    assert status.summary is not None
    assert status.summary.training is not None
    assert status.summary.training.images_per_s_total == pytest.approx(8.0)
    assert "| 4 | 8.0" in (outcome.run.path / "bench.md").read_text()


def test_the_result_and_the_summary_of_a_training_say_what_ran(run: Run) -> None:
    ran = WhatRan(
        kind="train",
        network="resnet50",
        parameters=25_557_032,
        gmac=4.09,
        image_px=224,
        classes=1000,
        batch_per_device=4,
    )
    outcome = run(lambda arm: replace(step_result([0.5, 0.5], images=4), ran=ran, spent_s={"measuring": 1.0}))
    assert outcome.result.what_ran == ran.line()
    assert [row.ran for row in outcome.result.measured] == [ran]
    assert outcome.result.spent_s is not None
    assert outcome.result.spent_s["measuring"] == 2.0
    summary = outcome.run.status().summary
    assert summary is not None
    assert summary.ran == ran
    assert ran.line() in (outcome.run.path / "bench.md").read_text()


def test_after_ctrl_c_the_results_so_far_stay(run: Run) -> None:
    results = iter([step_result([0.5, 0.5])])

    def process(arm: Arm) -> ArmResult:
        try:
            return next(results)
        except StopIteration:
            raise KeyboardInterrupt from None

    outcome = run(process)
    assert outcome.stopped
    assert "INTERRUPTED after 1 of 2 processes" in outcome.result.facts
    assert outcome.run.status().status == "stopped"


def test_ctrl_c_before_the_first_result_leaves_nothing(run: Run, tmp_path: Path) -> None:
    def process(arm: Arm) -> ArmResult:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(process)
    assert find_runs(tmp_path) == []


def test_a_benchmark_without_any_figures_fails(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such device"):
        run(lambda arm: ArmFailure(status="refused", why="no such device"))
    assert find_runs(tmp_path) == []
    with pytest.raises(RunFailed, match="Nothing could be measured: out-of-memory: too big"):
        run(lambda arm: ArmFailure(status="out-of-memory", why="too big"))
    assert [r.status().status for r in find_runs(tmp_path)] == ["failed"]
