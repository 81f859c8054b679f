"""vernier compare: on run directories with known step times, on logs of others, and on what is broken."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.report.bench_results import step_result, write_bench
from tests.report.run_dirs import step_times, write_run
from vernier.errors import ConfigError
from vernier.records.bench import ArmFailure, BenchResult, Round
from vernier.report.compare import compare_runs, comparison_lines
from vernier.report.logs.reading import open_logs, open_side

Runner = Callable[..., Any]


def test_a_slower_run_is_a_regression(tmp_path: Path, vernier_here: Runner) -> None:
    a = write_run(tmp_path, "a", step_times(1))
    b = write_run(tmp_path, "b", step_times(2, mean=0.105), host="there", optim__lr=0.5)
    done = vernier_here("compare", str(a), str(b), "--json")
    assert done.code == 1
    found = done.json()["comparison"]
    assert found["verdict"] == "slower"
    assert found["low"] < 0.1 / 0.105 < found["high"] < 1
    assert done.json()["differs"] == {
        "settings": {"recipe.name": ["a", "b"], "recipe.optim.lr": [0.1, 0.5]},
        "environment": {"host": ["here", "there"]},
    }
    other_way = vernier_here("compare", str(b), str(a))
    assert other_way.code == 0
    assert "verdict: B is faster" in other_way.out
    assert "one run each" in other_way.out


def test_equal_runs_cannot_be_told_apart(tmp_path: Path) -> None:
    a, b = (open_logs(write_run(tmp_path, n, step_times(s))) for n, s in (("a", 1), ("b", 2)))
    result = compare_runs(a, b, 0.02)
    assert result.comparison.verdict == "cannot tell"
    assert result.comparison.within_tolerance
    assert any("any difference is smaller than 2 %" in line for line in comparison_lines(result))


def test_differences_below_the_tolerance_are_accepted(tmp_path: Path) -> None:
    a, b = (open_logs(write_run(tmp_path, n, step_times(s, mean=m))) for n, s, m in (("a", 1, 0.1), ("b", 2, 0.105)))
    assert compare_runs(a, b, 0.08).comparison.verdict == "cannot tell"


def test_several_runs_a_side_count_what_differs_between_runs(tmp_path: Path, vernier_here: Runner) -> None:
    for k, mean in enumerate((0.100, 0.110, 0.105)):
        write_run(tmp_path / "base", f"base{k}", step_times(k, mean=mean))
        write_run(tmp_path / "new", f"new{k}", step_times(10 + k, mean=mean * 1.03))
    listed = ",".join(str(p) for p in sorted((tmp_path / "base").iterdir()))
    found = vernier_here("compare", listed, str(tmp_path / "new" / "*"), "--json").json()
    assert found["comparison"]["runs"] == [3, 3]
    assert found["comparison"]["verdict"] == "cannot tell"  # 3 % is nothing beside 5 % from run to run
    folders = vernier_here("compare", str(tmp_path / "base"), str(tmp_path / "new"), "--json").json()
    assert folders["comparison"] == found["comparison"]


def test_another_batch_is_compared_by_images(tmp_path: Path) -> None:
    a = open_logs(write_run(tmp_path, "a", step_times(1), batch=32))
    b = open_logs(write_run(tmp_path, "b", step_times(2, mean=0.2), batch=64))
    assert compare_runs(a, b).comparison.ratio == pytest.approx(1.0, abs=0.02)


def test_a_killed_run_is_used_as_far_as_it_goes(tmp_path: Path, vernier_here: Runner) -> None:
    a, b = write_run(tmp_path, "a", step_times(1)), write_run(tmp_path, "b", step_times(2), status="running")
    events = b / "events.jsonl"
    text = events.read_text()
    events.write_text(text[: len(text) * 2 // 3])
    done = vernier_here("compare", str(a), str(b), "--json")
    assert done.code == 0
    notes = " ".join(done.json()["notes"])
    assert "did not finish (crashed)" in notes
    assert "1 damaged event(s)" in notes
    assert 200 < done.json()["comparison"]["steps"][1] < 300


def test_rounds_of_a_bench_are_paired(tmp_path: Path) -> None:
    rounds = [
        Round(arm=arm, round=k, order=2 * k, result=step_result((mean,) * 50, images_per_step=32))
        for k in range(4)
        for arm, mean in (("old", 0.1 * (1 + k / 10)), ("new", 0.103 * (1 + k / 10)))
    ]
    rounds.append(Round(arm="new", round=4, order=8, result=ArmFailure(status="out-of-memory", why="too large")))
    path = write_bench(tmp_path, BenchResult(rounds=tuple(rounds))) / "bench.json"
    result = compare_runs(open_side(f"{path}#old"), open_side(f"{path}#new"))
    assert result.comparison.basis == "differences within 4 rounds"
    assert result.comparison.ratio == pytest.approx(1 / 1.03)
    assert result.comparison.verdict == "slower"
    assert result.notes == ("1 round(s) of new in bench.json were not measured",)
    with pytest.raises(ConfigError, match=r"2 arms\. Name one"):
        open_side(str(path))
    with pytest.raises(ConfigError, match=r"no arm 'odl'\. Did you mean old"):
        open_side(f"{path}#odl")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d / "nowhere", "does not exist"),
        (lambda d: d, "not a run directory"),
        (lambda d: (d / "x.json", (d / "x.json").write_text("{"))[0], "not complete JSON"),
        (lambda d: (d / "x.json", (d / "x.json").write_text("{}"))[0], "neither a bench result"),
        (lambda d: (d / "x.txt", (d / "x.txt").write_text("hello"))[0], "not the log of a run"),
        (lambda d: write_run(d, "empty", []), "records no steps"),
    ],
)
def test_what_cannot_be_compared_is_said(tmp_path: Path, vernier_here: Runner, make: Any, message: str) -> None:
    good = write_run(tmp_path / "good", "a", step_times(1))
    done = vernier_here("compare", str(good), str(make(tmp_path)))
    assert done.code == 2
    assert message in done.err


def test_one_step_each_gives_no_interval(tmp_path: Path) -> None:
    a, b = (open_logs(write_run(tmp_path, n, [0.1 * (i + 1)])) for i, n in enumerate("ab"))
    result = compare_runs(a, b)
    assert result.comparison.low is None
    assert "too few steps" in " ".join(comparison_lines(result))


@pytest.mark.parametrize(
    "damage",
    ['{"kind": "step", "step": 1, "step_s": ["x"], "wait_s": [0.1], "loss": 1, "lr": 1}', '{"kind": "step", "step": 1}', '{"kind": "eval"}', "5", "[]"],
)  # fmt: skip
def test_damaged_events_are_left_out(tmp_path: Path, damage: str) -> None:
    path = write_run(tmp_path, "a", step_times(1, n=50))
    with (path / "events.jsonl").open("a") as f:
        f.write(damage + "\n")
    (found,) = open_logs(path)
    assert len(found.steps) == 50
    assert damage in ("5", "[]") or "1 damaged event(s) left out" in found.notes[0]


@pytest.mark.parametrize(
    "rounds", ["[1]", '[{"arm": "a", "result": 5}]', '[{"arm": "a", "result": {"images_per_step": 8}}]', "[]"]
)
def test_damaged_bench_results_get_a_message(tmp_path: Path, rounds: str) -> None:
    (tmp_path / "b.json").write_text(f'{{"rounds": {rounds}}}')
    with pytest.raises(ConfigError):
        open_logs(tmp_path / "b.json")
