"""Numbers that stop being finite: found at their step, in their process, on their images; ended or rolled back."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import only_run
from tests.tiny_training import events_of, tiny_config
from vernier.config import Checkpoint, Config, Ema, Eval, Limits, Machine
from vernier.engine.training.checkpoints.contents import read_state
from vernier.engine.training.checkpoints.resume import choose_resume_point
from vernier.engine.training.divergence import Diverged
from vernier.engine.training.loop import Training
from vernier.engine.training.session import train
from vernier.engine.training.step import TrainStep
from vernier.errors import ConfigError, RunFailed
from vernier.records.events import DivergenceEvent, EvalEvent, StepEvent, WarningEvent
from vernier.records.run import Rollbacks
from vernier.store import RunDir
from vernier.tasks.base import MicroStep


def short_config(shapes: Path, **limits: Any) -> Config:
    config = tiny_config(shapes, eval=Eval(every_epochs=0), ema=Ema(decay=0.9))
    policy = Checkpoint(every_epochs=0, every_steps=4)
    return replace(config, checkpoint=policy, limits=Limits(max_steps=12, log_every_steps=1, **limits))


class Poison:
    """Makes the loss, or a gradient only, of one step infinite: while the learning rate is above a limit."""

    def __init__(self, patch: pytest.MonkeyPatch, *, at_step: int, what: str, above: float = 0.0) -> None:
        self.hits, loss, clip = 0, TrainStep._loss, TrainStep._clip

        def poisoned_loss(step: TrainStep, at: MicroStep, batch: Any, **options: Any) -> torch.Tensor:
            bad = what == "loss" and at.step + 1 == at_step and step.lr_factor > above
            self.hits += bad
            return loss(step, at, batch, **options) * (float("inf") if bad else 1.0)

        def poisoned_gradients(step: TrainStep) -> torch.Tensor | None:
            if what == "gradients" and self.steps == at_step - 1 and step.lr_factor > above:
                next(p.grad for p in step.model.parameters() if p.grad is not None).fill_(float("nan"))
                self.hits += 1
            return clip(step)

        def counted(step: TrainStep, number: int, batches: Any) -> Any:
            self.steps = number
            return call(step, number, batches)

        call = TrainStep.__call__
        patch.setattr(TrainStep, "__call__", counted)
        patch.setattr(TrainStep, "_loss", poisoned_loss)
        patch.setattr(TrainStep, "_clip", poisoned_gradients)


@pytest.mark.parametrize(("what", "value"), [("loss", "inf"), ("gradients", "nan")])
def test_the_step_and_its_images_are_recorded(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, value: str
) -> None:
    Poison(monkeypatch, at_step=7, what=what)
    with pytest.raises(RunFailed, match=rf"became {value} at step 7 .*after a batch with .* and 13 more images"):
        train(short_config(shapes), tmp_path)
    run = RunDir.open(only_run(tmp_path))
    repeated, event = events_of(run, DivergenceEvent)
    assert (repeated.step, repeated.resumed_from, repeated.lr_factor) == (7, 4, 1.0)
    assert (event.step, event.quantity, event.value, event.ranks, event.resumed_from) == (7, what, value, (0,), None)
    (samples,) = event.samples
    assert len(set(samples)) == 16
    status = run.status()
    assert (status.status, status.diverged) == ("failed", True)
    assert "step-00000004" in (status.reason or "")


def test_gradients_that_loss_scaling_skips_are_no_divergence(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison = Poison(monkeypatch, at_step=7, what="gradients")
    config = replace(short_config(shapes), machine=Machine(threads=1, precision="fp16", allow_slow=True, eval_batch=16))
    summary = train(config, tmp_path).summary
    assert poison.hits == 1
    assert summary.skipped_steps == 1


def test_the_same_command_asks_before_it_diverges_again(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Poison(monkeypatch, at_step=7, what="loss")
    config = short_config(shapes)
    with pytest.raises(Diverged):
        train(config, tmp_path)
    with pytest.raises(ConfigError, match="diverged with these settings: ") as error:
        choose_resume_point(config, tmp_path, None, pytest.fail)
    assert error.value.works == [("resume", str(only_run(tmp_path))), ("resume", "never")]
    point = choose_resume_point(config, tmp_path, "auto", pytest.fail)
    assert point is not None
    assert point.step == 4


def test_a_rollback_goes_on_from_the_last_checkpoint_with_a_lower_rate(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Poison(monkeypatch, at_step=7, what="loss", above=0.5)
    outcome = train(short_config(shapes, on_divergence="rollback"), tmp_path)
    assert outcome.status == "finished"
    assert outcome.summary.rollbacks == 1
    steps = events_of(outcome.run, StepEvent)
    assert [event.step for event in steps] == list(range(1, 13))
    _, event = events_of(outcome.run, DivergenceEvent)
    assert (event.step, event.resumed_from, event.lr_factor) == (7, 4, 0.5)
    assert steps[4].lr < 0.6 * steps[3].lr
    (warning,) = [e for e in events_of(outcome.run, WarningEvent) if "Went back" in e.message]
    assert "Went back to step 4; from there the learning rate is 0.5 times" in warning.message
    newest = outcome.run.checkpoints.newest()
    assert newest is not None
    assert read_state(newest).progress.rollbacks == Rollbacks(count=1, lr_factor=0.5)


def test_before_the_first_checkpoint_it_goes_back_to_the_beginning(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Poison(monkeypatch, at_step=2, what="loss", above=0.3)
    outcome = train(short_config(shapes, on_divergence="rollback"), tmp_path)
    assert [event.resumed_from for event in events_of(outcome.run, DivergenceEvent)] == [0, 0, 0]
    assert outcome.summary.rollbacks == 2


def flip_once(monkeypatch: pytest.MonkeyPatch, *, before_step: int) -> None:
    """One weight becomes what a flip of its highest bit of exponent makes of it, once."""
    call, done = TrainStep.__call__, list[int]()

    def flipped(step: TrainStep, number: int, batches: Any) -> Any:
        if number + 1 == before_step and not done:
            done.append(number)
            with torch.no_grad():
                weights = next(step.model.parameters()).view(torch.int32)
                weights[0, 0, 0, 0] ^= 1 << 30
        return call(step, number, batches)

    monkeypatch.setattr(TrainStep, "__call__", flipped)


def test_a_flipped_bit_is_blamed_on_the_machine_and_leaves_no_trace_in_the_weights(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = short_config(shapes)
    undisturbed = train(config, tmp_path / "undisturbed").run
    flip_once(monkeypatch, before_step=7)
    outcome = train(config, tmp_path / "flipped")
    assert outcome.status == "finished"
    assert outcome.summary.rollbacks is None
    (event,) = events_of(outcome.run, DivergenceEvent)
    assert (event.step, event.resumed_from, event.lr_factor) == (7, 4, 1.0)
    warnings = [e.message for e in events_of(outcome.run, WarningEvent) if "the machine computed" in e.message]
    assert len(warnings) == 1
    for name in ("model", "optimizer", "ema"):
        files = [r.path / f"checkpoints/step-00000012/{name}.safetensors" for r in (undisturbed, outcome.run)]
        assert files[0].read_bytes() == files[1].read_bytes()
    losses = [[e.loss for e in events_of(run, StepEvent)] for run in (undisturbed, outcome.run)]
    assert losses[0] == losses[1]


def test_rollbacks_are_bounded(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poison = Poison(monkeypatch, at_step=7, what="loss")
    with pytest.raises(RunFailed, match=r"It went back 2 times before\. The last good checkpoint"):
        train(short_config(shapes, on_divergence="rollback", max_rollbacks=2), tmp_path)
    assert poison.hits == 4


def test_killed_after_a_rollback_it_resumes_with_the_lower_rate_bit_for_bit(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Poison(monkeypatch, at_step=7, what="loss", above=0.5)
    config = short_config(shapes, on_divergence="rollback")
    whole = train(config, tmp_path / "whole").run
    one_step = Training._one_step

    def killed(training: Training, batches: Any) -> bool:
        if training.progress.rollbacks and training.progress.step == 6:
            raise KeyboardInterrupt
        return one_step(training, batches)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_one_step", killed)
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "killed")
    run = RunDir.open(only_run(tmp_path / "killed"))
    point = choose_resume_point(config, tmp_path / "killed", None, pytest.fail)
    assert point is not None
    assert point.step == 4
    train(config, tmp_path / "killed", point)
    for name in ("model", "optimizer", "ema"):
        files = [r.path / f"checkpoints/step-00000012/{name}.safetensors" for r in (whole, run)]
        assert files[0].read_bytes() == files[1].read_bytes()
    assert [e.lr for e in events_of(run, StepEvent)] == [e.lr for e in events_of(whole, StepEvent)]


def test_an_evaluation_that_is_not_finite_goes_back_to_before_it(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint saved for this evaluation holds the weights that diverged: nothing may resume from it."""
    note = Training._note_result

    def poisoned(training: Training, result: Any) -> bool:
        if training.progress.step == 10 and not training.progress.rollbacks:
            result = replace(result, figures={**result.figures, "loss": float("nan")})
        return note(training, result)

    monkeypatch.setattr(Training, "_note_result", poisoned)
    config = tiny_config(shapes)
    config = replace(config, checkpoint=Checkpoint(every_epochs=0.5), limits=Limits(on_divergence="rollback"))
    outcome = train(config, tmp_path)
    events = events_of(outcome.run, DivergenceEvent)
    assert [(event.step, event.quantity, event.resumed_from) for event in events] == [(10, "evaluation loss", 5)] * 2
    assert [e.step for e in events_of(outcome.run, EvalEvent)] == [10, 20]
