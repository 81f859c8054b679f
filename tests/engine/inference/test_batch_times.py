"""Times of the batches of an evaluation."""

from pathlib import Path
from typing import ClassVar

import pytest

from tests.tiny_training import run_training, tiny_config
from vernier.devices.base import StepTimes
from vernier.devices.cpu import Cpu
from vernier.engine.inference.batch_times import BatchTimes
from vernier.records.events import EvalEvent


class _ToldByWindows(Cpu):
    """A device that queues and cannot say when it has done what."""

    step_times: ClassVar[StepTimes] = "windows"


def test_a_training_records_the_batches_of_its_evaluations(shapes: Path, tmp_path: Path) -> None:
    run = run_training(tiny_config(shapes), tmp_path).run
    events = [e for e in run.history() if isinstance(e, EvalEvent)]
    assert events
    for event in events:
        assert event.batch_s is not None
        assert event.wait_s is not None
        assert len(event.batch_s) == len(event.wait_s) == -(-event.samples // 16)
        assert all(wait_s <= seconds for seconds, wait_s in zip(event.batch_s, event.wait_s, strict=True))
        assert sum(event.batch_s) <= event.seconds


@pytest.mark.parametrize(("device", "known"), [(Cpu(), True), (_ToldByWindows(), False)])
def test_what_a_device_cannot_tell_is_not_recorded(device: Cpu, known: bool) -> None:
    times = BatchTimes(device)
    times.add(0.0)
    assert (times.seconds() is not None) == known
    assert BatchTimes(device).seconds() is None
