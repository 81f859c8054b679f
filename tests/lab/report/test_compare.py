"""Comparing runs with known step times."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.bench_results import step_result, write_bench
from tests.report.run_dirs import step_times, write_run
from vernier.errors import ConfigError
from vernier.lab.logs.model import RunLog
from vernier.lab.logs.reading import open_logs, open_side
from vernier.lab.logs.writing import convert
from vernier.lab.records.bench import BenchResult, Failure, Round
from vernier.lab.report.compare import compare_runs, comparison_lines


def test_equal_runs_cannot_be_told_apart(tmp_path: Path) -> None:
    a, b = (open_logs(write_run(tmp_path, n, step_times(s))) for n, s in (("a", 1), ("b", 2)))
    result = compare_runs(a, b, 0.02, single_runs=True)
    assert result.comparison.verdict == "cannot tell"
    assert result.comparison.within_tolerance
    assert any("any difference is smaller than 2 %" in line for line in comparison_lines(result))


def test_differences_below_the_tolerance_are_accepted(tmp_path: Path) -> None:
    a, b = (open_logs(write_run(tmp_path, n, step_times(s, mean=m))) for n, s, m in (("a", 1, 0.1), ("b", 2, 0.105)))
    assert compare_runs(a, b, 0.08, single_runs=True).comparison.verdict == "cannot tell"


def test_another_batch_is_compared_by_images(tmp_path: Path) -> None:
    a = open_logs(write_run(tmp_path, "a", step_times(1), batch=32))
    b = open_logs(write_run(tmp_path, "b", step_times(2, mean=0.2), batch=64))
    with pytest.raises(ConfigError, match=r"batch 32; B trains resnet50 at 224 px, batch 64 \(different: batch\)"):
        compare_runs(a, b)
    result = compare_runs(a, b, allow_different_work=True)
    assert result.comparison.ratio == pytest.approx(1.0, abs=0.02)
    assert comparison_lines(result)[0].startswith("NOT THE SAME WORK: A trains")


def test_rounds_of_a_bench_are_paired(tmp_path: Path) -> None:
    rounds = [
        Round(configuration=configuration, round=k, order=2 * k, result=step_result((mean,) * 50, images_per_step=32))
        for k in range(4)
        for configuration, mean in (("old", 0.1 * (1 + k / 10)), ("new", 0.103 * (1 + k / 10) * (1 + k % 2 / 1000)))
    ]
    rounds.append(Round(configuration="new", round=4, order=8, result=Failure(status="out-of-memory", why="too large")))
    path = write_bench(tmp_path, BenchResult(rounds=tuple(rounds))) / "bench.json"
    result = compare_runs(open_side([f"{path}#old"]), open_side([f"{path}#new"]))
    assert result.comparison.basis == "differences within 4 rounds"
    assert result.comparison.ratio == pytest.approx(1 / 1.03, rel=0.001)
    assert result.comparison.verdict == "slower"
    assert result.notes == ("1 round of new in bench.json not measured",)
    with pytest.raises(ConfigError, match=r"2 configurations\. Name one"):
        open_side([str(path)])
    with pytest.raises(ConfigError, match=r"no configuration 'odl'\. Did you mean old"):
        open_side([f"{path}#odl"])


def test_one_step_each_gives_no_interval(tmp_path: Path) -> None:
    a, b = (open_logs(write_run(tmp_path, n, [0.1 * (i + 1)])) for i, n in enumerate("ab"))
    result = compare_runs(a, b, single_runs=True)
    assert (result.comparison.low, result.comparison.verdict) == (None, "cannot tell")
    assert "too few steps" in " ".join(comparison_lines(result))
    assert "insist" not in " ".join(comparison_lines(result))


def test_a_run_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    (a,), b = (open_logs(write_run(tmp_path, n, step_times(s))) for n, s in (("a", 1), ("b", 2)))
    result = compare_runs([a, a], b)
    assert result.comparison.runs == (1, 1)
    assert result.notes == (f"{a.path} is given twice: in A it counts once",)


def test_what_could_have_been_found_is_said(tmp_path: Path) -> None:
    a, b = (
        [run for i in range(3) for run in open_logs(write_run(tmp_path, f"{name}{i}", step_times(first + i)))]
        for name, first in (("a", 1), ("b", 11))
    )
    result = compare_runs(a, b)
    smallest = result.comparison.detectable
    assert smallest is not None
    assert f"finds a difference of {100 * smallest:.2g} % or more in about 80 % of cases" in "\n".join(
        comparison_lines(result)
    )
    assert compare_runs(a[:1], b[:1]).comparison.detectable is None  # without a verdict there is nothing to find


def test_runs_that_are_equal_to_the_last_digit_are_no_certainty(tmp_path: Path) -> None:
    """Rounded figures: the runs differ in their losses, so they are no copies."""
    a, b = (
        [run for i in range(3) for run in open_logs(write_run(tmp_path, f"{name}{i}", [9.0, *[s] * (50 + i)]))]
        for name, s in (("a", 0.1), ("b", 0.11))
    )
    result = compare_runs(a, b)
    assert (result.comparison.verdict, result.comparison.low, result.regressed) == ("cannot tell", None, False)
    text = "\n".join(comparison_lines(result))
    assert "do not show how runs differ" in text
    assert "verdict: cannot tell: there is no interval" in text


def test_rounds_of_different_benchmarks_are_not_paired(tmp_path: Path) -> None:
    sides = []
    for folder, seconds in (("one", 0.1), ("two", 0.102)):
        rounds = tuple(
            Round(configuration="x", round=k, order=k, result=step_result((seconds * (1 + k / 50),) * 50))
            for k in range(4)
        )
        sides.append(open_side([f"{write_bench(tmp_path / folder, BenchResult(rounds=rounds))}/bench.json#x"]))
    result = compare_runs(*sides)
    assert result.comparison.basis == "4 and 4 runs, differences between runs counted"
    assert result.comparison.verdict == "cannot tell"


def test_runs_of_one_side_must_be_of_the_same_work_too(tmp_path: Path) -> None:
    a = open_logs(write_run(tmp_path, "a", step_times(1)))
    mixed = [*a, *open_logs(write_run(tmp_path, "b", step_times(2), data__image_px=64))]
    with pytest.raises(ConfigError, match=r"Not the same work within B: .* at 224 px; .* at 64 px"):
        compare_runs(a, mixed)
    result = compare_runs(a, mixed, allow_different_work=True)
    assert comparison_lines(result)[0].startswith("NOT THE SAME WORK within B")


def test_a_run_on_both_sides_is_named(tmp_path: Path) -> None:
    shared, other = (open_logs(write_run(tmp_path, n, step_times(s))) for n, s in (("a", 1), ("b", 2)))
    result = compare_runs(shared, [*shared, *other])
    assert result.notes == (f"{shared[0].path} of B is the same run as {shared[0].path} of A: take it out of one side",)


def test_an_endless_interval_is_not_written_out(tmp_path: Path) -> None:
    a, b = (
        [run for i, s in enumerate(times) for run in open_logs(write_run(tmp_path, f"{name}{i}", [9.0, s, s]))]
        for name, times in (("a", [0.1, 0.11]), ("b", [0.001, 3.0]))
    )
    text = " ".join(comparison_lines(compare_runs(a, b)))
    assert "more than 100 times" in text
    assert "finds a difference of 100 % or more in about 80 % of cases" in text
    assert all(len(word) < 200 for word in text.split())


def test_aborted_mlperf_runs_are_left_out_and_the_score_is_printed(tmp_path: Path) -> None:
    def side(name: str, *statuses: str) -> list[RunLog]:
        logs = []
        for number, status in enumerate(statuses):
            step_s = [float(x) for x in step_times(number + len(name), n=300)]
            log = open_logs(write_run(tmp_path, f"{name}{number}", step_s))[0]
            (path,) = convert(
                replace(log, reached_target=status == "success"), "mllog", tmp_path / f"{name}{number}.txt"
            )
            logs += open_logs(path)
        return logs

    a, b = side("a", "success", "aborted", "success", "success"), side("bb", "aborted")
    result = compare_runs(a, b)
    assert (len(result.a.runs), len(result.b.runs)) == (3, 1)
    assert any(n.startswith("left out of A, aborted or without reaching the target:") for n in result.notes)
    assert "every run of B was aborted or did not reach its target: speeds only" in result.notes
    lines = comparison_lines(result)
    (score,) = [line for line in lines if "time to train" in line]
    assert "minutes (olympic mean of 4 runs: without the fastest and the aborted)" in score
    times = sorted(r.total_s or 0 for r in a if not r.aborted)
    assert result.a.time_to_train_s == pytest.approx(sum(times[1:]) / 2)
    assert result.a.warmup_steps_excluded == 3
