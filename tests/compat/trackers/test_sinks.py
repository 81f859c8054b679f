"""What trackers get of a run: read back with their own readers."""

import io
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.conftest import Done, only_run
from tests.report.plugins import Install, install
from tests.tiny_training import events_of
from vernier.compat.trackers import sinks as trackers
from vernier.records.events import EvalEvent, StartEvent, StepEvent
from vernier.records.what_ran import WhatRan
from vernier.store import RunDir

__all__ = ["install"]
Vernier = Callable[..., Done]


def _read(run: Path) -> Any:
    pytest.importorskip("tensorboard", reason="needs vernier[tensorboard]")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "images": 0})
    read.Reload()
    return read


def test_tensorboard_reads_the_figures_of_the_run(tiny: list[str], vernier_here: Vernier, tmp_path: Path) -> None:
    done = vernier_here("train", *tiny, "--epochs", "2", "--set", "limits.log_every_steps=5")
    assert done.code == 0, done.err
    run = only_run(tmp_path / "runs")
    read, directory = _read(run), RunDir(run)
    losses = [(e.step, e.loss) for e in events_of(directory, StepEvent)]
    assert [(s.step, s.value) for s in read.Scalars("train/loss")] == [(s, pytest.approx(v)) for s, v in losses]
    top1 = [(e.step, e.figures["top1"]) for e in events_of(directory, EvalEvent)]
    assert [(s.step, s.value) for s in read.Scalars("val/top1")] == [(s, pytest.approx(v)) for s, v in top1]
    assert {"train/lr", "train/images_per_s_total", "train/data_wait_s", "val/loss"} <= set(read.Tags()["scalars"])
    (pictured,) = read.Images("train/images")
    with Image.open(io.BytesIO(pictured.encoded_image_string)) as sheet:
        assert sheet.size == (128, 128)
        assert len(np.unique(np.asarray(sheet))) > 50
    settings = read.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"recipe.optim.lr" in settings
    assert b"train resnet8-small" in settings


def test_trackers_mark_a_smoke_run(vernier_here: Vernier, shapes: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    assert vernier_here("train", "shapes-quick", "--smoke", "--data", str(shapes), "--out", str(out)).code == 0
    run = only_run(out)
    assert "-smoke-" in run.name
    settings = _read(run).SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"SMOKE RUN" in settings
    assert b"ran.smoke" in settings


def test_wandb_and_mlflow_get_a_tag_and_the_line_libraries_faked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: dict[str, dict[str, Any]] = {}

    def call(name: str) -> Callable[..., None]:
        return lambda *_, **given: calls.setdefault(name, given) and None

    wandb = SimpleNamespace(Image=None, Settings=lambda **given: given, init=call("wandb"))
    mlflow = SimpleNamespace(set_experiment=call("name"), start_run=call("mlflow"), log_params=call("params"))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    ran = WhatRan(
        kind="train", network="x", parameters=1, gmac=1.0, image_px=8, classes=2, batch_per_device=4, smoke=True
    )
    for start in (StartEvent(ran=ran), StartEvent(ran=replace(ran, smoke=False)), StartEvent()):
        calls.clear()
        trackers.WandB(RunDir(tmp_path), start, {})
        trackers.MLflow(RunDir(tmp_path), start, {})
        marked = bool(start.ran and start.ran.smoke)
        assert calls["wandb"]["tags"] == (["smoke"] if marked else None)
        assert calls["wandb"]["notes"] == (start.ran.line() if start.ran else None)
        assert calls["mlflow"]["tags"].get("vernier.ran.smoke") == (
            {True: "yes", False: "no"}[marked] if start.ran else None
        )


def test_a_resumed_run_has_every_step_once(tiny: list[str], vernier_here: Vernier, tmp_path: Path) -> None:
    fixed = [*tiny, "--set", "limits.log_every_steps=1", "--set", "checkpoint.every_steps=4"]
    assert vernier_here("train", *fixed, "--max-steps", "7").code == 0
    run = only_run(tmp_path / "runs")
    for doomed in ("step-00000007",):  # as if the process had died after step 7 and before its checkpoint
        for file in (run / "checkpoints" / doomed).iterdir():
            file.unlink()
        (run / "checkpoints" / doomed).rmdir()
    done = vernier_here("train", *fixed, "--max-steps", "9", "--resume", str(run))
    assert done.code == 0, done.err
    assert "from step 4" in done.err
    assert [s.step for s in _read(run).Scalars("train/loss")] == list(range(1, 10))
    assert len(_read(run).Images("train/images")) == 1


def test_it_can_be_left_out(tiny: list[str], vernier_here: Vernier, tmp_path: Path) -> None:
    assert vernier_here("train", *tiny, "--max-steps", "1", "--no-tensorboard", "--train-only").code == 0
    assert not (only_run(tmp_path / "runs") / "tensorboard").exists()


def test_mlflow_keeps_a_run_in_a_local_store(
    tiny: list[str], vernier_here: Vernier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="needs vernier[mlflow]")
    store = f"file://{tmp_path / 'store'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    done = vernier_here("train", *tiny, "--max-steps", "3", "--track", "mlflow")
    assert done.code == 0, done.err
    from mlflow.tracking import MlflowClient

    client = MlflowClient(store)
    (experiment,) = client.search_experiments(filter_string="name = 'vernier'")
    (record,) = client.search_runs([experiment.experiment_id])
    run = only_run(tmp_path / "runs")
    assert record.info.run_name == run.name
    assert record.info.status == "FINISHED"
    assert record.data.params["recipe.global_batch"] == "16"
    result = json.loads((run / "run.json").read_text())["summary"]["result"]
    assert record.data.metrics["val/top1"] == pytest.approx(result["top1"])
    assert [a.path for a in client.list_artifacts(record.info.run_id)] == ["train-images.png"]


def test_wandb_keeps_a_run_offline(
    tiny: list[str], vernier_here: Vernier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="needs vernier[wandb]")
    monkeypatch.setenv("WANDB_MODE", "offline")
    done = vernier_here("train", *tiny, "--max-steps", "3", "--track", "wandb")
    assert done.code == 0, done.err
    run = only_run(tmp_path / "runs")
    (record,) = run.glob("wandb/offline-run-*/run-*.wandb")
    words = [run.name.encode(), b"train/loss", b"val/top1"]
    deadline_s = time.monotonic() + 120  # W&B's own process writes the file, on a busy machine after `finish`
    while missing := [word for word in words if word not in record.read_bytes()]:
        assert time.monotonic() < deadline_s, missing
        time.sleep(0.1)


def test_a_tracker_that_cannot_start_fails_the_run_with_a_way_out(
    tiny: list[str], vernier_here: Vernier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="needs vernier[mlflow]")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://x")
    done = vernier_here("train", *tiny, "--track", "mlflow")
    assert done.code == 1
    assert "Set MLFLOW_TRACKING_URI" in done.err
    assert "Traceback" not in done.err
    assert RunDir(only_run(tmp_path / "runs")).status().status == "failed"


def test_what_is_not_installed_is_named_with_the_command_absence_faked(
    tiny: list[str], vernier_here: Vernier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "installed_version", lambda package: None)
    done = vernier_here("train", *tiny, "--track", "wandb")
    assert done.code == 2
    assert "pip install 'vernier[wandb]'" in done.err
    assert not (tmp_path / "runs").exists()
    assert vernier_here("train", *tiny, "--max-steps", "1", "--train-only").code == 0
    assert not (only_run(tmp_path / "runs") / "tensorboard").exists()


class Failing(trackers.TensorBoard):
    """A sink whose server goes away."""

    def scalars(self, step: int, values: dict[str, float]) -> None:
        raise ConnectionError("gone")


def test_a_tracker_that_fails_later_is_dropped(
    tiny: list[str], vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="needs vernier[tensorboard]")
    monkeypatch.setattr(trackers, "kinds", lambda: {"tensorboard": trackers.TrackerKind(sink=Failing)})
    done = vernier_here("train", *tiny, "--epochs", "1", "--set", "limits.log_every_steps=2")
    assert done.code == 0, done.err
    assert done.err.count("training continues: ConnectionError: gone") == 1


def test_grey_images_and_short_rows_make_a_sheet() -> None:
    sheet = trackers.grid(np.full((5, 8, 6, 1), 200, dtype=np.uint8))
    assert sheet.size == (24, 16)
    assert sheet.getpixel((0, 8)) == 200
    assert sheet.getpixel((6, 8)) == 0


def test_an_outside_package_adds_a_tracker_and_an_unknown_one_lists_all(
    tiny: list[str], vernier_here: Vernier, install: Install, tmp_path: Path
) -> None:
    source = (
        "from vernier.compat.trackers.sinks import TrackerKind\n"
        "class Sink:\n"
        "    def __init__(self, run, start, settings): self.file = run.path / 'ledger.txt'\n"
        "    def scalars(self, step, values): self.file.open('a').write(f'{step} {sorted(values)[0]}\\n')\n"
        "    def image(self, step, tag, picture): pass\n"
        "    def forget_from(self, step): pass\n"
        "    def close(self, status): self.file.open('a').write(status)\n"
        "KIND = TrackerKind(sink=Sink)\n"
    )
    install("ledger", source, trackers="KIND")
    done = vernier_here("train", *tiny, "--max-steps", "2", "--train-only", "--track", "ledger", "--no-tensorboard")
    assert done.code == 0, done.err
    (file,) = (tmp_path / "runs").glob("*/ledger.txt")
    assert file.read_text().endswith("finished")
    refused = vernier_here("train", *tiny, "--track", "no-such")
    assert refused.code == 2
    assert "--track no-such is not known. Choose from ledger, mlflow, tensorboard, wandb." in refused.err
