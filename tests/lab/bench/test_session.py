"""A benchmark from request to run directory; the measuring processes are replaced by fixed results or small scripts."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.bench.sample_rounds import step_result
from vernier.config import Config, to_dict
from vernier.errors import ConfigError, RunFailed
from vernier.lab import launcher
from vernier.lab.bench import session as bench_session
from vernier.lab.bench.configurations import Configuration
from vernier.lab.bench.session import (
    Outcome,
    _expected_failure,
    measure_configurations,
    run_bench,
    run_in_process,
)
from vernier.lab.records.bench import (
    BenchRequest,
    BenchResult,
    ConfigurationLabels,
    Failure,
    MeasuredResult,
    MeasureRequest,
    MeasuringProgress,
    Round,
    read_bench,
)
from vernier.measure.environment import installed_version
from vernier.records.environment import Environment
from vernier.records.what_ran import WhatRan
from vernier.store import find_runs
from vernier.version import describe_version

REQUEST = BenchRequest(what="train", config=to_dict(Config()), batches=(4,), repeats=2)
Run = Callable[[Callable[[Configuration], MeasuredResult]], Outcome]


class Silent:
    """Shows nothing."""

    def begin(self, request: BenchRequest, configurations: Sequence[str], done: Sequence[Round]) -> None: ...

    def add(self, processes: int) -> None: ...

    def update(self, configuration: Configuration, progress: MeasuringProgress | None) -> None: ...

    def finish(self, rounds: Sequence[Round]) -> None: ...


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a benchmark of one configuration, two repeats, with this function as the process."""

    def start(process: Callable[[Configuration], MeasuredResult]) -> Outcome:
        monkeypatch.setattr(bench_session, "run_in_process", lambda configuration, _: process(configuration))
        return run_bench(REQUEST, tmp_path, Silent())

    return start


def test_the_run_directory_holds_every_sample_and_the_summary_of_one_training(run: Run) -> None:
    outcome = run(lambda configuration: step_result([0.5, 0.5], images=4))
    assert read_bench(outcome.run.path) == outcome.result
    assert len(outcome.result.rounds) == 2
    status = outcome.run.status()
    assert status.status == "finished"
    assert status.summary is not None
    assert status.summary.training is not None
    assert status.summary.training.images_per_s_total == pytest.approx(8.0)
    assert "| 4 | 8.0" in (outcome.run.path / "bench.md").read_text()


def test_repeats_are_added_until_the_interval_is_useful_or_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(most: int | None, *rates: float) -> BenchResult:
        steps = iter([*rates, *[1.0] * 20])
        monkeypatch.setattr(bench_session, "run_in_process", lambda *_: step_result([next(steps)] * 2))
        return run_bench(replace(REQUEST, repeats=3, most_repeats=most), tmp_path, Silent()).result

    assert len(measure(20, 1.0, 1.01, 1.0).rounds) == 3  # known well enough
    assert len(measure(None, 1.0, 2.0, 1.0).rounds) == 3  # as many as requested
    assert len(measure(4, 1.0, 2.0, 1.0).rounds) == 4
    added = measure(20, 1.0, 3.0, 1.0)
    assert 3 < len(added.rounds) < 20
    assert [one.round for one in added.rounds] == list(range(len(added.rounds)))
    assert any("the first 3 differ too much for a useful interval" in fact for fact in added.facts)


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
    outcome = run(lambda configuration: replace(step_result([0.5, 0.5], images=4), ran=ran, spent_s={"measuring": 1.0}))
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

    def process(configuration: Configuration) -> MeasuredResult:
        try:
            return next(results)
        except StopIteration:
            raise KeyboardInterrupt from None

    outcome = run(process)
    assert outcome.stopped
    assert "INTERRUPTED after 1 of 2 processes" in outcome.result.facts
    assert outcome.run.status().status == "stopped"


VERSIONS = {"vernier": describe_version(), "torch": installed_version("torch")}


@pytest.mark.parametrize("kill", [KeyboardInterrupt, SystemExit])
def test_the_same_benchmark_completes_an_interrupted_one_and_measures_nothing_twice(
    run: Run, tmp_path: Path, kill: type[BaseException]
) -> None:
    started = 0

    def process(_: Configuration) -> MeasuredResult:
        nonlocal started
        started += 1
        if started == 2:
            raise kill
        return replace(step_result([0.5, 0.5], images=started), environment=Environment(versions=VERSIONS))

    # Nothing of `run_bench` handles SystemExit: what it leaves is what a kill leaves.
    with suppress(SystemExit):
        run(process)
    outcome = run(process)
    assert [one.result.images_per_step for one in outcome.result.rounds] == [1, 3]
    assert [one.order for one in outcome.result.rounds] == [0, 1]
    assert [each.path for each in find_runs(tmp_path)] == [outcome.run.path]
    assert outcome.run.status().status == "finished"
    assert not any("INTERRUPTED" in fact for fact in outcome.result.facts)
    assert run(process).run.path != outcome.run.path, "a finished one is not continued"


def test_other_requests_and_other_versions_are_not_completed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    results = [step_result([0.5, 0.5])]

    def process(_: Configuration) -> MeasuredResult:
        if not results:
            raise KeyboardInterrupt
        return replace(results.pop(), environment=Environment(versions=VERSIONS))

    interrupted = run(process)
    results += [step_result([0.5, 0.5])] * 2
    monkeypatch.setitem(globals(), "REQUEST", replace(REQUEST, seed=1))
    assert run(process).run.path != interrupted.run.path
    monkeypatch.undo()
    results += [step_result([0.5, 0.5])] * 2
    monkeypatch.setattr(bench_session, "describe_version", lambda: "another")
    assert run(process).run.path != interrupted.run.path


def test_ctrl_c_before_the_first_result_leaves_nothing(run: Run, tmp_path: Path) -> None:
    def process(configuration: Configuration) -> MeasuredResult:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(process)
    assert find_runs(tmp_path) == []


def test_a_benchmark_without_any_figures_fails(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such device"):
        run(lambda configuration: Failure(status="refused", why="no such device"))
    assert find_runs(tmp_path) == []
    with pytest.raises(RunFailed, match="Nothing could be measured: out-of-memory: too big"):
        run(lambda configuration: Failure(status="out-of-memory", why="too big"))
    assert [r.status().status for r in find_runs(tmp_path)] == ["failed"]


# ---------------------------------------------------------------------------------------------------------- processes


def a_configuration(name: str, batch: int = 1, mode: str = "eager") -> Configuration:
    return Configuration(
        name=name, labels=ConfigurationLabels(batch=batch, mode=mode), request=MeasureRequest(what="train", config={})
    )


def test_every_configuration_runs_once_per_round_in_an_order_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_session, "run_in_process", lambda configuration, _: step_result([1.0, 1.0]))
    configurations = [a_configuration(str(i)) for i in range(6)]
    rounds = list(measure_configurations(configurations, repeats=4, seed=3))
    orders = [[r.configuration for r in rounds if r.round == k] for k in range(4)]
    assert all(sorted(o) == sorted(a.name for a in configurations) for o in orders)
    assert len({tuple(o) for o in orders}) > 1
    assert [r.order for r in rounds] == list(range(24))
    again = measure_configurations(configurations, repeats=4, seed=3)
    assert [r.configuration for r in again] == [r.configuration for r in rounds]


def test_larger_batches_are_not_tried_after_a_smaller_one_did_not_fit() -> None:
    configurations = [a_configuration(f"b{b}", b) for b in (1, 2, 4)]
    failures = {"b2": Failure(status="out-of-memory", why="full")}
    assert _expected_failure(configurations[0], configurations, failures) is None
    failure = _expected_failure(configurations[2], configurations, failures)
    assert failure is not None
    assert "batch 2" in failure.why
    other = a_configuration("x", 8, "compile")
    assert _expected_failure(other, [*configurations, other], failures) is None


def test_a_configuration_that_failed_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def refuse(configuration: Configuration, _: object) -> Failure:
        ran.append(configuration.name)
        return Failure(status="refused", why="no such device")

    monkeypatch.setattr(bench_session, "run_in_process", refuse)
    rounds = list(measure_configurations([a_configuration("a")], repeats=3, seed=0))
    assert ran == ["a"]
    assert len(rounds) == 3


def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Measuring processes run this Python text, with the paths of the request and of the answer as arguments."""
    (tmp_path / "process.py").write_text(text)
    monkeypatch.setattr(launcher, "COMMAND", [sys.executable, str(tmp_path / "process.py")])


def test_a_refusal_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(
        tmp_path,
        monkeypatch,
        "import json, sys; json.dump({'status': 'refused', 'why': json.load(open(sys.argv[1]))['what']},"
        " open(sys.argv[2], 'w'))",
    )
    assert run_in_process(a_configuration("a")) == Failure(status="refused", why="train")


def test_what_a_process_is_doing_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(
        tmp_path,
        monkeypatch,
        "import json, sys\n"
        "request = json.load(open(sys.argv[1]))\n"
        "assert request['started_s'] > 0\n"
        "json.dump({'phase': 'warm-up', 'steps': 3}, open(request['progress'], 'w'))\n"
        "json.dump({'status': 'refused', 'why': 'x'}, open(sys.argv[2], 'w'))\n",
    )
    shown: list[object] = []
    run_in_process(a_configuration("a"), lambda configuration, progress: shown.append((configuration.name, progress)))
    assert shown[-1] == ("a", MeasuringProgress(phase="warm-up", steps=3))


def test_an_older_version_that_says_nothing_meanwhile_is_measured_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, monkeypatch, 'import sys; open(sys.argv[2], \'w\').write(\'{"status": "refused", "why": "x"}\')')
    shown: list[object] = []
    run_in_process(a_configuration("a"), lambda configuration, progress: shown.append(progress))
    assert set(shown) == {None}


def test_a_killed_process_ran_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, monkeypatch, "import os; os.kill(os.getpid(), 9)")
    result = run_in_process(a_configuration("a"))
    assert isinstance(result, Failure)
    assert result.status == "out-of-memory"


def test_a_process_without_an_answer_fails_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, monkeypatch, "raise SystemExit('the disk is gone')")
    with pytest.raises(RunFailed, match="process of a failed with exit code 1: the disk is gone"):
        run_in_process(a_configuration("a"))


def test_an_answer_that_is_no_result_names_the_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, monkeypatch, "import sys; open(sys.argv[2], 'w').write('{\"status\": \"ok\"}')")
    with pytest.raises(RunFailed, match="process of a answered something else"):
        run_in_process(a_configuration("a"))
