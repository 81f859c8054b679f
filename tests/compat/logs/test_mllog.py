"""MLPerf's logs: round trip, published ones, and MLPerf's own checker."""

import contextlib
import importlib.util
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab.logs.conftest import TIMES
from vernier.errors import ConfigError
from vernier.lab.logs.model import RunLog
from vernier.lab.logs.reading import open_logs
from vernier.lab.logs.work import trace_of, work_of
from vernier.lab.logs.writing import convert
from vernier.lab.statistics.runs import time_to_train

RULES = "training_4.0.0/common.yaml"  # the last ones with a ResNet-50


def test_mllog_round_trips_by_epoch(run: RunLog, tmp_path: Path) -> None:
    (path,) = convert(run, "mllog", tmp_path / "result_0.txt")
    (back,) = open_logs(path)
    epochs = [sum(TIMES[i : i + 100]) for i in (0, 100, 200)]
    assert [s.seconds for s in back.steps] == pytest.approx(epochs, abs=0.0011)
    assert [e.values["eval_accuracy"] for e in back.evals] == pytest.approx([0.51, 0.52, 0.53])
    assert (back.train_samples, back.eval_samples, back.settings["global_batch_size"]) == (3200, 50, 32)
    assert back.total_s == pytest.approx(sum(epochs) + 3, abs=0.01)


@pytest.mark.skipif(importlib.util.find_spec("mlperf_logging") is None, reason="mlperf-logging is not installed")
def test_mllog_passes_mlperfs_own_checker(run: RunLog, tmp_path: Path) -> None:
    from mlperf_logging.compliance_checker import mlp_compliance
    from mlperf_logging.compliance_checker.mlp_parser import parse_file

    (path,) = convert(run, "mllog", tmp_path / "result_0.txt")
    lines, errors = parse_file(str(path), ruleset="4.0.0")
    assert errors == []
    assert [line.key for line in lines][:2] == ["submission_benchmark", "submission_org"]
    checker = mlp_compliance.make_checker("training", "4.0.0", False, False)
    with contextlib.redirect_stdout(io.StringIO()):
        valid, *_ = mlp_compliance.main(str(path), RULES, checker)
    assert valid
    broken = tmp_path / "broken.txt"
    broken.write_text("\n".join(line for line in path.read_text().splitlines() if "run_stop" not in line))
    with contextlib.redirect_stdout(io.StringIO()):
        assert not mlp_compliance.main(str(broken), RULES, checker)[0]


def test_mlperfs_published_logs_are_read(real_data: Callable[[str], Path]) -> None:
    resnet = open_logs(real_data("mlperf-v0.7") / "dgxa100_ngc20.06_mxnet" / "resnet" / "result_0.txt")[0]
    assert (len(resnet.steps), len(resnet.evals), resnet.train_samples) == (41, 11, 1281167)
    assert resnet.reached_target
    ssd = open_logs(real_data("mlperf-v0.7") / "dgxa100_ngc20.06_pytorch" / "ssd" / "result_0.txt")[0]
    assert len(ssd.steps) == 50  # the epoch in which the target was met has no end
    assert trace_of(ssd).window.samples_per_s == pytest.approx(117266 * 49 / sum(s.seconds for s in ssd.steps[1:]))
    assert (resnet.devices, ssd.devices) == (8, 8)


def test_a_log_without_an_end_has_no_time_to_train(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text(':::MLLOG {"key": "epoch_start", "time_ms": 1, "metadata": {"epoch_num": 1}}\n:::MLLOG {"key": ')
    (run,) = open_logs(log)
    assert run.total_s is None
    assert any("has no end of the run" in n for n in run.notes)
    assert any("1 broken line" in n for n in run.notes)
    with pytest.raises(ConfigError, match="no steps"):
        trace_of(run)


def test_a_log_is_read_without_its_first_epoch_and_an_aborted_run_says_so(tmp_path: Path) -> None:
    def line(at_s: float, key: str, kind: str, value: Any = None, **metadata: Any) -> str:
        tree = {"time_ms": 1000 * at_s, "key": key, "event_type": kind, "value": value, "metadata": metadata}
        return ":::MLLOG " + json.dumps(tree)

    epochs = [
        line(at_s, f"epoch_{end}", "INTERVAL", epoch_num=number)
        for number, times in enumerate([(10, 30), (30, 40), (41, 51)], start=1)
        for at_s, end in zip(times, ("start", "stop"), strict=True)
    ]
    head = [
        line(0, key, "POINT_IN_TIME", v) for key, v in (("submission_benchmark", "resnet"), ("train_samples", 1000))
    ]
    ends = [line(5, "run_start", "INTERVAL_START"), *epochs, line(55, "run_stop", "INTERVAL_END", status="aborted")]
    (tmp_path / "result.txt").write_text("\n".join(["srun: started", *head, *ends]))
    (run,) = open_logs(tmp_path / "result.txt")
    assert [(s.seconds, s.steady) for s in run.steps] == [(20.0, False), (10.0, True), (10.0, True)]
    assert (run.total_s, run.aborted, run.reached_target) == (50.0, True, False)
    assert trace_of(run).window.samples_per_s == pytest.approx(100)
    assert work_of(run).values["network"] == "resnet50"
    assert "result.txt ended with status aborted" in run.notes


@pytest.mark.parametrize(
    ("settings", "devices"),
    [
        ({"number_of_ranks": 16}, 16),
        ({"number_of_nodes": 2, "accelerators_per_node": 8}, 16),
        ({"submission_entry": "{'num_accelerators': '4', 'num_nodes': '2'}"}, 8),
        ({}, None),
    ],
)
def test_the_number_of_devices_is_the_logs_or_unknown(tmp_path: Path, settings: Any, devices: int | None) -> None:
    records = [{"key": k, "value": v, "time_ms": 0, "event_type": "POINT_IN_TIME"} for k, v in settings.items()]
    records.append({"key": "init_start", "time_ms": 0, "event_type": "INTERVAL_START"})
    (tmp_path / "r.txt").write_text("".join(f":::MLLOG {json.dumps(r)}\n" for r in records))
    assert open_logs(tmp_path / "r.txt")[0].devices == devices


def test_the_score_of_published_logs(real_data: Callable[[str], Path]) -> None:
    """NVIDIA's v0.7 logs of one DGX A100."""
    for folder, minutes in (("dgxa100_ngc20.06_mxnet/resnet", 39.78), ("dgxa100_ngc20.06_pytorch/ssd", 10.21)):
        runs = [open_logs(p)[0] for p in sorted((real_data("mlperf-v0.7") / folder).glob("result_*.txt"))]
        score, how = time_to_train([r.total_s for r in runs if r.total_s]) or (0.0, "")
        assert score / 60 == pytest.approx(minutes, abs=0.005)
        assert how == "olympic mean of 5 runs: without the fastest and the slowest"


STARTS_AND_STOPS_MS = (
    (1652653456890, 1652655161518, "success"),
    (1652653457985, 1652655176308, "success"),
    (1652653457745, 1652655278258, "aborted"),
    (1652653459848, 1652655184729, "success"),
    (1652653459312, 1652655179476, "success"),
)
"""Of NVIDIA's published logs of ResNet on one DGX A100, MLPerf v2.0 (results/dgxa100_ngc22.04_mxnet/resnet)."""


def test_the_score_of_published_logs_with_an_aborted_run_is_mlperfs(tmp_path: Path) -> None:
    runs = []
    for number, (start, stop, status) in enumerate(STARTS_AND_STOPS_MS):
        lines = (
            f'"time_ms": {start}, "event_type": "INTERVAL_START", "key": "run_start", "value": null, "metadata": {{}}',
            f'"time_ms": {stop}, "event_type": "INTERVAL_END", "key": "run_stop", "value": null, '
            f'"metadata": {{"file": "fit.py", "lineno": 1063, "status": "{status}"}}',
        )
        path = tmp_path / f"result_{number}.txt"
        path.write_text("".join(f':::MLLOG {{"namespace": "", {line}}}\n' for line in lines))
        runs.append(open_logs(path)[0])
    assert [run.aborted for run in runs] == [False, False, True, False, False]
    score = time_to_train([run.total_s for run in runs if run.total_s and not run.aborted], aborted=1)
    assert score is not None
    assert score[0] / 60 == pytest.approx(28.685, abs=0.0005)


def test_the_olympic_mean_needs_three_runs() -> None:
    assert time_to_train([]) is None
    assert time_to_train([60.0]) == (60.0, "one run")
    assert time_to_train([60.0, 80.0]) == (70.0, "mean of 2 runs")
    # An aborted run is the slowest one, as in mlcommons/logging; two make the result invalid.
    assert time_to_train([60.0, 100.0, 80.0, 70.0], aborted=1) == (
        pytest.approx(250 / 3),
        "olympic mean of 5 runs: without the fastest and the aborted",
    )
    assert time_to_train([60.0, 100.0, 80.0], aborted=2) is None
    assert time_to_train([60.0, 100.0, 80.0]) == (80.0, "olympic mean of 3 runs: without the fastest and the slowest")
