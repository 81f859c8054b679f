"""Logs of other systems, as `vernier report`, `compare` and `convert` read them."""

import functools
import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

from tests.report.nvprof_trace import NVPROF
from vernier.lab.logs.reading import open_side, open_to_convert
from vernier.lab.logs.writing import convert_all
from vernier.lab.page.logs import times_to_train
from vernier.lab.report.compare import compare_runs, comparison_lines
from vernier.report.page.build import build
from vernier.report.page.collect import collect
from vernier.report.page.subjects import Subject

from .base import Files, Target, attempt

FORMS = ("raport", "dllogger", "mllog", "study")


def _nvidia() -> dict[str, str]:
    parameters = {"batch_size": 32, "world_size": 1, "print_freq": 1, "arch": "resnet50"}
    steps = [{"train.compute_time": 0.1, "train.data_time": 0.01, "train.compute_ips": 320.0, "train.loss": 6.9}] * 4
    lines = [{"step": "PARAMETER", "data": parameters, "datetime": "2024-01-02 03:04:05.678901"}]
    lines += [{"step": [0, i], "data": step} for i, step in enumerate(steps)]
    lines += [{"step": [0], "data": {"val.top1": 75.0, "val.top5": 92.0, "val.total_ips": 900.0}}]
    text = (
        "DLL 2024-01-02 03:04:05.678901 - PARAMETER batch_size : 32 world_size : 1 print_freq : 1\n"
        "DLL 2024-01-02 03:04:06.678901 - Epoch: 0 Iteration: 1  train.loss : 6.9 train.total_ips : 700.1 images/s\n"
        "DLL 2024-01-02 03:04:07.678901 - Epoch: 0 Iteration: 2  train.loss : 6.8 train.total_ips : 701.1 images/s\n"
        "DLL 2024-01-02 03:04:08.678901 - (0, 3) train.loss : 6.7 train.total_ips : 699.1 images/s\n"
        "DLL 2024-01-02 03:04:09.678901 - Epoch: 0  val.top1 : 75.1 val.top5 : 92.1 val.total_ips : 700\n"
    )
    console = (
        "Epoch: 0/90  Iteration: 1/5004;\ttrain.loss : 6.9\ttrain.total_ips : 700.1\n"
        "Epoch: 0/90  Iteration: 2/5004;\ttrain.loss : 6.8\ttrain.total_ips : 701.1\n"
        "Summary Epoch: 0/90;\tval.top1 : 75.1\tval.top5 : 92.1\n"
    )
    raport = {
        "run": parameters,
        "iter": {
            "it": [[1, 2, 3], [4, 5, 6]],
            "train.compute_time": [[0.1, 0.1, 0.1], [0.1, 0.1, 0.1]],
            "train.data_time": [[0.01, 0.01, 0.01], [0.01, 0.01, 0.01]],
            "train.compute_ips": [[320.0, 320.0, 320.0], [320.0, 320.0, 320.0]],
            "train.loss": [[6.9, 6.8, 6.7], [6.6, 6.5, 6.4]],
            "lr": [[0.1, 0.1, 0.1, 0.1, 0.1, 0.1]],
            "val.it": [[1, 2]],
            "val.compute_time": [[0.1], [0.1]],
            "val.data_time": [[0.0], [0.0]],
        },
        "epoch": {"ep": [0, 1], "val.top1": [10.0, 20.0], "val.top5": [30.0, 40.0], "val.total_ips": [900.0, 900.0]},
    }
    return {
        "dllogger-json": "\n".join(f"DLLL {json.dumps(line)}" for line in lines),
        "dllogger-text": text,
        "console-2019": console,
        "raport": json.dumps(raport),
    }


def _mlperf() -> dict[str, str]:
    def line(time_ms: int, key: str, value: object = None, **metadata: object) -> str:
        kind = (
            "INTERVAL_START" if key.endswith("start") else "INTERVAL_END" if key.endswith("stop") else "POINT_IN_TIME"
        )
        return ":::MLLOG " + json.dumps(
            {"namespace": "", "time_ms": time_ms, "event_type": kind, "key": key, "value": value, "metadata": metadata}
        )

    epochs = [
        text
        for n in range(1, 4)
        for text in (
            line(1000 * n, "epoch_start", epoch_num=n),
            line(1000 * n + 900, "epoch_stop", epoch_num=n),
            line(1000 * n + 950, "eval_accuracy", 0.5 + n / 10, epoch_num=n),
        )
    ]
    head = [
        line(0, k, v)
        for k, v in (("submission_benchmark", "resnet"), ("global_batch_size", 32), ("train_samples", 1000))
    ]
    now = [
        *head,
        line(10, "init_start"),
        line(20, "init_stop"),
        line(30, "run_start"),
        *epochs,
        line(9999, "run_stop", status="success"),
    ]
    return {"mllog": "\n".join(now)}


def tables() -> dict[str, str]:
    """Files without step times of a run, which only a study reads."""
    durations = "\n".join(f"Iteration Duration {i} {d} : 0.5{i}" for i in range(4) for d in range(2))
    return {"nvprof": NVPROF, "iterations": durations}


def logs() -> dict[str, Files]:
    """One file per form, with the ending that people give it."""
    jsonl = ("dllogger-json", "mllog")
    texts = {**_nvidia(), **_mlperf(), **tables()}
    endings = {name: "jsonl" if name in jsonl else "json" if name == "raport" else "log" for name in texts}
    return {name: {f"log.{endings[name]}": text.encode()} for name, text in texts.items()}


def read_all_ways(path: Path, scratch: Path, *others: Callable[[Path], object]) -> None:
    """The page, and one of: a comparison with itself, a conversion, `others`. A refusal of one is not the end."""
    checksum = zlib.crc32(path.name.encode()) + sum(
        p.stat().st_size for p in (path.rglob("*") if path.is_dir() else [path])
    )
    ways = (_compare, *(functools.partial(convert_to, form=form, scratch=scratch) for form in FORMS), *others)
    attempt(lambda: _report(path))
    attempt(lambda: ways[checksum % len(ways)](path))


def _report(path: Path) -> None:
    subjects = collect([path], path.parent)
    render(subjects)
    times_to_train(subjects)


def render(subjects: list[Subject]) -> None:
    """The page about the subjects."""
    text = build(subjects).html()
    assert "could not be made" not in text
    text.encode("utf-8")


def _compare(path: Path) -> None:
    comparison_lines(compare_runs(open_side([str(path)]), open_side([str(path)]), single_runs=True))


def convert_to(path: Path, form: str, scratch: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    convert_all(open_to_convert(str(path)), form, scratch / "out")


def _read(folder: Path) -> None:
    read_all_ways(next(p for p in folder.iterdir() if p.is_file()), folder / "scratch")


TARGETS = (Target("logs", logs, _read, text=True),)
