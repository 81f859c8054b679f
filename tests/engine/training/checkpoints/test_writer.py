"""Checkpoints written while training goes on: what is in them, what training waits for, what a full disk does."""

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import only_run
from tests.tiny_training import events_of, run_training, tiny_config
from vernier.config import Checkpoint, Config, Eval, Limits, to_dict
from vernier.engine.inference.evaluate import Evaluator
from vernier.engine.training.checkpoints.contents import read_state
from vernier.engine.training.checkpoints.resume import choose_resume_point
from vernier.engine.training.checkpoints.writer import CheckpointWriter, NotSaved
from vernier.engine.training.session import train
from vernier.errors import RunFailed
from vernier.records.events import EvalEvent, StepEvent, WarningEvent
from vernier.records.run import CheckpointState, Progress
from vernier.store import CheckpointDir, Checkpoints, RunDir


def state_of(step: int, *, best_step: int | None = None, last_eval_step: int = 0) -> CheckpointState:
    progress = Progress(step=step, best_step=best_step, last_eval_step=last_eval_step)
    return CheckpointState(
        step=step, progress=progress, classes=("a",), channels=3, data_fingerprint="", config=to_dict(Config())
    )


def writer_in(folder: Path, policy: Checkpoint | None = None) -> CheckpointWriter:
    return CheckpointWriter(Checkpoints(folder), policy or Checkpoint(), steps_per_epoch=10)


class Gate:
    """Checkpoints are committed only after the gate was opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.reached, commit = threading.Event(), threading.Event(), Checkpoints.commit

        def gated(checkpoints: Checkpoints, step: int, fill: Callable[[Path], None], **named: object) -> CheckpointDir:
            self.reached.set()
            assert self.open.wait(30)
            return commit(checkpoints, step, fill, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(Checkpoints, "commit", gated)


def test_training_goes_on_while_the_copy_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, writer, weight = Gate(monkeypatch), writer_in(tmp_path), torch.ones(3)
    writer.save({"model.safetensors": {"weight": weight}}, state_of(1))
    assert gate.reached.wait(30)
    weight.fill_(7)  # the next step of the training
    assert writer.pop_saved() == []
    assert writer.has(1)
    gate.open.set()
    writer.wait()
    (saved,) = writer.pop_saved()
    assert saved.checkpoint.problems() == []
    assert load_file(saved.checkpoint.path / "model.safetensors")["weight"].tolist() == [1, 1, 1]
    assert 0 <= saved.stall_s <= saved.seconds


def test_there_is_one_copy_and_the_next_checkpoint_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, writer, weight = Gate(monkeypatch), writer_in(tmp_path), torch.ones(3)
    writer.save({"model.safetensors": {"weight": weight}}, state_of(1))
    (buffer,) = (t for tensors in (writer._copy or {}).values() for t in tensors.values())
    second = threading.Thread(target=writer.save, args=({"model.safetensors": {"weight": weight * 2}}, state_of(2)))
    second.start()
    second.join(0.2)
    assert second.is_alive()
    assert buffer.tolist() == [1, 1, 1]
    gate.open.set()
    second.join()
    writer.wait()
    assert [c.step for c in Checkpoints(tmp_path).committed()] == [1, 2]
    assert buffer.tolist() == [2, 2, 2]


def test_not_in_the_background_it_is_on_disk_when_save_returns(tmp_path: Path) -> None:
    writer = writer_in(tmp_path, Checkpoint(background=False))
    writer.save({"model.safetensors": {"weight": torch.ones(3)}}, state_of(1, best_step=1))
    (saved,) = writer.pop_saved()
    assert saved.stall_s == saved.seconds
    assert Checkpoints(tmp_path).best() == saved.checkpoint


def test_amending_changes_the_state_and_shares_the_tensors(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    writer.save({"model.safetensors": {"weight": torch.ones(3)}}, state_of(5))
    writer.wait()
    first = writer.pop_saved()[0].checkpoint
    inode = (first.path / "model.safetensors").stat().st_ino
    writer.amend(state_of(5, last_eval_step=5, best_step=5))
    writer.wait()
    (amended,) = writer.pop_saved()
    assert amended.amended
    assert amended.checkpoint.problems() == []
    assert read_state(amended.checkpoint).progress.last_eval_step == 5
    assert (amended.checkpoint.path / "model.safetensors").stat().st_ino == inode
    assert sorted(p.name for p in tmp_path.iterdir()) == ["best", "latest", "step-00000005"]


def test_amending_copies_where_the_file_system_has_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    writer = writer_in(tmp_path)
    writer.save({"model.safetensors": {"weight": torch.ones(3)}}, state_of(5))
    writer.amend(state_of(5, last_eval_step=5))
    writer.wait()
    (checkpoint,) = Checkpoints(tmp_path).committed()
    assert checkpoint.problems() == []
    assert read_state(checkpoint).progress.last_eval_step == 5


def test_a_checkpoint_that_was_removed_cannot_be_amended(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    writer.amend(state_of(5))
    with pytest.raises(NotSaved, match="step 5 has been removed"):
        writer.wait()
    assert Checkpoints(tmp_path).committed() == []


def test_a_checkpoint_whose_manifest_cannot_be_read_cannot_be_amended(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    writer.save({"model.safetensors": {"weight": torch.ones(3)}}, state_of(5))
    writer.wait()
    (tmp_path / "step-00000005/manifest.json").write_text("{")
    writer.amend(state_of(5, last_eval_step=5))
    with pytest.raises(NotSaved, match=r"cannot write checkpoint .*manifest\.json.*run the same command"):
        writer.wait()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_the_best_checkpoint_stays_although_its_pointer_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = Checkpoints.point

    def full(checkpoints: Checkpoints, name: str, checkpoint: CheckpointDir) -> None:
        if name == "best":
            raise OSError(28, "No space left on device")
        point(checkpoints, name, checkpoint)

    monkeypatch.setattr(Checkpoints, "point", full)
    writer = writer_in(tmp_path, Checkpoint(keep_last=1))
    for step in (1, 2, 3):
        writer.save({"model.safetensors": {"weight": torch.ones(3)}}, state_of(step, best_step=1))
    writer.wait()
    problems = [problem for saved in writer.pop_saved() for problem in saved.problems]
    assert set(problems) == {"checkpoints/best could not be written: [Errno 28] No space left on device"}
    assert [c.step for c in Checkpoints(tmp_path).committed()] == [1, 3]


# ------------------------------------------------------------------------------------------------------- in a training


def test_a_run_ends_soon_after_a_checkpoint_could_not_be_written(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at the next checkpoint, which may be hours away."""
    commit = Checkpoints.commit

    def full(checkpoints: Checkpoints, step: int, fill: Callable[[Path], None], **named: object) -> CheckpointDir:
        if step > 4:
            raise OSError(28, f"cannot write checkpoint {step}: No space left on device")
        return commit(checkpoints, step, fill, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Checkpoints, "commit", full)
    config = tiny_config(shapes, eval=Eval(every_epochs=0))
    limits = Limits(max_steps=2_000, log_every_steps=1)
    config = replace(config, checkpoint=Checkpoint(every_epochs=0, every_steps=4, keep_last=1), limits=limits)
    config = replace(config, recipe=replace(config.recipe, schedule=replace(config.recipe.schedule, epochs=200.0)))
    with pytest.raises(RunFailed, match=r"could not be saved: .*No space left.*run the same command"):
        train(config, tmp_path)
    run = RunDir.open(only_run(tmp_path))
    assert run.status().status == "crashed"
    assert max(event.step for event in events_of(run, StepEvent)) < 2_000
    point = choose_resume_point(config, tmp_path, None, pytest.fail)
    assert point is not None
    assert point.checkpoint.step == 4


def test_an_evaluation_that_fails_costs_no_step(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RunFailed("40 images cannot be read")

    whole = run_training(tiny_config(shapes), tmp_path / "whole").run
    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "score", fail)
        with pytest.raises(RunFailed, match="cannot be read"):
            run_training(tiny_config(shapes), tmp_path / "failed")
    run = RunDir.open(only_run(tmp_path / "failed"))
    newest = run.checkpoints.newest()
    assert newest is not None
    assert newest.step == 10
    point = choose_resume_point(tiny_config(shapes), tmp_path / "failed", "auto", pytest.fail)
    train(tiny_config(shapes), tmp_path / "failed", point)
    assert [e.figures for e in events_of(run, EvalEvent)] == [e.figures for e in events_of(whole, EvalEvent)]
    ends = [r.checkpoints.newest() for r in (run, whole)]
    assert len({(end.path / "model.safetensors").read_bytes() for end in ends if end}) == 1


def test_killed_between_an_evaluation_and_its_record_it_evaluates_again_and_counts_once(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> float:
        raise KeyboardInterrupt

    # In the background the checkpoint before the evaluation may be unfinished when the process is killed.
    config = replace(tiny_config(shapes), checkpoint=Checkpoint(background=False))
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointWriter, "amend", killed)
        with pytest.raises(KeyboardInterrupt):
            run_training(config, tmp_path)
    run = RunDir.open(only_run(tmp_path))
    assert [e.step for e in events_of(run, EvalEvent)] == [10]
    point = choose_resume_point(config, tmp_path, None, pytest.fail)
    assert point is not None
    assert point.checkpoint.step == 10
    train(config, tmp_path, point)
    assert [e.step for e in events_of(run, EvalEvent)] == [10, 20]


def test_a_pointer_that_cannot_be_written_is_a_warning(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Checkpoints, "point", full)
    run = run_training(replace(tiny_config(shapes), limits=Limits(max_steps=2, max_eval_steps=1)), tmp_path).run
    assert run.status().status == "finished"
    messages = [e.message for e in events_of(run, WarningEvent)]
    assert "checkpoints/latest could not be written: [Errno 28] No space left on device" in messages
