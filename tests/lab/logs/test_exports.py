"""`--raport` and `--dllogger` of training and benchmarks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.report.bench_results import step_result, step_row, write_bench
from vernier.errors import ConfigError, RunFailed
from vernier.lab.logs.exports import check_exports, write_exports
from vernier.lab.records.bench import BenchRequest, BenchResult, Failure, Round

Runner = Callable[..., Any]
SMALL = ("--set", "model.width=8", "--set", "data.image_px=32", "--set", "machine.threads=1")


@pytest.mark.slow
def test_a_training_writes_both_logs_and_can_be_compared_with_them(
    shapes: Path, tmp_path: Path, vernier_here: Runner
) -> None:
    raport, lines = tmp_path / "logs" / "raport.json", tmp_path / "logs" / "dllogger.json"
    command = ("train", "--data", str(shapes), "--out", str(tmp_path / "runs"), "--max-steps", "6", *SMALL)
    done = vernier_here(*command, "--train-accuracy", "--raport", str(raport), "--dllogger", str(lines), "--json")
    assert done.code == 0, done.err
    tree = json.loads(raport.read_text())
    assert tree["iter"]["it"] == [[1, 2, 3, 4, 5], [1]]
    for name in ("train.loss", "train.top1", "lr"):
        assert [len(epoch) for epoch in tree["iter"][name]] == [5, 1], name
    assert tree["epoch"]["val.compute_latency_at99"][0] > 0
    assert tree["epoch"]["val.top1"][-1] == done.json()["result"]["top1"]
    assert tree["summary"]["val.top1"] == max(tree["epoch"]["val.top1"])
    for log in (raport, lines):
        compared = vernier_here("compare", done.json()["run"], str(log), "--json").json()
        assert compared["comparison"]["ratio"] == pytest.approx(1)
        assert compared["differs"]["work"] == {}
    again = vernier_here(*command, "--raport", str(raport))
    assert (again.code, "exists already" in again.err) == (2, True)


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    check_exports({"raport": None, "dllogger": str(tmp_path / "new" / "x.json")})
    with pytest.raises(ConfigError, match="there exists already") as refused:
        check_exports({"raport": str(tmp_path / "there")})
    assert refused.value.given == {"raport": str(tmp_path / "there")}
    with pytest.raises(ConfigError, match="there is a file, not a folder"):
        check_exports({"dllogger": str(tmp_path / "there" / "x.json")})


def test_rounds_without_step_times_are_left_out(tmp_path: Path) -> None:
    asked, row = BenchRequest(what="train", config={}), step_row(8, 80.0)
    failed = Round(configuration="huge", round=0, order=1, result=Failure(status="out-of-memory", why="too large"))
    good = Round(configuration=row.configuration, round=0, order=0, result=step_result((0.5, 0.25)))
    folder = write_bench(tmp_path, BenchResult(asked=asked, rows=(row,), rounds=(good, failed)))
    assert write_exports(folder, {"raport": str(tmp_path / "r.json"), "dllogger": None}) == [tmp_path / "r.json"]
    none = write_bench(tmp_path / "none", BenchResult(asked=asked, rows=(), rounds=(failed,)))
    with pytest.raises(RunFailed, match="was not written: No round of huge"):
        write_exports(none, {"raport": str(tmp_path / "x.json")})
