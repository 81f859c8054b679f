import os
import signal
from pathlib import Path

import pytest

from vernier.cli import launching
from vernier.cli.launching import check_before_start, load_torch, sigterm_as_interrupt, silence_profiler, with_procs
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


def test_the_profiler_is_silenced_unless_the_user_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "0")
    monkeypatch.delenv("TORCH_CPP_LOG_LEVEL", raising=False)
    silence_profiler()
    assert (os.environ["KINETO_LOG_LEVEL"], os.environ["TORCH_CPP_LOG_LEVEL"]) == ("0", "ERROR")
    monkeypatch.delenv("TORCH_CPP_LOG_LEVEL")


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("machine.procs", 3, "does not divide by 3"),
        ("model.weights", "/no/such.pth", "--weights /no/such.pth does not exist"),
        ("model.backbone_weights", "/tmp", "--backbone-weights /tmp is a folder"),
        ("model.freeze", ["lyaer1"], "Did you mean layer1"),
        ("data.max_bad_images", "many", "give a number of images"),
        ("data.source", "/no/such", "does not exist"),
    ],
)
def test_what_needs_no_torch_is_refused_before_anything_starts(
    setting: str, value: object, message: str, tmp_path: Path
) -> None:
    config = override(override(Config(), "data.source", "shapes"), setting, value)
    with pytest.raises(ConfigError, match=message):
        check_before_start(config, tmp_path / "runs", None, detector=False)
    assert list(tmp_path.iterdir()) == []


def test_a_training_that_can_start_is_left_alone(tmp_path: Path) -> None:
    check_before_start(override(Config(), "data.source", "shapes"), tmp_path / "runs", None, detector=False)
    assert list(tmp_path.iterdir()) == []


def test_a_batch_that_could_mean_two_things_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = override(Config(), "machine.procs", 2)
    monkeypatch.setattr(launching, "COMMAND_LINE", ["train", "--batch-size=8"])
    with pytest.raises(ConfigError, match="--batch-size could mean"):
        with_procs(config)
    with_procs(Config())
    monkeypatch.setattr(launching, "COMMAND_LINE", ["bench", "train", "--batch", "8"])
    with_procs(config)


def test_loading_says_nothing_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    load_torch()
    assert capsys.readouterr().err == ""
