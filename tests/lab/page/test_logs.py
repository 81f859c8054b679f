"""External logs as subjects."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from vernier.lab.logs.model import RunLog
from vernier.lab.page.logs import parts_of_log
from vernier.report.page.collect import collect
from vernier.report.page.identity import heading


@pytest.mark.parametrize("first", [0, 1])
def test_steps_of_an_external_log_count_once_whether_they_are_numbered_from_0_or_1(tmp_path: Path, first: int) -> None:
    """Numbered from 1, twenty steps of a second each took 22 seconds on the page."""
    data = {"train.total_ips": 8.0, "train.loss": 1.0, "train.data_time": 0.0, "train.compute_time": 1.0}
    steps = [[epoch, step] for epoch in range(2) for step in range(first, first + 10)]
    lines = [f"DLLL {json.dumps({'timestamp': '1', 'step': step, 'data': data})}\n" for step in steps]
    (tmp_path / "log.json").write_text("".join(lines))
    (subject,) = collect([tmp_path / "log.json"])
    assert [p.step for p in subject.points] == list(range(1, 21))
    assert subject.points[-1].time_s == pytest.approx(20.0)


def test_another_systems_log_is_marked_as_foreign(real_data: Callable[[str], Path]) -> None:
    (subject,) = collect([real_data("dllogger") / "raport.json"])
    assert subject.foreign
    assert subject.status == "foreign"
    assert len(subject.evals) > 10
    assert subject.points[-1].epoch <= subject.evals[-1].epoch
    (log,) = collect([real_data("mlperf-v0.7") / "dgxa100_ngc20.06_mxnet" / "resnet" / "result_0.txt"])
    assert log.format == "mllog"
    assert log.spent_s["total"] > 0


def test_a_log_says_what_it_has_and_what_it_has_not() -> None:
    settings = {"submission_benchmark": "ssd", "global_batch_size": 912}
    parts = parts_of_log(RunLog(format="mllog", path=Path("x"), settings=settings, train_samples=117_266))
    assert parts["network"] == "ssd"
    assert parts["batch"] == "global batch 912"
    assert parts["data"] == "117,266 training images"
    assert parts["devices"] == parts["image size"] == "not in the log"
    assert heading(parts) == "ssd · global batch 912 · 117,266 training images"
