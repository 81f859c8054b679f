"""Training accuracy and the figures of an epoch."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.conftest import only_run
from tests.tiny_training import events_of, tiny_config
from vernier.config import Augment, Config, Eval, Limits
from vernier.engine.training.checkpoints.resume import ResumePoint
from vernier.engine.training.session import train
from vernier.engine.training.totals import CorrectCounter, EpochTotals
from vernier.records.events import EpochEvent, StepEvent
from vernier.store import RunDir


def window(step: int, **changes: float) -> StepEvent:
    event = StepEvent(step=step, epoch=step / 4, loss=2.0, lr=0.1, samples=20, step_s=(1.0, 3.0), wait_s=(0.0, 0.0))
    return replace(event, **changes)  # type: ignore[arg-type]


def test_hits_are_summed_until_they_are_read() -> None:
    counter = CorrectCounter(torch.device("cpu"), enabled=True)
    counter.add(torch.tensor([1.0, 2.0]))
    counter.add(torch.tensor([0.5, 2.0]))
    counter.add(None)
    assert counter.pop().tolist() == [1.5, 4.0]
    assert counter.pop().tolist() == []


def test_accuracy_is_in_percent_of_the_images_of_a_process() -> None:
    assert CorrectCounter.accuracy([2.0, 8.0], 16.0) == (12.5, 50.0)
    assert CorrectCounter.accuracy([], 16.0) is None


def test_an_epoch_sums_its_windows_and_begins_anew() -> None:
    totals = EpochTotals([window(2, loss=9.0), window(4, loss=9.0), window(6, loss=1.0)], after_step=4, until_step=6)
    totals.add(window(8, samples=60, step_s=(1.0,), wait_s=(0.0,), loss=4.0))
    epoch = totals.close(8, 2)
    assert (epoch.step, epoch.epoch, epoch.samples, epoch.seconds) == (8, 2, 80, 5.0)
    assert (epoch.images_per_s_total, epoch.loss, epoch.top1) == (16.0, 2.0, None)
    totals.add(window(10, top1=10.0, top5=20.0))
    totals.add(window(12, top1=50.0, top5=80.0, samples=60))
    assert (totals.close(12, 3).top1, totals.close(12, 3).top1) == (40.0, None)


def trained_with_accuracy(config: Config, out: Path) -> list[EpochEvent]:
    run = train(config, out).run
    steps, epochs = events_of(run, StepEvent), events_of(run, EpochEvent)
    for epoch in epochs:
        parts = [s for s in steps if epoch.step - 10 < s.step <= epoch.step]
        assert epoch.samples == sum(s.samples for s in parts) == 160
        assert epoch.seconds == pytest.approx(sum(sum(s.step_s) for s in parts))
        assert epoch.top1 == pytest.approx(sum((s.top1 or 0) * s.samples for s in parts) / 160)
        assert epoch.images_per_s_total == pytest.approx(160 / (epoch.seconds or 1))
    return epochs


def test_a_run_records_training_accuracy_in_steps_and_epochs(shapes: Path, tmp_path: Path) -> None:
    limits = Limits(train_accuracy=True, log_every_steps=4)
    config = replace(tiny_config(shapes, eval=Eval(every_epochs=0)), limits=limits)
    first, last = trained_with_accuracy(config, tmp_path)
    assert first.top1 is not None
    assert last.top5 is not None
    assert (first.top1 * 160 / 100) % 1 == pytest.approx(0, abs=1e-3)  # whole images
    assert 0 < first.top1 < last.top5 <= 100
    mixed = replace(config, recipe=replace(config.recipe, augment=Augment(crop="pad", mixup=0.4)))
    shares = [(e.top1 or 0) * 160 / 100 for e in trained_with_accuracy(mixed, tmp_path)]
    assert any(abs(share - round(share)) > 1e-3 for share in shares)


def test_a_resumed_epoch_is_whole(shapes: Path, tmp_path: Path) -> None:
    config = replace(tiny_config(shapes), limits=Limits(max_steps=14, train_accuracy=True))
    train(config, tmp_path)
    run = RunDir.open(only_run(tmp_path))
    newest = run.checkpoints.newest()
    assert newest is not None
    assert newest.step == 14
    train(replace(config, limits=Limits(train_accuracy=True)), tmp_path, ResumePoint(run, newest))
    assert [epoch.samples for epoch in events_of(run, EpochEvent)] == [160, 160]
