"""Console output of training scripts, with the lines that those scripts print."""

from pathlib import Path

import pytest

from vernier.errors import ConfigError
from vernier.lab.logs.work import trace_of
from vernier.report.logs.model import RunLog
from vernier.report.logs.reading import open_logs
from vernier.report.logs.work import work_of

ARGUMENTS = (
    "Namespace(apex=False, batch_size=256, data_path='/data', device='habana', lr=0.1, model='resnet50', world_size={})"
)
METERS = "lr: 0.1  img/s: {}  loss: 6.9 (7.1)  acc1: 0.3906 (0.2)  acc5: 1.5 (1.0)  time: {}  data: {}"


def _read(folder: Path, *lines: str) -> RunLog:
    (folder / "console.log").write_text("\n".join(lines))
    (run,) = open_logs(folder / "console.log")
    return run


def _habana(*, arguments: str) -> list[str]:
    steps = [
        f"Epoch: [0]  [{i:4d}/5004]  eta: 1:00:00  " + METERS.format(320.0, 1.0 if i else 9.0, 0.2) for i in range(8)
    ]
    return ["Loading data", arguments, *steps, "Epoch: [0] Total time: 0:00:16", " * Acc@1 75.850 Acc@5 92.880"]


def test_habanas_pytorch_and_torchvision(tmp_path: Path) -> None:
    run = _read(tmp_path, *_habana(arguments=ARGUMENTS.format(8)))
    assert (run.format, run.devices, work_of(run).values["network"]) == ("console", 8, "resnet50")
    assert [(s.step, s.steady) for s in run.steps[:3]] == [(1, False), (2, True), (3, True)]
    assert (run.steps[1].wait_s, run.steps[1].loss, run.steps[1].top1, run.steps[1].lr) == (0.2, 6.9, 0.3906, 0.1)
    assert trace_of(run).window.samples_per_s == pytest.approx(2048)
    assert run.evals[0].values == {"top1": 75.85, "top5": 92.88}


def test_a_batch_that_is_not_in_the_log_follows_from_rate_and_time(tmp_path: Path) -> None:
    run = _read(tmp_path, *_habana(arguments=""))
    assert run.steps[1].samples == 256  # 320 images per second in 0.8 s without data
    assert any("the batch of 256 per process follows from rate and time" in note for note in run.notes)


def test_habanas_tensorflow_ssd(tmp_path: Path) -> None:
    steps = [
        f"INFO:tensorflow:Step {i} : loss = {9 - i / 10:.3f} , time = {500.0 if i > 1 else 9000:.1f} ms"
        for i in range(1, 21)
    ]
    epochs = [
        line
        for first in (0, 10)
        for line in (
            *steps[first : first + 10],
            f"INFO:tensorflow:Epoch {1 + first // 10} finished. Duration: 0:00:{'14' if first == 0 else '05'} -> "
            f"IPS: {1280 / (13.6 if first == 0 else 5.1):.2f}",
        )
    ]
    coco = " Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.230"
    run = _read(tmp_path, *epochs, coco, coco.replace("0.50:0.95", "0.50     ").replace("0.230", "0.410"))
    assert [s.epoch for s in run.steps] == [0] * 10 + [1] * 10
    assert run.steps[5].samples == 128
    assert trace_of(run).window.samples_per_s == pytest.approx(256)
    assert run.evals[0].values == {"AP": 0.23, "AP50": 0.41}


def test_tensorflows_estimator(tmp_path: Path) -> None:
    lines = [f"INFO:tensorflow:loss = {8 - i / 10}, step = {100 * i} (12.5 sec)" for i in range(1, 8)]
    figures = "accuracy = 0.79, accuracy_top_5 = 0.94, global_step = 700, loss = 1.0"
    result = f"INFO:tensorflow:Saving dict for global step 700: {figures}"
    run = _read(
        tmp_path, "python3 imagenet_main.py --batch_size 128", "INFO:tensorflow:loss = 9.0, step = 0", *lines, result
    )
    assert [(s.step, s.steps, s.seconds) for s in run.steps[:2]] == [(100, 100, 12.5), (200, 100, 12.5)]
    assert trace_of(run).window.samples_per_s == pytest.approx(128 * 8)
    assert run.evals[0].values == pytest.approx({"top1": 79.0, "top5": 94.0, "loss": 1.0})
    assert not run.has_single_steps


def test_keras_time_history(tmp_path: Path) -> None:
    old = [
        f"I0717 BenchmarkMetric: {{'global step':{20 * i}, 'time_taken': 10.000000,'examples_per_second': 512.000000}}"
        for i in range(1, 7)
    ]
    assert trace_of(_read(tmp_path, *old)).window.samples_per_s == pytest.approx(512)
    new = [
        f"TimeHistory: 10.0 seconds, 512.0 examples/second between steps {20 * i} and {20 * i + 20}" for i in range(6)
    ]
    run = _read(tmp_path, *new)
    assert trace_of(run).window.samples_per_s == pytest.approx(512)
    assert run.steps[0].samples / run.steps[0].steps == 256


def test_without_any_batch_there_is_no_rate(tmp_path: Path) -> None:
    run = _read(tmp_path, "Step 1 : loss = 9.000 , time = 500.0 ms", "Step 2 : loss = nan , time = 500.0 ms")
    assert [s.loss for s in run.steps] == [9.0, None]
    with pytest.raises(ConfigError, match="does not record the number of samples"):
        trace_of(run)


def test_processes_that_mpirun_tags_are_counted_and_their_steps_are_not(tmp_path: Path) -> None:
    lines = [
        f"[1,{rank}]<stderr>:INFO:tensorflow:Step {step} : loss = 9.000 , time = 500.0 ms"
        for step in range(1, 9)
        for rank in range(4)
    ]
    run = _read(tmp_path, "python3 ssd.py --batch_size 32", *lines)
    assert (len(run.steps), run.devices) == (8, 4)
    assert trace_of(run).window.samples_per_s == pytest.approx(256)
