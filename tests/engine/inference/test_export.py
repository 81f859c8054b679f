"""Exported weights. Formats of whole networks are tested in tests/compat/export, the command in tests/cli."""

import json
from pathlib import Path

import pytest
from safetensors import safe_open

from tests.engine.inference.loading import load_trained
from tests.tiny_training import run_training, tiny_config
from vernier.config import Schedule
from vernier.engine.inference.export import export
from vernier.errors import ConfigError


def test_exported_weights_carry_what_is_needed_to_use_them(shapes: Path, tmp_path: Path) -> None:
    outcome = run_training(tiny_config(shapes, schedule=Schedule(epochs=0.2)), tmp_path / "runs")
    trained = load_trained(outcome.run.path)
    # What two killed exports left: one of this file, one of another that may still be written.
    mine, other = tmp_path / ".x.safetensors.tmp-1", tmp_path / ".x.safetensors.old.tmp-1"
    mine.touch()
    other.touch()
    exported = export(trained, "safetensors", tmp_path / "x.safetensors")
    assert not mine.exists()
    assert other.exists()
    assert not (tmp_path / ".x.safetensors.lock").exists()
    with safe_open(exported.path, "pt") as file:
        metadata = file.metadata()
    assert (metadata["model"], metadata["recipe"], metadata["step"]) == ("resnet8-small", "tiny", "2")
    assert len(json.loads(metadata["classes"])) == 10
    assert outcome.summary.result is not None
    assert json.loads(metadata["top1"]) == outcome.summary.result.figures["top1"]
    with pytest.raises(ConfigError, match="exists already"):
        export(trained, "safetensors", tmp_path / "x.safetensors")
