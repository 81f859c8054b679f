"""One training of a second, by the Python interface, for all tests of what can be done with a run."""

from pathlib import Path
from typing import Any

import pytest

import vernier as v

TINY: dict[str, Any] = {
    "model": "resnet8-small",
    "global_batch": 16,
    "quiet": True,
    "settings": {
        "model.width": 8,
        "model.stem": "small",
        "data.image_px": 32,
        "data.eval_short_side_px": 32,
        "machine.threads": 1,
        "machine.eval_batch": 16,
    },
}
"""Options of a training that takes a second."""


@pytest.fixture(scope="session")
def tiny_run(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> v.Run:
    """Twelve steps, two evaluations."""
    return v.train(data=shapes, out=tmp_path_factory.mktemp("api"), epochs=1.2, tensorboard=False, **TINY)


@pytest.fixture(scope="session")
def photo(shapes: Path) -> Path:
    """An image that the model of `tiny_run` was not trained on."""
    return sorted((shapes / "val").rglob("*.jpg"))[0]
