"""The Python interface: any command, and its result."""

from pathlib import Path

import pytest

import vernier
from vernier.errors import ConfigError


def test_a_command_returns_its_result(tiny: list[str]) -> None:
    result = vernier.run("train", *tiny, "--max-steps", 2, "--no-tensorboard")
    assert result["status"] == "finished"
    assert result["result"]["samples"] == 50
    assert {"top1", "top5"} <= set(result["result"])
    assert Path(result["run"]).is_dir()


def test_a_command_that_is_wrong_raises_and_prints_the_reason(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"vernier recipes no-such ended with exit code 2"):
        vernier.run("recipes", "no-such")
    assert "no-such" in capfd.readouterr().err
