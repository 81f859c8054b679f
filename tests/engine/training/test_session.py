"""A whole run in this process, on real JPEGs: its files and events, and how it ends."""

import errno
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import only_run
from tests.engine.inference.loading import load_trained
from tests.full_disk import largest_file
from tests.lab.telemetry.nvidia_host import NvmlLibrary, install_cuda, install_nvml, uuid_of, watts_of
from tests.tiny_training import events_of, run_training, tiny_config
from vernier.config import Augment, Ema, Eval, Limits, Loss, Model, Schedule, optimizers, override
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.devices import resolve
from vernier.devices.cpu import Cpu
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.engine.training import session
from vernier.engine.training.checkpoints.contents import read_state
from vernier.engine.training.checkpoints.resume import ResumePoint, _find_resume_point
from vernier.engine.training.session import train
from vernier.engine.training.step import TrainStep
from vernier.errors import ConfigError, RunFailed
from vernier.optim.kinds.muon import Muon
from vernier.optim.kinds.sgd import Sgd
from vernier.records.codec import encode
from vernier.records.events import EndEvent, EpochEvent, EvalEvent, Event, StartEvent, StepEvent, WarningEvent
from vernier.signals import StopRequested
from vernier.store import RunDir, durable
from vernier.store.durable import sha256_of_file


def test_a_run_leaves_its_directory_with_every_file_and_event(shapes: Path, tmp_path: Path) -> None:
    outcome = run_training(tiny_config(shapes, ema=Ema(decay=0.9)), tmp_path)
    run = RunDir.open(only_run(tmp_path))
    assert outcome.status == run.status().status == "finished"
    assert {p.name for p in run.path.iterdir()} == {
        "config.json",
        "environment.json",
        "events.jsonl",
        "telemetry.jsonl",
        "run.json",
        "run.lock",
        "train_images.json",
        "checkpoints",
        "predictions",
    }
    images = run.read_train_images()
    assert (images.width, images.height, len(images.images)) == (32, 32, 16)
    assert {image.class_name for image in images.images} <= set(load_trained(run.path).classes)
    assert (run.path / "train_images.json").stat().st_size < 100_000
    files = {p.name for p in run.checkpoints.committed()[-1].path.iterdir()}
    assert files == {"model.safetensors", "optimizer.safetensors", "ema.safetensors", "state.json", "manifest.json"}
    order = [type(e) for e in run.history() if isinstance(e, StartEvent | EvalEvent | EndEvent | EpochEvent)]
    assert order == [StartEvent, EpochEvent, EvalEvent, EpochEvent, EvalEvent, EndEvent]
    steps = events_of(run, StepEvent)
    assert sum(e.samples for e in steps) == 20 * 16
    assert sum(len(e.step_s) for e in steps) == 20


def test_a_filled_last_batch_is_one_more_step_per_epoch_and_resumes_within_it(shapes: Path, tmp_path: Path) -> None:
    """160 images at 48 per step: the fourth step has the last 16 and 32 of that epoch once more."""
    config = tiny_config(shapes, global_batch=48)
    config = override(override(config, "recipe.data.last_batch", "fill"), "recipe.eval.every_epochs", 0.0)
    whole = run_training(config, tmp_path / "whole")
    steps = events_of(whole.run, StepEvent)
    assert sum(e.samples for e in steps) == 2 * 4 * 48
    assert [e.epoch for e in events_of(whole.run, EpochEvent)] == [1, 2]
    cut = run_training(override(config, "limits.max_steps", 3), tmp_path / "cut")
    resumed = train(config, tmp_path / "cut", resume=_find_resume_point(cut.run, config, print))
    assert resumed.summary.step == 8
    first, second = (load_trained(outcome.run.path).model.state_dict() for outcome in (whole, resumed))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_summary_is_the_same_in_the_outcome_the_end_event_and_run_json(shapes: Path, tmp_path: Path) -> None:
    outcome = run_training(tiny_config(shapes), tmp_path)
    summary, (end,) = outcome.summary, events_of(outcome.run, EndEvent)
    assert outcome.run.status().summary == summary
    assert {name: value for name, value in encode(end).items() if name not in ("status", "time")} == encode(summary)
    assert summary.result is not None
    assert summary.result.samples == 50
    assert summary.training is not None
    assert (summary.training.steps_measured or 0) + (summary.training.warmup_steps_excluded or 0) == 20


def test_the_same_seed_gives_the_same_weights_and_another_does_not(shapes: Path, tmp_path: Path) -> None:
    def weights(seed: int, name: str, workers: int) -> bytes:
        config = tiny_config(shapes, seed=seed, schedule=Schedule(epochs=1.0), loss=Loss(label_smoothing=0.1))
        config = replace(config, machine=replace(config.machine, workers=workers))
        return (
            run_training(config, tmp_path / name).run.checkpoints.committed()[-1].path / "model.safetensors"
        ).read_bytes()

    assert weights(1, "a", 1) == weights(1, "b", 3)
    assert weights(1, "c", 1) != weights(2, "d", 1)


@pytest.fixture
def _reset_determinism() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_reset_determinism")
def test_deterministic_runs_repeat_bit_for_bit_and_fail_on_an_operation_that_cannot(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(shapes, schedule=Schedule(epochs=0.5))
    config = replace(config, machine=replace(config.machine, deterministic=True))
    states = [load_trained(run_training(config, tmp_path / name).run.path).model.state_dict() for name in "ab"]
    assert torch.are_deterministic_algorithms_enabled()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError(
            "frobnicate does not have a deterministic implementation, but you set it. You can turn it off"
        )

    monkeypatch.setattr("vernier.engine.training.step.TrainStep.__call__", fail)
    with pytest.raises(RunFailed, match="frobnicate") as error:
        run_training(config, tmp_path / "c")
    assert error.value.given == {"machine.deterministic": True, "machine.reduction": "exact"}
    assert error.value.works == [("machine.device", "cpu")]
    assert RunDir.open(only_run(tmp_path / "c")).status().status == "failed"


def test_every_report_has_a_finite_loss_and_the_size_and_augmentation_of_the_evaluation_are_recorded(
    shapes: Path, tmp_path: Path
) -> None:
    """Elsewhere the training loss was always null, and neither test size nor test-time augmentation was recorded."""
    run = run_training(replace(tiny_config(shapes), limits=Limits(max_steps=6)), tmp_path).run
    assert all(math.isfinite(event.loss) for event in events_of(run, StepEvent))
    assert run.read_config()["recipe"]["data"]["eval_px"] == 32
    assert [event.flip_tta for event in events_of(run, EvalEvent)] == [False]


def test_a_run_cut_in_the_middle_of_an_epoch_trains_the_rest_of_it_when_resumed(shapes: Path, tmp_path: Path) -> None:
    """Elsewhere the next epoch's number was saved, and the rest of the epoch was never seen."""
    config = tiny_config(shapes, eval=Eval(every_epochs=0))
    run = run_training(replace(config, limits=Limits(max_steps=4)), tmp_path).run
    assert run.checkpoints.committed()[-1].step == 4
    longer = replace(config, limits=Limits(max_steps=12))
    train(longer, tmp_path, _find_resume_point(run, longer, print))
    assert [event.resumed_from for event in events_of(run, StartEvent)] == [None, 4]
    assert sum(len(event.step_s) for event in events_of(run, StepEvent)) == 12


def test_a_run_is_not_resumed_on_changed_data(tmp_path: Path) -> None:
    data = make_shapes(tmp_path / "shapes", ShapesSpec(train=40, val=20, size_px=32))
    config = replace(tiny_config(data), limits=Limits(max_steps=1))
    run = run_training(config, tmp_path / "runs").run
    next((data / "train").rglob("*.jpg")).unlink()
    with pytest.raises(ConfigError, match=r"data has changed since .* cannot be resumed exactly"):
        train(config, tmp_path / "runs", _find_resume_point(run, config, print))


def test_other_threads_and_versions_are_named_when_a_run_resumes(tmp_path: Path) -> None:
    data = make_shapes(tmp_path / "shapes", ShapesSpec(train=40, val=20, size_px=32))
    config = override(replace(tiny_config(data), limits=Limits(max_steps=1)), "machine.threads", 1)
    run = run_training(config, tmp_path / "runs").run
    same = replace(config, limits=Limits(max_steps=2))
    train(same, tmp_path / "runs", _find_resume_point(run, same, print))
    assert not [event for event in events_of(run, WarningEvent) if "rounded differently" in event.message]
    environment = run.read_environment()
    run.write_environment({**environment, "versions": {**environment["versions"], "torch": "2.0"}})
    other = override(replace(config, limits=Limits(max_steps=3)), "machine.threads", 2)
    train(other, tmp_path / "runs", _find_resume_point(run, other, print))
    (warning,) = (event for event in events_of(run, WarningEvent) if "rounded differently" in event.message)
    assert "torch was 2.0" in warning.message
    assert "threads was 1, is 2" in warning.message


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_run_is_not_resumed_on_changed_images_unless_told(tmp_path: Path, split: str) -> None:
    data = make_shapes(tmp_path / "shapes", ShapesSpec(train=40, val=20, size_px=32))
    config = replace(tiny_config(data), limits=Limits(max_steps=1))
    run = run_training(config, tmp_path / "runs").run
    one, another = sorted((data / split).rglob("*.jpg"))[:2]
    one.write_bytes(another.read_bytes())
    longer = replace(config, limits=Limits(max_steps=2))
    with pytest.raises(ConfigError, match=f"The {split} images of .* have changed since the checkpoint") as error:
        train(longer, tmp_path / "runs", _find_resume_point(run, longer, print))
    assert error.value.works == [("resume", "never"), ("limits.changed_data", "accept")]
    told = override(longer, "limits.changed_data", "accept")
    train(told, tmp_path / "runs", _find_resume_point(run, told, print))
    messages = [event.message for event in events_of(run, WarningEvent)]
    assert sum("have changed since the checkpoint" in message for message in messages) == 1
    again = replace(config, limits=Limits(max_steps=3))  # the checkpoint now records the changed images
    train(again, tmp_path / "runs", _find_resume_point(run, again, print))


def test_a_run_of_an_earlier_version_which_recorded_no_content_is_resumed(tmp_path: Path) -> None:
    data = make_shapes(tmp_path / "shapes", ShapesSpec(train=40, val=20, size_px=32))
    config = replace(tiny_config(data), limits=Limits(max_steps=1))
    run = run_training(config, tmp_path / "runs").run
    (checkpoint,) = run.checkpoints.committed()
    state = json.loads((checkpoint.path / "state.json").read_text())
    assert set(state["progress"].pop("data")) == {"train", "val"}
    (checkpoint.path / "state.json").write_text(json.dumps(state))
    entry = {"bytes": len(json.dumps(state)), "sha256": sha256_of_file(checkpoint.path / "state.json")}
    manifest = json.loads((checkpoint.path / "manifest.json").read_text())
    manifest["files"]["state.json"] = entry
    (checkpoint.path / "manifest.json").write_text(json.dumps(manifest))
    longer = replace(config, limits=Limits(max_steps=2))
    assert train(longer, tmp_path / "runs", _find_resume_point(run, longer, print)).status == "finished"
    assert read_state(run.checkpoints.committed()[-1]).progress.data


def test_the_sensors_of_a_run_are_those_of_its_processes_on_this_host(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm may give each process one GPU, which all of them see as the first; other hosts have GPUs too."""
    pytest.importorskip("pynvml")
    install_nvml(NvmlLibrary(), monkeypatch.setattr)
    install_cuda(monkeypatch.setattr)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    mine = World(Topology()).process_info(resolve("cuda"), 1)
    neighbour = replace(mine, rank=1, uuid=uuid_of(6))
    elsewhere = replace(mine, rank=2, host="another", uuid=uuid_of(1))
    monkeypatch.setattr(session, "_all_processes", lambda job: [mine, neighbour, elsewhere])
    config = replace(tiny_config(shapes), limits=Limits(max_steps=3))
    config = replace(config, machine=replace(config.machine, device="cuda", telemetry_hz=200))
    run_training(config, tmp_path)
    records = RunDir.open(only_run(tmp_path)).read_telemetry()
    used = [device["uuid"] for device in records[0]["devices"] if device["kind"] == "cuda"]
    assert used == [uuid_of(4), uuid_of(6)]
    powers = {r["power_w"] for r in records if r.get("device_kind") == "cuda" and "power_w" in r}
    assert powers == {watts_of(4), watts_of(6)}


_WITHOUT_FLOAT64 = """
import json, sys
from pathlib import Path
import rgpu.tensor, torch
from tests.tiny_training import run_training, tiny_config, tiny_detector_config
from vernier.config import Augment, Ema, Model, override
from vernier.optim.kinds.sgd import Sgd
from vernier.optim.kinds.muon import Muon
from vernier.optim.kinds.sgd import Sgd
from vernier.engine.inference.evaluate import evaluate_trained
from vernier.engine.inference.predict import predict
from tests.engine.inference.loading import load_trained

new = rgpu.tensor.RemoteTensor.__new__

def without_float64(cls, meta, *arguments, **more):
    if meta.dtype == torch.float64:
        raise TypeError("this device has no float64")
    return new(cls, meta, *arguments, **more)

rgpu.tensor.RemoteTensor.__new__ = without_float64
try:
    torch.ones(2, device="rgpu").double()
except TypeError:
    pass
else:
    raise SystemExit("float64 is not refused")
shapes, boxes, out = map(Path, sys.argv[1:])
classifier = tiny_config(
    shapes,
    model=Model(name="resnet8-small", width=8, drop_path=0.2),
    augment=Augment(crop="pad", mixup=0.2),
    optim=Sgd(lr=0.02, clip_norm=1.0),
    ema=Ema(decay=0.9),
)
results = []
for config, images in ((classifier, shapes), (tiny_detector_config(boxes), boxes)):
    for name, value in {"machine.device": "rgpu", "limits.max_steps": 2}.items():
        config = override(config, name, value)
    run = run_training(config, out / config.recipe.name).run
    trained = load_trained(run.path)
    report = evaluate_trained(trained)
    first = next(predict(trained, sorted(images.rglob("*.jpg"))[:3]))[0]
    results.append([report.samples, trained.device.name, len(first.predictions)])
print(json.dumps(results))
"""


@pytest.mark.slow
def test_whole_runs_need_no_float64_on_the_device(shapes: Path, tmp_path: Path, on_rgpu: Callable[..., Any]) -> None:
    """Metal has none: training, evaluation, checkpoints and prediction of a classifier and a detector."""
    boxes = make_shapes(tmp_path / "boxes", ShapesSpec(kind="detect", train=16, val=8, size_px=96, seed=5))
    (classified, on, classes), (detected, _, objects) = on_rgpu(_WITHOUT_FLOAT64, shapes, boxes, tmp_path)
    assert (classified, on, classes, detected) == (50, "rgpu", 5, 8)
    assert objects > 0


def test_a_device_that_dies_is_named_and_the_run_can_be_resumed(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise ConnectionError("no answer from the driver")

    monkeypatch.setattr(TrainStep, "__call__", die)
    with pytest.raises(ConnectionError):
        run_training(tiny_config(shapes), tmp_path / "any-error")
    monkeypatch.setattr(Cpu, "is_lost", classmethod(lambda cls, error: isinstance(error, ConnectionError)))
    with pytest.raises(RunFailed, match=r"device cpu does not answer: no answer.*Run the same command"):
        run_training(tiny_config(shapes), tmp_path / "lost")
    assert RunDir.open(only_run(tmp_path / "lost")).status().status == "crashed"


def test_first_files_that_cannot_be_written_are_named_and_leave_no_run(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full for this file only: git, which is asked for the commit, would leave its lock behind."""
    write_config = RunDir.write_config

    def on_a_full_disk(run: RunDir, tree: dict[str, Any]) -> None:
        with largest_file(100):
            write_config(run, tree)

    monkeypatch.setattr(RunDir, "write_config", on_a_full_disk)
    with pytest.raises(RunFailed, match=r"Nothing was trained: .*config\.json could not be written"):
        run_training(tiny_config(shapes), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_summary_is_written_but_not_synced_is_finished_with_a_warning(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command would start a new run, so it must not be told to complete this one."""
    write_status, sync = RunDir.write_status, durable.sync_to_disk

    def whose_folder_is_not_synced(run: RunDir, status: str, **fields: Any) -> None:
        def fail_for_the_folder(path: Path) -> None:
            if path == run.path:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            sync(path)

        with monkeypatch.context() as failing:
            if status == "finished":
                failing.setattr(durable, "sync_to_disk", fail_for_the_folder)
            write_status(run, status, **fields)

    monkeypatch.setattr(RunDir, "write_status", whose_folder_is_not_synced)
    outcome = run_training(tiny_config(shapes), tmp_path)
    assert outcome.status == "finished"
    (warning,) = events_of(outcome.run, WarningEvent)
    assert warning.message.startswith(f"{outcome.run.path} could not be synced: Input/output error")


def test_logs_that_cannot_be_read_do_not_end_a_run(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(run: RunDir, rank: int = 0) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(run.path / "a log"))

    with monkeypatch.context() as failing:
        failing.setattr(RunDir, "history", fail)
        failing.setattr(RunDir, "read_telemetry", fail)
        outcome = run_training(tiny_config(shapes), tmp_path)
    assert outcome.status == "finished"
    assert outcome.summary.training is None
    messages = [event.message for event in events_of(outcome.run, WarningEvent)]
    assert (
        len(
            [
                m
                for m in messages
                if m.endswith("a log could not be read: Input/output error. The summary lacks what it holds.")
            ]
        )
        == 2
    )


class _StoppedTracker:
    """An observer during whose start event a signal comes, and which then writes what it has."""

    def __init__(self) -> None:
        self.run: Path | None = None
        self.could_write: bool | None = None

    def emit(self, event: Event) -> None:
        if isinstance(event, StartEvent):
            self.run = Path(event.run)
            raise StopRequested("SIGTERM")

    def progress(self, phase: str, done: int, total: int) -> None:
        pass

    def close(self) -> None:
        self.could_write = self.run is not None and self.run.exists()


def test_a_stop_before_the_first_step_closes_trackers_and_leaves_no_run(shapes: Path, tmp_path: Path) -> None:
    tracker = _StoppedTracker()
    with pytest.raises(StopRequested):
        train(tiny_config(shapes), tmp_path, observers=[tracker])
    assert tracker.could_write
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", ["finished", "failed"])
def test_a_stop_before_the_first_step_of_a_resumed_run_leaves_its_status(
    shapes: Path, tmp_path: Path, status: str
) -> None:
    config = tiny_config(shapes)
    run = run_training(config, tmp_path).run
    if status == "failed":
        run.write_status("failed", reason="the loss is nan", diverged=True)
    before = run.recorded_status()
    with pytest.raises(StopRequested):
        train(config, tmp_path, _find_resume_point(run, config, print), observers=[_StoppedTracker()])
    assert run.recorded_status() == before
    assert before.diverged if status == "failed" else before.summary


class _DiskFullAtTheEnd(ExitStack):
    """An observer that lets the disk be full when the run is over."""

    def emit(self, event: Event) -> None:
        if isinstance(event, EndEvent):
            self.enter_context(largest_file(300))

    def progress(self, phase: str, done: int, total: int) -> None:
        pass


def test_a_last_file_that_cannot_be_written_is_named_and_the_run_is_completed_later(
    shapes: Path, tmp_path: Path
) -> None:
    config = tiny_config(shapes)
    with _DiskFullAtTheEnd() as full, pytest.raises(RunFailed, match=r"training is done, but .*run\.json could not be"):
        train(config, tmp_path, observers=[full])
    run = RunDir.open(only_run(tmp_path))
    assert run.status().status == "crashed"
    point = _find_resume_point(run, config, lambda _: None)
    assert train(config, tmp_path, point).status == "finished"
    assert run.status().status == "finished"
    assert sum(len(e.step_s) for e in events_of(run, StepEvent)) == 20


def test_logs_that_cannot_be_written_do_not_end_a_run(shapes: Path, tmp_path: Path) -> None:
    config = tiny_config(shapes)
    first = train(override(config, "limits.max_steps", 3), tmp_path)
    for name in ("events.jsonl", "telemetry.jsonl"):
        (first.run.path / name).unlink()
        (first.run.path / name).symlink_to(tmp_path / "no such folder" / name)
    point = _find_resume_point(first.run, config, lambda _: None)
    outcome = train(config, tmp_path, point)
    assert (outcome.status, outcome.summary.step) == ("finished", 20)


def test_a_time_limit_stops_with_a_checkpoint_and_the_rest_is_bit_for_bit_the_same(
    shapes: Path, tmp_path: Path
) -> None:
    """The process is older than a second, so every session trains as little as it may."""
    config = tiny_config(shapes)
    config = override(override(config, "limits.log_every_steps", 1), "limits.max_steps", 6)
    limited = override(config, "limits.max_time", "1s")
    whole = run_training(config, tmp_path / "whole")
    outcome = run_training(limited, tmp_path / "limited")
    steps = [outcome.summary.step or 0]
    assert outcome.status == "stopped"
    assert "stopped by limits.max_time = 1s: saved" in events_of(outcome.run, WarningEvent)[-1].message
    while outcome.status == "stopped":
        outcome = train(limited, tmp_path, _find_resume_point(outcome.run, limited, lambda _: None))
        steps.append(outcome.summary.step or 0)
    assert steps[:-1] == sorted({*steps[:-1]}), "every session gets on; the last one may only evaluate"
    files = [run.checkpoints.committed()[-1].path / "model.safetensors" for run in (whole.run, outcome.run)]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("name", optimizers())
def test_every_optimizer_resumes_bit_for_bit(shapes: Path, tmp_path: Path, name: str) -> None:
    """With accumulation, an average of the weights, mixed precision and, except for Muon, layer-wise rates."""
    more = {"bias_lr": 0.1, "head_lr": 0.05} if name == "muon" else {"layer_decay": 0.8}
    config = tiny_config(shapes, optim=optimizers()[name](lr=0.01, **more), ema=Ema(decay=0.9))
    config = replace(config, machine=replace(config.machine, accumulation=2, precision="bf16", allow_slow=True))
    longer = override(config, "limits.max_steps", 6)
    whole = run_training(longer, tmp_path / "whole")
    cut = run_training(override(config, "limits.max_steps", 3), tmp_path / "cut")
    resumed = train(longer, tmp_path, _find_resume_point(cut.run, longer, lambda _: None))
    for file in ("model", "optimizer", "ema"):
        paths = [run.checkpoints.committed()[-1].path / f"{file}.safetensors" for run in (whole.run, resumed.run)]
        assert paths[0].read_bytes() == paths[1].read_bytes(), file


@pytest.mark.parametrize(
    ("recipe", "machine", "note"),
    [
        # Also across the epoch in which images grow. The whitening filters are not computed again: they are restored.
        (
            {
                "model": Model(name="airbench94", width=8),
                "augment": Augment(
                    crop="pad", border="reflect", flip_rule="alternate", start_px=24, phase_epochs=(1.0,)
                ),
                "optim": Muon(lr=0.2, bias_lr=1.0, head_lr=0.1),
            },
            {},
            "without labels",
        ),
        (
            {
                "model": Model(name="convnext-tiny", width=8, drop_path=0.3, freeze=("features.0",)),
                "optim": Sgd(lr=0.05, layer_decay=0.8),
            },
            {"activation_checkpointing": True, "precision": "bf16", "allow_slow": True},
            "4 of 182 tensors are frozen",
        ),
    ],
    ids=["airbench", "convnext"],
)
def test_what_models_have_of_their_own_resumes_bit_for_bit(
    recipe: dict[str, Any], machine: dict[str, Any], note: str, shapes: Path, tmp_path: Path
) -> None:
    config = tiny_config(shapes, **recipe)
    config = replace(config, machine=replace(config.machine, **machine))
    whole = run_training(override(config, "limits.max_steps", 12), tmp_path / "whole")
    cut = run_training(override(config, "limits.max_steps", 7), tmp_path / "cut")
    longer = override(config, "limits.max_steps", 12)
    resumed = train(longer, tmp_path, _find_resume_point(cut.run, longer, lambda _: None))
    files = [run.checkpoints.committed()[-1].path / "model.safetensors" for run in (whole.run, resumed.run)]
    assert files[0].read_bytes() == files[1].read_bytes()
    (start,) = events_of(whole.run, StartEvent)
    assert any(note in text for text in start.notes)


@pytest.mark.usefixtures("_reset_determinism")
def test_exact_reduction_on_another_device_or_version_is_a_warning(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(shapes, virtual_shards=4)
    config = replace(config, machine=replace(config.machine, reduction="exact"), limits=Limits(max_steps=1))
    run = run_training(config, tmp_path).run
    start = events_of(run, StartEvent)[0]
    assert (start.virtual_shards, start.process_batch, start.accumulation) == (4, 4, 4)
    monkeypatch.setattr("vernier.engine.training.session.read_versions", lambda: {"torch": "9.9", "simplejpeg": None})
    config = replace(config, limits=Limits(max_steps=2))
    train(config, tmp_path, ResumePoint(run, run.checkpoints.committed()[-1]))
    (warning,) = [event.message for event in events_of(run, WarningEvent) if "machine.reduction" in event.message]
    assert f"torch was {torch.__version__}, is 9.9" in warning
    assert "one kind of device and one version only" in warning
