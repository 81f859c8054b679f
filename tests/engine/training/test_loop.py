"""What the loop does when: learning, evaluating, saving, stopping, and failing when numbers stop being finite."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.conftest import only_run
from tests.tiny_training import events_of, run_training, tiny_config
from vernier.config import Checkpoint, Eval, Limits, Optim, Schedule
from vernier.engine.inference.trained import load_trained
from vernier.errors import RunFailed
from vernier.records.events import CheckpointEvent, EvalEvent, StepEvent
from vernier.store import RunDir


def test_the_loss_falls(shapes: Path, tmp_path: Path) -> None:
    outcome = run_training(tiny_config(shapes, schedule=Schedule(epochs=12.0)), tmp_path)
    losses = [event.loss for event in events_of(outcome.run, StepEvent)]
    assert losses[-1] < losses[0] - 0.2


def test_max_steps_cuts_the_run_but_not_the_schedule(shapes: Path, tmp_path: Path) -> None:
    config = tiny_config(shapes, schedule=Schedule(kind="linear", epochs=2.0))
    outcome = run_training(replace(config, limits=Limits(max_steps=5, log_every_steps=1, max_eval_steps=2)), tmp_path)
    rates = [event.lr for event in events_of(outcome.run, StepEvent)]
    assert rates == pytest.approx([0.05 * (1 - s / 20) for s in range(5)])
    assert outcome.summary.step == 5
    assert outcome.summary.result is not None
    assert outcome.summary.result.samples == 32
    assert outcome.summary.result.exact is False


def test_train_only_never_evaluates(shapes: Path, tmp_path: Path) -> None:
    outcome = run_training(tiny_config(shapes, eval=Eval(every_epochs=0)), tmp_path)
    assert outcome.summary.result is None
    assert not events_of(outcome.run, EvalEvent)
    assert outcome.run.newest_checkpoint() is not None


def test_evaluation_every_n_epochs_and_at_the_end(shapes: Path, tmp_path: Path) -> None:
    outcome = run_training(tiny_config(shapes, schedule=Schedule(epochs=5.0), eval=Eval(every_epochs=2)), tmp_path)
    assert [event.step for event in events_of(outcome.run, EvalEvent)] == [20, 40, 50]


def test_the_best_evaluation_is_marked_and_summarised(shapes: Path, tmp_path: Path) -> None:
    outcome = run_training(tiny_config(shapes, schedule=Schedule(epochs=3.0)), tmp_path)
    evaluations = events_of(outcome.run, EvalEvent)
    best = max(evaluations, key=lambda event: (event.figures["top1"] or 0.0, -event.step))
    assert outcome.summary.best is not None
    assert (outcome.summary.best.step, outcome.summary.best.figures) == (best.step, {"top1": best.figures["top1"]})
    assert evaluations[0].best


def test_training_stops_at_the_target(shapes: Path, tmp_path: Path) -> None:
    outcome = run_training(tiny_config(shapes, schedule=Schedule(epochs=50.0), eval=Eval(target_top1=0.0)), tmp_path)
    assert outcome.summary.reached_target
    assert outcome.summary.step == 10


def test_checkpoints_are_written_and_removed_by_the_policy(shapes: Path, tmp_path: Path) -> None:
    config = tiny_config(shapes, schedule=Schedule(epochs=4.0), eval=Eval(every_epochs=0))
    policy = Checkpoint(every_epochs=0, every_steps=5, keep_last=2, keep_every_epochs=2, keep_best=False)
    outcome = run_training(replace(config, checkpoint=policy), tmp_path)
    assert [event.step for event in events_of(outcome.run, CheckpointEvent)] == [5, 10, 15, 20, 25, 30, 35, 40]
    assert [checkpoint.step for checkpoint in outcome.run.checkpoints()] == [20, 35, 40]


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_last_good_checkpoint(
    shapes: Path, tmp_path: Path
) -> None:
    config = tiny_config(shapes, optim=Optim(lr=1e30), schedule=Schedule(kind="step", epochs=3.0, milestones=()))
    config = replace(config, checkpoint=Checkpoint(every_steps=1))
    with pytest.raises(RunFailed, match=r"became .*at step \d+ .*Try a lower optim.lr"):
        run_training(config, tmp_path)
    run = RunDir.open(only_run(tmp_path))
    assert run.status().status == "failed"
    for checkpoint in run.checkpoints():
        assert checkpoint.problems() == []
        assert all(torch.isfinite(t).all() for t in load_trained(checkpoint.path).model.state_dict().values())


def test_an_evaluation_that_is_not_finite_ends_the_run_with_a_reason(shapes: Path, tmp_path: Path) -> None:
    """One enormous step: its loss was finite and so are the weights, but not what they compute."""
    config = tiny_config(shapes, optim=Optim(lr=1e12), schedule=Schedule(kind="constant", epochs=1.0))
    with pytest.raises(RunFailed, match=r"The evaluation's loss became (nan|inf)"):
        run_training(replace(config, limits=Limits(max_steps=1)), tmp_path)
    status = RunDir.open(only_run(tmp_path)).status()
    assert status.status == "failed"
    assert "The evaluation's loss became" in (status.reason or "")
