"""What is refused before PyTorch is imported, and what a session finds unchanged afterwards."""

import os
import signal
from pathlib import Path

import pytest
import torch

from vernier.api import starting
from vernier.api.session import Session
from vernier.api.starting import (
    change,
    count_processes,
    fetch_weights,
    load_torch,
    machine_file,
    sigterm_as_interrupt,
    silence_profiler,
    unchanged_torch,
)
from vernier.config import Config, override
from vernier.errors import ConfigError
from vernier.requests.training import Train
from vernier.requests.wording import Words

SESSION = Session(Words(None), quiet=True)


def test_the_profiler_is_silenced_unless_the_user_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "0")
    monkeypatch.delenv("TORCH_CPP_LOG_LEVEL", raising=False)
    silence_profiler()
    assert (os.environ["KINETO_LOG_LEVEL"], os.environ["TORCH_CPP_LOG_LEVEL"]) == ("0", "ERROR")
    monkeypatch.delenv("TORCH_CPP_LOG_LEVEL")


def test_fetching_weights_names_their_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(starting, "is_cached", lambda name: False)
    monkeypatch.setattr(starting, "fetch_pretrained", lambda name, progress: tmp_path / name)
    assert fetch_weights("torchvision:resnet18", Session(Words(None))) == tmp_path / "torchvision:resnet18"
    assert "fetching torchvision:resnet18 from https://" in capsys.readouterr().err


def test_options_machine_file_and_settings_change_the_configuration(tmp_path: Path) -> None:
    (path := tmp_path / "machine.toml").write_text("[machine]\nthreads = 1\nworkers = 7\n")
    request = Train(machine=path, workers=0, global_batch=64, settings=("optim.lr=0.5",))
    changed = change(Config(), request, "train", {"seed": 9})
    machine, recipe = changed.config.machine, changed.config.recipe
    assert (machine.threads, machine.workers, recipe.global_batch, recipe.seed) == (1, 0, 64, 9)
    assert recipe.optim.lr == 0.5


@pytest.mark.parametrize(("procs", "to_start"), [(1, 0), (3, 3)])
def test_processes_are_started_here_if_there_are_several_and_no_launcher(procs: int, to_start: int) -> None:
    config, started = count_processes(override(Config(), "machine.procs", procs))
    assert (config.machine.procs, started) == (procs, to_start)


def test_sigterm_acts_like_ctrl_c_while_entered() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with sigterm_as_interrupt(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_loading_says_nothing_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    load_torch()
    assert capsys.readouterr().err == ""


def test_threads_and_random_numbers_of_the_session_stay_as_they_were() -> None:
    threads = torch.get_num_threads()
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    with unchanged_torch():
        torch.set_num_threads(threads + 1)
        torch.manual_seed(1)
        torch.use_deterministic_algorithms(True)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.rand(2), expected)
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_machine_file_from_elsewhere_is_used_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    path.write_text('[machine]\nthreads = 1\n[tuned]\ndevice = "cpu (Abacus)"\ncores = 1000\n')
    file = machine_file(path, "train")
    assert file is not None
    assert file.settings == {"threads": 1}
    assert "tuned on cpu (Abacus) with 1,000 cores" in file.notes[0]
    assert machine_file(None, "train") is None
    with pytest.raises(ConfigError, match="tuned for training"):
        machine_file(path, "infer")
