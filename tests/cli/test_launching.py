import os
import signal

import pytest

from vernier.cli.launching import sigterm_as_interrupt, silence_profiler, with_procs
from vernier.config import Config, override


def test_sigterm_acts_like_ctrl_c_while_entered() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with sigterm_as_interrupt(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("procs", "to_start"), [(1, 0), (3, 3)])
def test_processes_are_started_here_if_there_are_several_and_no_launcher(procs: int, to_start: int) -> None:
    config, started = with_procs(override(Config(), "machine.procs", procs))
    assert (config.machine.procs, started) == (procs, to_start)


def test_the_profiler_is_silenced_unless_the_user_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "0")
    monkeypatch.delenv("TORCH_CPP_LOG_LEVEL", raising=False)
    silence_profiler()
    assert (os.environ["KINETO_LOG_LEVEL"], os.environ["TORCH_CPP_LOG_LEVEL"]) == ("0", "ERROR")
    monkeypatch.delenv("TORCH_CPP_LOG_LEVEL")
