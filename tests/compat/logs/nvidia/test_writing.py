"""NVIDIA's formats: every key of theirs, aligned by iteration; what is written is read again."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.lab.logs.conftest import TIMES
from tests.report.bench_results import step_result, step_row, write_bench
from tests.report.run_dirs import write_run
from vernier.config import Config, Recipe, to_dict
from vernier.errors import ConfigError
from vernier.lab.logs.model import RunLog, StepRecord
from vernier.lab.logs.reading import open_logs, open_to_convert
from vernier.lab.logs.work import trace_of, work_of
from vernier.lab.logs.writing import convert
from vernier.lab.records.bench import BenchRequest, BenchResult, Round

STEP = ("epoch", "seconds", "wait_s", "samples", "steady", "loss", "lr", "top1", "top5")


def _raport(run: RunLog, folder: Path) -> dict[str, Any]:
    (path,) = convert(run, "raport", folder / "raport.json")
    tree: dict[str, Any] = json.loads(path.read_text())
    return tree


def _with_batches(run: RunLog) -> RunLog:
    """Three timed batches per evaluation, the last one half full."""
    batches = tuple(
        StepRecord(epoch=0, step=i, seconds=0.2 + 0.1 * i, wait_s=0.05, samples=20.0 / (1 + i // 2)) for i in range(3)
    )
    evals = [replace(e, batches=tuple(replace(b, epoch=e.epoch) for b in batches)) for e in run.evals]
    return replace(run, evals=tuple(evals))


@pytest.mark.parametrize("form", ["dllogger", "raport"])
def test_what_is_read_is_what_was_written(run: RunLog, tmp_path: Path, form: str) -> None:
    run = _with_batches(replace(run, steps=tuple(replace(s, top1=1.0 * s.epoch, top5=None) for s in run.steps)))
    (path,) = convert(run, form, tmp_path / "out.json")
    (back,) = open_logs(path)
    assert (back.format, back.kind) == (form, "train")
    for name in STEP:
        assert [getattr(s, name) for s in back.steps] == pytest.approx([getattr(s, name) for s in run.steps]), name
    assert [e.values for e in back.evals] == [e.values for e in run.evals]
    for mine, other in zip(run.evals, back.evals, strict=True):
        for name in ("seconds", "wait_s", "samples"):
            assert [getattr(b, name) for b in other.batches] == pytest.approx([getattr(b, name) for b in mine.batches])
    (again,) = convert(back, form, tmp_path / "again.json")
    (twice,) = open_logs(again)
    assert [e.speed for e in twice.evals] == [e.speed for e in back.evals]


@pytest.mark.parametrize("form", ["dllogger", "raport"])
def test_a_run_whose_learning_rate_is_text_is_refused(run: RunLog, tmp_path: Path, form: str) -> None:
    recipe: dict[str, Any] = {"global_batch": 32, "optim": {"name": "sgd", "lr": "fast", "lr_batch": 256}}
    with pytest.raises(ConfigError, match=r"config\.json is damaged: .*fast"):
        convert(replace(run, settings={"recipe": recipe, "machine": {}}), form, tmp_path / "out.json")


def test_a_run_that_ends_beyond_all_dates_is_refused(run: RunLog, tmp_path: Path) -> None:
    endless = replace(run, steps=tuple(replace(s, seconds=1e16) for s in run.steps))
    with pytest.raises(ConfigError, match=r"take .*e\+\d+ s: there is no date"):
        convert(endless, "dllogger", tmp_path / "out.json")


def test_every_list_of_a_raport_is_aligned_by_iteration_and_epoch(run: RunLog, tmp_path: Path) -> None:
    """Losses and rates stood beside other iterations than their own: there was one per report."""
    tree = _raport(_with_batches(run), tmp_path)
    assert set(tree) == {"run", "epoch", "iter", "event", "summary"}
    training = {f"train.{n}" for n in ("loss", "top1", "top5", "compute_ips", "total_ips", "data_time", "compute_time")}
    validation = {f"val.{n}" for n in ("compute_ips", "total_ips", "data_time", "compute_time", "compute_latency")}
    assert set(tree["iter"]) == {"it", "lr", "val.it", *training, *validation}
    for name, values in tree["iter"].items():
        counts = [3, 3, 3] if name.startswith("val.") else [100, 100, 100]
        assert [len(epoch) for epoch in values] == counts, name
    assert tree["iter"]["it"][1][:3] == [1, 2, 3]
    losses = tree["iter"]["train.loss"][0]
    assert [i for i, loss in enumerate(losses) if loss is not None] == list(range(9, 100, 10))
    assert tree["iter"]["train.top1"][0] == [None] * 100
    latencies = {f"val.compute_latency_at{q}" for q in (95, 99, 100)}
    assert {*training - {"train.top1", "train.top5"}, *validation, *latencies, "ep", "val.top1"} <= set(tree["epoch"])
    assert all(len(values) == 3 for values in tree["epoch"].values())
    assert tree["run"]["arch"] == "resnet50"
    assert (tree["run"]["batch_size"], tree["run"]["world_size"], tree["run"]["optimizer_batch_size"]) == (32, 1, 32)


def test_an_evaluation_without_timed_batches_has_its_rate_only(run: RunLog, tmp_path: Path) -> None:
    tree = _raport(run, tmp_path)
    assert tree["epoch"]["val.total_ips"] == [50.0, 50.0, 50.0]  # 50 images in a second
    assert "val.compute_time" not in tree["epoch"]
    assert not any(name.startswith("val.") for name in tree["iter"])


def test_dllogger_lines_have_nvidias_fields_and_numbers(run: RunLog, tmp_path: Path) -> None:
    (path,) = convert(_with_batches(run), "dllogger", tmp_path / "log.json")
    lines = path.read_text().splitlines()
    records = [json.loads(line.removeprefix("DLLL ")) for line in lines if line.startswith("DLLL ")]
    assert len(records) == len(lines)
    assert all(isinstance(r[k], str) for r in records for k in ("timestamp", "elapsedtime", "datetime"))
    assert records[0]["step"] == "PARAMETER"
    units = {r["metric"]: r["metadata"] for r in records if r["type"] == "METADATA"}
    assert units["train.total_ips"] == {"unit": "images/s", "format": ":.2f"}
    assert "train.lr" in units
    steps = [r["step"] for r in records if r["type"] == "LOG" and isinstance(r["step"], list)]
    assert [s for s in steps if len(s) == 1] == [[0], [1], [2]]
    assert [s for s in steps if len(s) == 2][98:102] == [[0, 99], [0, 100], [1, 1], [1, 2]]
    assert [s for s in steps if len(s) == 3][:4] == [[0, 100, 1], [0, 100, 2], [0, 100, 3], [1, 100, 1]]
    total = records[-1]
    assert total["step"] == []
    assert total["data"]["train.total_ips"] == pytest.approx(trace_of(run).window.samples_per_s)
    assert {"train.data_time", "train.compute_time", "val.total_ips", "val.compute_latency_at99"} <= set(total["data"])
    assert (total["data"]["val.top1"], total["data"]["val.top5"]) == (53.0, 83.0)
    assert total["data"]["val.loss"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("what", ["train", "infer"])
def test_a_benchmark_has_its_true_times_and_inference_is_validation(tmp_path: Path, what: Any) -> None:
    """Waits were 0 and inference was train.*; each round, a fresh process, is an epoch."""
    asked = BenchRequest(what=what, config=to_dict(Config(recipe=Recipe(name="small"))))
    row = step_row(8, 80.0)
    result = step_result((0.5, 0.25), images_per_step=8)
    result = replace(result, raw=replace(result.raw, wait_s=(0.1, 0.05)))
    rounds = tuple(Round(configuration=row.configuration, round=n, order=n, result=result) for n in range(2))
    folder = write_bench(tmp_path, BenchResult(asked=asked, rows=(row,), rounds=rounds))
    tree = _raport(open_to_convert(str(folder))[""], tmp_path)
    own, other, counter = ("val", "train", "val.it") if what == "infer" else ("train", "val", "it")
    assert tree["iter"][counter] == [[1, 2], [1, 2]]
    assert tree["iter"][f"{own}.data_time"] == [[0.1, 0.05]] * 2
    assert tree["iter"][f"{own}.compute_time"] == [pytest.approx([0.4, 0.2])] * 2
    assert tree["iter"][f"{own}.total_ips"] == [[16.0, 32.0]] * 2
    assert tree["iter"][f"{own}.compute_ips"] == [pytest.approx([20.0, 40.0])] * 2
    assert not any(name.startswith(f"{other}.") for name in (*tree["iter"], *tree["epoch"]))
    assert ("val.compute_latency_at95" in tree["epoch"]) == (what == "infer")
    (back,) = open_logs(tmp_path / "raport.json")
    assert (back.kind, len(back.steady_steps)) == (what, 4)  # a benchmark left its warm-up out already


def test_the_real_dllogger_stream_round_trips(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    (original,) = open_logs(real_data("dllogger") / "raport.json")
    (path,) = convert(original, "dllogger", tmp_path / "again.json")
    (back,) = open_logs(path)
    assert [s.seconds for s in back.steps] == pytest.approx([s.seconds for s in original.steps])
    assert [s.step for s in back.steps] == [s.step for s in original.steps]
    assert back.evals == original.evals


def test_the_batch_is_that_of_a_device_at_once_and_a_step_can_accumulate_several(tmp_path: Path) -> None:
    """`batch_size` was 16 where a device computed 4 at once."""
    path = write_run(tmp_path / "runs", "run", TIMES, batch=16, machine__process_batch=4)
    (log,) = open_logs(path)
    tree = _raport(log, tmp_path)
    assert (tree["run"]["batch_size"], tree["run"]["optimizer_batch_size"]) == (4, 16)
    (read,) = open_logs(tmp_path / "raport.json")
    assert work_of(read).values["batch"] == work_of(log).values.get("batch", 16)


def test_a_benchmark_names_the_batch_and_rate_that_ran_and_no_epochs(run: RunLog, tmp_path: Path) -> None:
    """It had the recipe's batch of 2048, its rate and its 90 epochs beside a batch of 8."""
    settings = {**run.settings, "recipe": {**run.settings["recipe"], "global_batch": 2048}}
    settings["recipe"]["optim"] = {**settings["recipe"]["optim"], "lr": 0.256, "lr_batch": 256}
    tree = _raport(replace(run, format="bench", settings=settings, evals=()), tmp_path)["run"]
    assert (tree["batch_size"], tree["optimizer_batch_size"], tree["lr"], tree["epochs"]) == (32, 32, 0.032, None)


def test_flags_of_nvidias_command_line_have_their_names_and_values(tmp_path: Path) -> None:
    changes = {"machine__precision": "fp16", "machine__loss_scaling": "static", "machine__loss_scale": 128.0}
    path = write_run(tmp_path / "runs", "run", TIMES, limits__log_every_steps=20, model__init="fan-out", **changes)
    (log,) = open_logs(path)
    tree = _raport(log, tmp_path)["run"]
    assert (tree["print_freq"], tree["model_config"], tree["static_loss_scale"]) == (20, "classic", 128.0)
    assert (tree["bn_weight_decay"], tree["prof"], tree["workspace"]) == (False, -1, str(path.parent))
    (read,) = open_logs(tmp_path / "raport.json")
    assert not any("printed iterations" in note for note in read.notes)
