"""What the loop does when: learning, evaluating, saving, stopping, and failing when numbers stop being finite."""

import resource
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from tests.conftest import only_run
from tests.engine.inference.loading import load_trained
from tests.queueing_device import QueueingCpu, VirtualClock, WindowsCpu
from tests.tiny_training import events_of, run_training, tiny_config
from vernier.config import Checkpoint, Eval, Limits, Model, Schedule, override
from vernier.data.loading.loader import Loader
from vernier.devices.cpu import Cpu
from vernier.engine.training.checkpoints.resume import _find_resume_point, choose_resume_point
from vernier.engine.training.session import train
from vernier.engine.training.window import StepWindow
from vernier.errors import RunFailed
from vernier.optim.kinds.sgd import Sgd
from vernier.records.events import CheckpointEvent, EvalEvent, Event, StepEvent
from vernier.report.live.console import closing_lines
from vernier.store import RunDir

FROZEN = Model(name="resnet8-small", width=8, freeze=("backbone",))


class StopsAfter:
    """An observer that sends this process the signal of a preemption after a step."""

    def __init__(self, step: int) -> None:
        self._step = step

    def emit(self, event: Event) -> None:
        if isinstance(event, StepEvent) and event.step == self._step:
            signal.raise_signal(signal.SIGTERM)

    def progress(self, phase: str, done: int, total: int) -> None:
        pass


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


def test_steps_beyond_the_epochs_train_on_at_the_last_rate(shapes: Path, tmp_path: Path) -> None:
    """`--steps` of Habana's SSD may exceed its epochs; `--max-steps` only shortened."""
    schedule = Schedule(kind="step", epochs=1.0, milestones=(0.5,), gamma=0.1, steps=13)
    config = replace(tiny_config(shapes, schedule=schedule), limits=Limits(log_every_steps=1, max_eval_steps=1))
    outcome = run_training(config, tmp_path)
    rates = [event.lr for event in events_of(outcome.run, StepEvent)]
    assert rates == pytest.approx([0.05] * 5 + [0.005] * 8)
    assert outcome.summary.step == 13
    assert [event.step for event in events_of(outcome.run, EvalEvent)] == [10, 13]


@pytest.mark.parametrize(("images", "evaluations"), [(80, [5, 10]), (240, [15, 30])])
def test_an_epoch_of_another_length(shapes: Path, tmp_path: Path, images: int, evaluations: list[int]) -> None:
    """`--num_examples_per_epoch`: 160 images are there; a longer epoch repeats some, augmented anew."""
    config = tiny_config(shapes)
    data = replace(config.recipe.data, epoch_images=images)
    config = replace(config, recipe=replace(config.recipe, data=data), limits=Limits(max_eval_steps=1))
    outcome = run_training(config, tmp_path)
    assert [event.step for event in events_of(outcome.run, EvalEvent)] == evaluations


def test_train_only_never_evaluates(shapes: Path, tmp_path: Path) -> None:
    outcome = run_training(tiny_config(shapes, eval=Eval(every_epochs=0)), tmp_path)
    assert outcome.summary.result is None
    assert not events_of(outcome.run, EvalEvent)
    assert outcome.run.checkpoints.newest() is not None


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


def test_training_stops_when_patience_ends_and_the_best_weights_stay(shapes: Path, tmp_path: Path) -> None:
    """A rate of almost nothing: the first evaluation is the best, and no later one is better."""
    config = tiny_config(
        shapes, optim=Sgd(lr=1e-12), schedule=Schedule(epochs=50.0), eval=Eval(patience=2), model=FROZEN
    )
    outcome = run_training(config, tmp_path)
    assert outcome.summary.stopped_early
    assert (outcome.status, outcome.summary.step) == ("finished", 30)
    assert outcome.summary.best is not None
    assert outcome.summary.best.step == 10
    best = outcome.run.checkpoints.best()
    assert best is not None
    assert best.step == 10
    assert any(line.startswith("early stop") for line in closing_lines(outcome.summary, "runs/x", "finished"))


def test_patience_survives_a_kill_and_does_not_count_while_the_head_trains(shapes: Path, tmp_path: Path) -> None:
    config = tiny_config(
        shapes,
        optim=Sgd(lr=1e-12),
        schedule=Schedule(epochs=50.0, head_epochs=2.0),
        eval=Eval(patience=2),
        model=FROZEN,
    )
    whole = run_training(config, tmp_path / "whole")
    assert whole.summary.step == 40, "the evaluations at 10 and 20 are the head's, those at 30 and 40 count"
    config = override(config, "limits.log_every_steps", 1)
    cut = train(config, tmp_path / "cut", observers=[StopsAfter(35)])
    assert (cut.status, cut.summary.stopped_early) == ("stopped", None)
    resumed = train(config, tmp_path / "cut", _find_resume_point(cut.run, config, lambda _: None))
    assert (resumed.summary.step, resumed.summary.stopped_early) == (40, True)


def test_checkpoints_are_written_and_removed_by_the_policy(shapes: Path, tmp_path: Path) -> None:
    config = tiny_config(shapes, schedule=Schedule(epochs=4.0), eval=Eval(every_epochs=0))
    policy = Checkpoint(every_epochs=0, every_steps=5, keep_last=2, keep_every_epochs=2, keep_best=False)
    outcome = run_training(replace(config, checkpoint=policy), tmp_path)
    assert [event.step for event in events_of(outcome.run, CheckpointEvent)] == [5, 10, 15, 20, 25, 30, 35, 40]
    assert [checkpoint.step for checkpoint in outcome.run.checkpoints.committed()] == [20, 35, 40]


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_last_good_checkpoint(
    shapes: Path, tmp_path: Path
) -> None:
    config = tiny_config(shapes, optim=Sgd(lr=1e30), schedule=Schedule(kind="step", epochs=3.0, milestones=()))
    config = replace(config, checkpoint=Checkpoint(every_steps=1))
    with pytest.raises(RunFailed, match=r"became .*at step \d+ .*Try a lower optim.lr"):
        run_training(config, tmp_path)
    run = RunDir.open(only_run(tmp_path))
    assert run.status().status == "failed"
    for checkpoint in run.checkpoints.committed():
        assert checkpoint.problems() == []
        assert all(torch.isfinite(t).all() for t in load_trained(checkpoint.path).model.state_dict().values())


def test_an_evaluation_that_is_not_finite_ends_the_run_with_a_reason(shapes: Path, tmp_path: Path) -> None:
    """One enormous step: its loss was finite and so are the weights, but not what they compute."""
    config = tiny_config(shapes, optim=Sgd(lr=1e12), schedule=Schedule(kind="constant", epochs=1.0))
    with pytest.raises(RunFailed, match=r"The evaluation's loss became (nan|inf)"):
        run_training(replace(config, limits=Limits(max_steps=1)), tmp_path)
    status = RunDir.open(only_run(tmp_path)).status()
    assert status.status == "failed"
    assert "The evaluation's loss became" in (status.reason or "")


def few_steps(shapes: Path, out: Path, every: int = 0) -> RunDir:
    """Six steps, reported every so many."""
    config = replace(tiny_config(shapes), limits=Limits(max_steps=6, log_every_steps=every))
    return run_training(config, out).run


def step_times(run: RunDir) -> list[float]:
    return [seconds for event in events_of(run, StepEvent) for seconds in event.step_s]


class FakeClock:
    """Time that passes only where a test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def slow_down(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, seconds: float) -> None:
        """Every call of a method takes that long."""
        real = getattr(owner, name)

        def slow(*arguments: Any, **named: Any) -> Any:
            self.now_s += seconds
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, slow)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock()
    monkeypatch.setattr("vernier.engine.training.loop.now_s", fake)
    monkeypatch.setattr("vernier.engine.training.window.now_s", fake)
    return fake


def test_waiting_for_data_is_in_the_rate(
    shapes: Path, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere the clock started after the batch had come, or data loading was left out by default."""
    real = Loader.batches

    def slow(self: Loader, *arguments: Any, **named: Any) -> Iterator[Any]:
        for batch in real(self, *arguments, **named):
            clock.now_s += 3.0
            yield batch

    monkeypatch.setattr(Loader, "batches", slow)
    run = few_steps(shapes, tmp_path)
    assert step_times(run) == [pytest.approx(3.0)] * 6
    summary = run.status().summary
    assert summary is not None
    assert summary.training is not None
    assert summary.training.images_per_s_total == pytest.approx(16 / 3)


def test_the_reported_loss_is_that_of_all_steps_since_the_last_report(shapes: Path, tmp_path: Path) -> None:
    """Elsewhere it was that of the last batch, weighted as if it were of all."""
    single, windows = (
        [event.loss for event in events_of(few_steps(shapes, tmp_path / str(n), every=n), StepEvent)] for n in (1, 3)
    )
    assert len(single) == 6
    assert windows == pytest.approx([sum(single[:3]) / 3, sum(single[3:]) / 3])


def test_averaging_and_reading_the_loss_is_in_the_time_of_a_step(
    shapes: Path, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere the clock stopped before the loss was reduced, read and logged, so that this was in no figure."""
    clock.slow_down(monkeypatch, StepWindow, "read", 2.0)
    assert step_times(few_steps(shapes, tmp_path, every=3)) == pytest.approx([0, 0, 2, 0, 0, 2])


def test_the_device_is_synchronised_before_a_window_is_timed(
    shapes: Path, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere work was still queued when the clock was read. The CPU stands in for a device with a queue."""
    clock.slow_down(monkeypatch, Cpu, "synchronize", 4.0)
    run = few_steps(shapes, tmp_path, every=2)
    assert [sum(event.step_s) for event in events_of(run, StepEvent)] == pytest.approx([4.0] * 3)


def test_the_optimisers_step_is_in_the_time(
    shapes: Path, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere the timer stopped before the optimiser's step."""
    clock.slow_down(monkeypatch, Cpu, "optimizer_step", 5.0)
    assert step_times(few_steps(shapes, tmp_path)) == [pytest.approx(5.0)] * 6


def queueing(monkeypatch: pytest.MonkeyPatch, kind: type[QueueingCpu], clock: VirtualClock) -> QueueingCpu:
    """A device that needs 44 ms for the step that the host queues in 27 ms."""
    device = kind(clock, device_s=0.044, host_s=0.027)
    for name in ("vernier.engine.training.loop.now_s", "vernier.engine.training.window.now_s"):
        monkeypatch.setattr(name, clock)
    monkeypatch.setattr("vernier.engine.build.resolve", lambda _: device)
    return device


@pytest.mark.parametrize(
    ("kind", "each", "timing", "waits"),
    [
        (QueueingCpu, "auto", "device events", 1 + 2),  # once after set-up
        (WindowsCpu, "auto", "windows", 1 + 2),
        (WindowsCpu, "each", "synchronised", 1 + 2 + 6),
    ],
)
def test_recorded_step_times_are_those_of_the_device(
    shapes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[QueueingCpu],
    each: Literal["auto", "each"],
    timing: str,
    waits: int,
) -> None:
    """The time in which the host queued a step was recorded: 27 ms for steps of 44 ms."""
    device = queueing(monkeypatch, kind, VirtualClock())
    config = replace(tiny_config(shapes, eval=Eval(every_epochs=0)), limits=Limits(max_steps=6, log_every_steps=3))
    config = replace(config, machine=replace(config.machine, step_times=each))
    run = run_training(config, tmp_path).run
    assert step_times(run) == pytest.approx([0.044] * 6)
    assert {event.step_times for event in events_of(run, StepEvent)} == {timing}
    assert device.waits == waits
    summary = run.status().summary
    assert summary is not None
    assert summary.training is not None
    assert summary.training.images_per_s_total == pytest.approx(16 / 0.044)
    assert summary.training.step_times == timing
    assert (summary.training.step_s is None) == (timing == "windows")
    assert sum(summary.spent_s[part] for part in ("compute", "data_wait")) == pytest.approx(6 * 0.044, abs=1e-3)


def test_telemetry_is_aligned_with_the_windows_of_a_device_that_queues(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`t_s` is when a window ended, and its steps add up to the time since the one before."""
    clock = VirtualClock()
    queueing(monkeypatch, QueueingCpu, clock)
    config = replace(tiny_config(shapes, eval=Eval(every_epochs=0)), limits=Limits(max_steps=6, log_every_steps=2))
    events = events_of(run_training(config, tmp_path).run, StepEvent)
    after_set_up = 1000.044
    assert [event.t_s for event in events] == pytest.approx([after_set_up + 0.088 * n for n in (1, 2, 3)])


# ------------------------------------------------------------------------------------------------ checkpoints and disks


class LimitFiles:
    """After the first checkpoint no file may grow beyond `limit_bytes`, as on a disk that is full."""

    def __init__(self, limit_bytes: int) -> None:
        self._limits = (limit_bytes, resource.getrlimit(resource.RLIMIT_FSIZE)[1])

    def emit(self, event: Event) -> None:
        if isinstance(event, CheckpointEvent):
            resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)

    def progress(self, phase: str, done: int, total: int) -> None:
        pass


def test_a_checkpoint_that_cannot_be_written_is_one_message_and_the_same_command_resumes(
    shapes: Path, tmp_path: Path
) -> None:
    policy = Checkpoint(every_epochs=0, every_steps=4, background=False)
    config = replace(tiny_config(shapes, eval=Eval(every_epochs=0)), checkpoint=policy, limits=Limits(max_steps=12))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(RunFailed, match=r"could not be saved: .*File too large.*run the same command"):
            train(config, tmp_path, observers=[LimitFiles(40_000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    run = only_run(tmp_path)
    assert [p.name for p in sorted((run / "checkpoints").iterdir())] == ["latest", "step-00000004"]
    point = choose_resume_point(config, tmp_path, None, pytest.fail)
    assert point is not None
    assert (point.run.path, point.checkpoint.step) == (run, 4)


def test_damaged_checkpoints_are_no_reason_to_remove_sound_ones(shapes: Path, tmp_path: Path) -> None:
    """Those of steps 12 and 16 are damaged; the run resumes from 8 and keeps the two newest that are sound."""
    config = tiny_config(shapes, eval=Eval(every_epochs=0))
    policy = Checkpoint(every_epochs=0, every_steps=4, keep_last=4, keep_best=False)
    run = run_training(replace(config, checkpoint=policy, limits=Limits(max_steps=16)), tmp_path).run
    for step in (12, 16):
        (run.path / f"checkpoints/step-{step:08d}/model.safetensors").write_bytes(b"damaged")
    point = _find_resume_point(run, config, lambda _: None)
    train(replace(config, checkpoint=replace(policy, keep_last=2), limits=Limits(max_steps=10)), tmp_path, point)
    assert [c.step for c in run.checkpoints.committed()] == [8, 10, 12, 16]
    newest = run.checkpoints.newest()
    assert newest is not None
    assert newest.step == 10
