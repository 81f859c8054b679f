"""`vernier compare` on the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Done
from tests.report.run_dirs import step_times, write_run

Runner = Callable[..., Done]


def test_a_slower_run_is_a_regression(tmp_path: Path, vernier_here: Runner) -> None:
    a = write_run(tmp_path, "a", step_times(1))
    b = write_run(tmp_path, "b", step_times(2, mean=0.105), host="there", optim__lr=0.5)
    blocks = vernier_here("compare", str(a), str(b), "--single-runs")
    assert blocks.code == 0  # all of A is older: the machine may have become slower
    assert "verdict: B is slower, or the machine was" in blocks.out
    assert "every run of A is older than those of B" in blocks.out
    assert vernier_here("compare", str(a), str(b), "--single-runs", "--json").json()["or_machine"] == "slower"
    assert "no regression (exit code 0), unless --other-times; measure in turn: A, B" in blocks.out
    done = vernier_here("compare", str(a), str(b), "--single-runs", "--other-times", "--json")
    assert done.code == 1
    comparison = done.json()["comparison"]
    assert comparison["verdict"] == "slower"
    assert comparison["low"] < 0.1 / 0.105 < comparison["high"] < 1
    assert done.json()["differs"] == {
        "work": {},
        "words": {},
        "settings": {"recipe.optim.lr": [0.1, 0.5]},
        "environment": {"host": ["here", "there"]},
    }
    other_way = vernier_here("compare", str(b), str(a), "--single-runs")
    assert other_way.code == 0
    assert "verdict: B is faster" in other_way.out
    assert "how runs differ is ignored: --single-runs" in other_way.out


def test_runs_of_different_times_come_with_the_command_that_measures_them_in_turn(
    tmp_path: Path, vernier_here: Runner
) -> None:
    runs = [write_run(tmp_path, name, step_times(k)) for k, name in enumerate("ab")]
    for run, lr in zip(runs, ("0.1", "0.5"), strict=True):
        environment = json.loads((run / "environment.json").read_text())
        environment["command"] = ["/opt/venv/bin/vernier", "train", "shapes", "--lr", lr]
        (run / "environment.json").write_text(json.dumps(environment))
    out = vernier_here("compare", *map(str, runs), "--json").json()["in_turn"]
    assert out == "for round in 1 2 3 4 5; do vernier train shapes --lr 0.1; vernier train shapes --lr 0.5; done"


def test_several_runs_per_side_include_the_variation_between_runs(tmp_path: Path, vernier_here: Runner) -> None:
    for k, mean in enumerate((0.100, 0.110, 0.105)):
        write_run(tmp_path / "base", f"base{k}", step_times(k, mean=mean))
        write_run(tmp_path / "new", f"new{k}", step_times(10 + k, mean=mean * 1.03))
    listed = ",".join(str(p) for p in sorted((tmp_path / "base").iterdir()))
    result = vernier_here("compare", listed, str(tmp_path / "new" / "*"), "--json").json()
    assert result["comparison"]["runs"] == [3, 3]
    assert result["comparison"]["verdict"] == "cannot tell"  # 3 % is nothing beside 5 % from run to run
    folders = vernier_here("compare", str(tmp_path / "base"), str(tmp_path / "new"), "--json").json()
    assert folders["comparison"] == result["comparison"]


def test_a_slowdown_in_several_runs_is_a_regression(tmp_path: Path, vernier_here: Runner) -> None:
    for k in range(4):
        write_run(tmp_path / "base", f"base{k}", step_times(k))
        write_run(tmp_path / "new", f"new{k}", step_times(10 + k, mean=0.11))
    done = vernier_here("compare", str(tmp_path / "base"), str(tmp_path / "new"))
    assert done.code == 1, done.out
    assert "verdict: B is slower (certainly different, and by more than the tolerance of 1 %)" in done.out


def test_a_killed_run_is_used_as_far_as_it_was_recorded(tmp_path: Path, vernier_here: Runner) -> None:
    a, b = write_run(tmp_path, "a", step_times(1)), write_run(tmp_path, "b", step_times(2), status="running")
    events = b / "events.jsonl"
    text = events.read_text()
    events.write_text(text[: len(text) * 2 // 3])
    done = vernier_here("compare", str(a), str(b), "--json")
    assert done.code == 0
    notes = " ".join(done.json()["notes"])
    assert "did not finish (crashed)" in notes
    assert "1 damaged event" in notes
    assert 200 < done.json()["comparison"]["steps"][1] < 300


@pytest.mark.parametrize(
    "make",
    [
        lambda d: d / "nowhere",
        lambda d: d,
        lambda d: (d / "x.json", (d / "x.json").write_text("{"))[0],
        lambda d: (d / "x.json", (d / "x.json").write_text("{}"))[0],
        lambda d: (d / "x.txt", (d / "x.txt").write_text("hello"))[0],
        lambda d: write_run(d, "empty", []),
    ],
)
def test_paths_that_cannot_be_compared_are_refused(tmp_path: Path, vernier_here: Runner, make: Any) -> None:
    good, wrong = write_run(tmp_path / "good", "a", step_times(1)), make(tmp_path)
    done = vernier_here("compare", str(good), str(wrong))
    assert (done.code, done.out) == (2, "")
    assert wrong.name in done.err
