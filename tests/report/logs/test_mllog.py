"""MLPerf's logs: round trip, published ones, and MLPerf's own checker."""

import contextlib
import importlib.util
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.logs.conftest import TIMES
from vernier.errors import ConfigError
from vernier.report.logs.model import RunLog
from vernier.report.logs.reading import open_logs
from vernier.report.logs.writing import convert

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
    assert ssd.trace().window.samples_per_s == pytest.approx(117266 * 50 / sum(s.seconds for s in ssd.steps))


def test_a_log_without_an_end_has_no_time_to_train(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text(':::MLLOG {"key": "epoch_start", "time_ms": 1, "metadata": {"epoch_num": 1}}\n:::MLLOG {"key": ')
    (run,) = open_logs(log)
    assert run.total_s is None
    assert any("has no end of the run" in n for n in run.notes)
    assert any("1 broken line(s)" in n for n in run.notes)
    with pytest.raises(ConfigError, match="no steps"):
        run.trace()
