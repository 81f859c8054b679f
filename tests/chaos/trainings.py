"""The training that disks fail under: seconds long, with evaluations, averaged weights, checkpoints and all logs."""

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import TINY
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.store import find_runs

STEPS = 12
SETTINGS = {
    "ema.decay": 0.99,
    "checkpoint.every_steps": 2,
    "eval.every_epochs": 0.5,
    "limits.log_every_steps": 1,
    "machine.telemetry_hz": 20,
}


def make_data(folder: Path) -> Path:
    """96 images, six steps of 16 per epoch."""
    return make_shapes(folder / "shapes", ShapesSpec(train=96, val=40, size_px=32, seed=3))


def arguments(data: Path, out: Path, **settings: float) -> list[str]:
    """A training of 12 steps; checkpoints at the even ones, evaluations at 3, 6, 9 and 12."""
    flags = ["train", "--data", str(data), "--out", str(out), *TINY, "--epochs", "2"]
    changed = SETTINGS | {name.replace("__", "."): value for name, value in settings.items()}
    return [*flags, *(word for name, value in changed.items() for word in ("--set", f"{name}={value}"))]


def two_processes() -> list[dict[str, str]]:
    """The variables with which torchrun would start each of two processes."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [{"RANK": rank, "LOCAL_RANK": rank, **shared} for rank in ("0", "1")]


def final_state(out: Path) -> dict[str, object]:
    """Weights, optimiser, averages and progress at the end of the newest run; without what a clock measured."""
    runs = [run for run in find_runs(out) if run.status().status == "finished"]
    newest = runs[-1].checkpoints.newest() if runs else None
    if newest is None:
        return {}
    files: dict[str, object] = {path.name: path.read_bytes() for path in newest.path.glob("*.safetensors")}
    progress = json.loads((newest.path / "state.json").read_text())["progress"]
    del progress["spent_s"]
    return {**files, "step": newest.step, "progress": progress}


@contextmanager
def working_folder() -> Iterator[Path]:
    """A folder in memory, where that is possible: no disk is needed to model one."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    with tempfile.TemporaryDirectory(prefix="vernier-disk-", dir=memory if usable else None) as name:
        yield Path(name)
