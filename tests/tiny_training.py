"""A training of seconds on rendered shapes, for tests of everything that needs a run."""

from pathlib import Path
from typing import Any, TypeVar

from vernier.config import Augment, Config, Data, Machine, Model, Recipe, Schedule, override
from vernier.engine.training.session import Outcome, train
from vernier.optim.kinds.sgd import Sgd
from vernier.recipes import load
from vernier.records.events import Event
from vernier.store import RunDir

E = TypeVar("E", bound=Event)


def tiny_config(shapes: Path, **recipe: Any) -> Config:
    """16 images per step, 10 steps per epoch, two epochs."""
    defaults: dict[str, Any] = {
        "name": "tiny",
        "global_batch": 16,
        "model": Model(name="resnet8-small", width=8),
        "data": Data(source=str(shapes), image_px=32, eval_px=32, eval_short_side_px=32),
        "augment": Augment(crop="pad"),
        "optim": Sgd(lr=0.05),
        "schedule": Schedule(epochs=2.0),
    }
    return Config(recipe=Recipe(**{**defaults, **recipe}), machine=Machine(threads=1, eval_batch=16))


def tiny_detector_config(boxes: Path) -> Config:
    """A detector of 96 pixels, 8 images per step."""
    settings = {
        "data.source": str(boxes),
        "data.image_px": 96,
        "data.eval_px": 96,
        "data.eval_short_side_px": 96,
        "model.width": 16,
        "global_batch": 8,
        "machine.eval_batch": 8,
        "machine.workers": 1,
        "machine.threads": 1,
    }
    config = load("ssd-shapes-quick")
    for name, value in settings.items():
        config = override(config, name, value)
    return config


def run_training(config: Config, out: Path) -> Outcome:
    """A new run under `out`, with nobody watching."""
    return train(config, out)


def events_of(run: RunDir, kind: type[E]) -> list[E]:
    """The run's events of one kind, in order."""
    return [event for event in run.history() if isinstance(event, kind)]
