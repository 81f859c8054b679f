"""What is refused before PyTorch is imported, and what a session finds unchanged afterwards."""

import os
from pathlib import Path

import pytest
import torch

from vernier.api.starting import check_before_start, load_torch, machine_file, silence_profiler, unchanged_torch
from vernier.config import Config, override
from vernier.errors import ConfigError


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
    config = override(override(Config(), "data.source", "shapes"), "global_batch", 8)
    check_before_start(config, tmp_path / "runs", None, detector=False)
    assert list(tmp_path.iterdir()) == []


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
