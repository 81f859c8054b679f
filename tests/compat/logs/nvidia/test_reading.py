"""NVIDIA's logs are read in all their forms; what a form does not have is not invented."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from vernier.errors import ConfigError
from vernier.lab.logs.reading import open_logs
from vernier.lab.logs.work import trace_of, work_of

DLL = "DLL 2024-03-01 10:00:0{}.000001 - {}"
SLOW = "train.compute_ips : 4096.00 images/s train.total_ips : 2048.00 images/s"
FAST = "train.compute_ips : 8192.00 images/s train.total_ips : 4096.00 images/s"
TEXT = "\n".join(
    [
        "=> no checkpoint found",
        "UserWarning: lr_scheduler, optimizer and loss, are called in another order",
        DLL.format(
            0, "PARAMETER data : /imagenet arch : resnet50 batch_size : 256 world_size : 8 amp : True seed : None"
        ),
        DLL.format(1, f"Epoch: 0 Iteration: 1  train.loss : 6.94 {SLOW} train.lr : 0.256"),
        DLL.format(2, f"Epoch: 0 Iteration: 2  train.loss : 6.91 {FAST} train.lr : 0.256"),
        "0: " + DLL.format(3, f"Epoch: 0 Iteration: 3  train.loss : None {FAST}"),
        DLL.format(
            4,
            "Epoch: 0 Iteration: 3 Validation Iteration: 1  val.top1 : 1.20 % val.total_ips : 2048.00 images/s "
            "val.compute_latency : 0.50000 s val.data_time : 0.50000 s",
        ),
        DLL.format(
            5,
            "Epoch: 0  train.loss : 6.92 val.top1 : 1.25 % val.top5 : 4.50 % val.loss : 6.80 "
            "val.compute_ips : 9000.00 images/s val.compute_latency_at99 : 0.70000 s",
        ),
        DLL.format(6, "Summary: train.loss : 6.92 val.top1 : 1.25 %"),
    ]
)


def test_the_text_that_people_keep_is_read(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(TEXT)
    (run,) = open_logs(tmp_path / "log.txt")
    assert (run.format, run.kind, run.devices, run.settings["arch"]) == ("dllogger", "train", 8, "resnet50")
    assert (run.settings["amp"], run.settings["seed"], run.started) == (True, None, "2024-03-01T10:00:00.000001+00:00")
    assert [(s.epoch, s.step, s.loss) for s in run.steps] == [(0, 1, 6.94), (0, 2, 6.91), (0, 3, None)]
    assert [(s.seconds, s.wait_s, s.samples) for s in run.steps] == [
        (1.0, 0.5, 2048),
        (0.5, 0.25, 2048),
        (0.5, 0.25, 2048),
    ]
    (result,) = run.evals
    assert result.values == {"top1": 1.25, "top5": 4.5, "loss": 6.8}
    assert result.speed == {"compute_ips": 9000.0, "compute_latency_at99": 0.7}
    assert [(b.step, b.seconds, b.samples) for b in result.batches] == [(1, 1.0, 2048)]


SSD = """NOTE! Installing ujson may make loading annotations faster.
DLL 2024-04-27 13:11:33.412418 - PARAMETER dataset path : /data/object_detection  epochs : 1  batch size : 448  eval \
batch size : 32  no cuda : False  seed : None  mode : benchmark-training  lr decay epochs : [43, 54]  backbone : \
resnet50  num workers : 64  AMP : True  precision : amp 
Loading annotations into memory...
DLL 2024-04-27 13:14:21.275080 - () avg_img/sec : 1693.6577550856493 images/s med_img/sec : 1692.2210638012834 \
images/s min_img/sec : 1321.188780659811 images/s max_img/sec : 1719.747153314867 images/s
Done benchmarking. Total images: 179200	total time: 105.807	Average images/sec: 1693.658	Median images/sec: 1692.221
DLL 2024-04-27 13:14:21.276356 - () avg_img/sec : 1715.3906912525845 images/s med_img/sec : 1718.2850163056448 \
images/s min_img/sec : 1689.2826279852743 images/s max_img/sec : 1724.8136321954505 images/s
Training performance = 3410.506103515625 FPS
DLL 2024-04-27 13:14:21.277248 - (0,) time : 147.94745779037476 
DLL 2024-04-27 13:14:21.277481 - () total time : 147.94745779037476 
DLL 2024-04-27 13:14:21.277495 - () 
"""
"""Of a published log of SSD on two H100 (github.com/lambdal/deeplearning-benchmark), without its 300 kB of warnings."""


def test_ssds_log_has_the_mean_rates_of_its_processes(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(SSD)
    (run,) = open_logs(tmp_path / "log.txt")
    assert (run.devices, run.settings["batch_size"], run.settings["lr_decay_epochs"]) == (2, 448, [43, 54])
    assert trace_of(run).window.samples_per_s == pytest.approx(1693.6578 + 1715.3907)  # by medians it prints 3,410.5
    assert [(s.samples, s.seconds) for s in run.steps] == [(896, pytest.approx(896 / 3409.0485))]
    assert run.notes == ("log.txt has no times of steps: they follow from the mean rates of 2 processes, added up",)


def test_text_without_a_batch_has_a_rate_and_no_times_of_steps(tmp_path: Path) -> None:
    lines = [line for line in TEXT.splitlines() if "PARAMETER" not in line]
    (tmp_path / "log.txt").write_text("\n".join(lines))
    (run,) = open_logs(tmp_path / "log.txt")
    assert trace_of(run).window.samples_per_s == pytest.approx(4096)
    assert any("does not say the batch: its times are per image" in note for note in run.notes)
    assert run.devices is None


def test_the_console_of_2019_is_read(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text(
        "batch_size : 256\n"
        "Epoch: 0/90  Iteration: 1/5004;\ttrain.loss : 7.012\ttrain.compute_ips : 350.0\ttrain.data_time : 0.250\t"
        "train.compute_time : 0.750\n"
        "Epoch: 0/90 Validation Iteration: 1/196;\tval.top1 : 0.1\tval.data_time : 0.1\tval.compute_time : 0.2\n"
        "Summary Epoch: 0/90;\ttrain.loss : 7.000\tval.top1 : 0.200\n"
    )
    (run,) = open_logs(tmp_path / "out.log")
    assert [(s.step, s.seconds, s.wait_s, s.loss) for s in run.steps] == [(1, 1.0, 0.25, 7.012)]
    assert run.evals[0].values == {"top1": 0.2}
    assert [b.seconds for b in run.evals[0].batches] == pytest.approx([0.3])


def test_a_raport_as_nvidia_wrote_it(tmp_path: Path) -> None:
    """Their lists end with an empty list; `lr` and `val.it` are one list over all epochs."""
    times = [[0.5, 0.4], [0.4, 0.4], []]
    tree = {
        "run": {"arch": "resnet50", "batch_size": 32, "world_size": 2},
        "epoch": {"ep": [0, 1], "train.loss": [6.5, 6.0], "val.top1": [1.0, 2.0], "val.total_ips": [100.0, 110.0]},
        "iter": {
            "it": [[1, 2], [1, 2]],
            "train.loss": [[7.0, 6.0], [6.1, 5.9], []],
            "train.data_time": [[0.1, 0.1], [0.1, 0.1], []],
            "train.compute_time": times,
            "train.compute_ips": [[128.0, 160.0], [160.0, 160.0], []],
            "lr": [[0.1, 0.2, 0.3, 0.4]],
            "val.it": [[1, 2, 1]],
            "val.compute_time": [[0.2, 0.3], [0.4], []],
            "val.data_time": [[0.0, 0.0], [0.0], []],
            "val.compute_ips": [[320.0, 213.3], [160.0], []],
        },
        "event": {},
    }
    (tmp_path / "raport.json").write_text(json.dumps(tree))
    (run,) = open_logs(tmp_path / "raport.json")
    assert [(s.epoch, s.step, s.loss, s.lr) for s in run.steps] == [
        *((0, 1, 7.0, 0.1), (0, 2, 6.0, 0.2)),
        *((1, 1, 6.1, 0.3), (1, 2, 5.9, 0.4)),
    ]
    assert [[(b.step, b.seconds) for b in e.batches] for e in run.evals] == [[(1, 0.2), (2, 0.3)], [(1, 0.4)]]
    assert [e.speed["total_ips"] for e in run.evals] == [100.0, 110.0]


def test_an_inference_raport_can_be_compared(tmp_path: Path) -> None:
    """It was "records no steps": its times are those of validation."""
    iterations = {"val.it": [[1, 2]], "val.data_time": [[0.1, 0.1]], "val.compute_time": [[0.4, 0.4]]}
    tree = {"run": {"batch_size": 64, "world_size": 1}, "epoch": {"ep": [0]}, "iter": iterations, "event": {}}
    (tmp_path / "raport.json").write_text(json.dumps(tree))
    (run,) = open_logs(tmp_path / "raport.json")
    assert run.kind == work_of(run).values["kind"] == "infer"
    assert trace_of(run).window.samples_per_s == pytest.approx(128)


def test_the_real_stream_keeps_the_speed_of_validation(real_data: Callable[[str], Path]) -> None:
    (run,) = open_logs(real_data("dllogger") / "raport.json")
    assert (run.devices, len(run.evals), run.steps[1].samples) == (8, 250, 1024)
    assert not run.steps[0].steady  # the first print has 0.318 s where the others have 0.13
    last = run.evals[-1]
    assert last.values["top1"] == pytest.approx(77.531, abs=0.0005)
    assert last.speed["total_ips"] == pytest.approx(19319.56, abs=0.01)
    assert last.speed["compute_latency_at95"] == pytest.approx(0.053875, abs=1e-6)
    assert {"compute_ips", "data_time", "compute_latency", "compute_latency_at99"} <= set(last.speed)


def test_a_broken_line_is_counted(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text(
        'DLLL {"step": "PARAMETER", "data": {"batch_size": 8, "world_size": 2}}\n'
        'DLLL {"step": [0, 1], "data": {"train.data_time": 0.1, "train.comp'
    )
    (run,) = open_logs(log)
    assert "1 broken line" in run.notes[0]
    with pytest.raises(ConfigError, match="no steps"):
        trace_of(run)
