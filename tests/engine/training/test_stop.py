"""Signals and the time limit that stop a training."""

import os
import re
import signal

import pytest

from vernier.engine.training.stop import StopFlag, TimeLimit
from vernier.records.events import CheckpointEvent, StepEvent
from vernier.references import given
from vernier.signals import SIGNALS, StopRequested


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_sets_the_flag_and_is_named_when_obeyed(number: signal.Signals) -> None:
    with StopFlag() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested
        with pytest.raises(StopRequested, match=number.name):
            stop.obey()


def test_a_second_ctrl_c_stops_at_once() -> None:
    with StopFlag():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_handlers_are_restored_but_not_sigterms_after_an_error_of_one_of_many() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopFlag():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
    with pytest.raises(ValueError, match="broken"), StopFlag(one_of_many=True):
        raise ValueError("broken")
    assert signal.getsignal(signal.SIGTERM) != before
    signal.signal(signal.SIGTERM, before)


def test_a_sighup_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopFlag() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.requested
    finally:
        signal.signal(signal.SIGHUP, before)


def _step(seconds: float) -> StepEvent:
    return StepEvent(step=1, epoch=0.1, loss=1.0, lr=0.1, samples=8, step_s=(seconds,), wait_s=(0.0,))


def _checkpoint(seconds: float) -> CheckpointEvent:
    return CheckpointEvent(step=1, path="step-1", seconds=seconds)


def test_a_time_limit_that_is_over_stops_after_the_first_step_and_is_named() -> None:
    limit = TimeLimit("1s", left_s=-1.0)
    with StopFlag(limit=limit) as stop:
        assert not stop.requested, "every session trains at least one step"
        limit.emit(_step(0.1))
        assert stop.requested
        with pytest.raises(StopRequested, match=re.escape(given("limits.max_time", "1s"))):
            stop.obey()


@pytest.mark.parametrize(
    ("step_s", "checkpoint_s", "processes", "reached"),
    [(4e3, 4e3, 1, False), (4e3, 8e3, 1, True), (4e3, 4e3, 2, True), (11e3, 0.0, 1, True)],
)
def test_a_time_limit_leaves_time_for_a_step_and_a_checkpoint(
    step_s: float, checkpoint_s: float, processes: int, reached: bool
) -> None:
    limit = TimeLimit("10000s", left_s=10e3, processes=processes)
    limit.learn([_step(99e3), _checkpoint(checkpoint_s), _checkpoint(1.0)])
    limit.emit(_step(20e3))
    limit.emit(_step(step_s))
    assert limit.reached is reached
