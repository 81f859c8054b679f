"""Loads models for tests."""

from pathlib import Path
from typing import Any

from vernier.engine.inference.trained import ModelChoice, Trained, load_model


def load_trained(path: Path, **choice: Any) -> Trained:
    """The model of a run or of a checkpoint."""
    return load_model(ModelChoice(path=path, **choice))
