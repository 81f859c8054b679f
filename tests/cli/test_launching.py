import signal

import pytest

from vernier.cli import launching
from vernier.cli.launching import sigterm_as_interrupt, with_procs
from vernier.config import Config, override
from vernier.errors import ConfigError


def test_sigterm_acts_like_ctrl_c_while_entered() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with sigterm_as_interrupt(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("procs", "to_start"), [(1, 0), (3, 3)])
def test_processes_are_started_here_if_there_are_several_and_no_launcher(procs: int, to_start: int) -> None:
    config, started = with_procs(override(Config(), "machine.procs", procs))
    assert (config.machine.procs, started) == (procs, to_start)


def test_a_batch_that_could_mean_two_things_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = override(Config(), "machine.procs", 2)
    monkeypatch.setattr(launching, "COMMAND_LINE", ["train", "--batch-size=8"])
    with pytest.raises(ConfigError, match="--batch-size could mean"):
        with_procs(config)
    with_procs(Config())
    monkeypatch.setattr(launching, "COMMAND_LINE", ["bench", "train", "--batch", "8"])
    with_procs(config)
