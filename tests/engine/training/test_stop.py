"""Signals that stop a training."""

import os
import signal

import pytest

from vernier.engine.training.stop import SIGNALS, StopFlag, StopRequested


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
