"""Recipe files and the configuration of a run, read and checked as `vernier train` does."""

import json
from pathlib import Path

from vernier import recipes
from vernier.config import Config, to_dict
from vernier.config.checks import check_config
from vernier.config.derived import derive
from vernier.config.migrations import SCHEMAS
from vernier.config.parsing import to_toml
from vernier.config.warnings import config_warnings
from vernier.errors import ConfigError
from vernier.models import names

from .base import Files, Target
from .files import golden

_SETTINGS = b"""optim.lr=0.1
schedule.epochs=2.5
data.mean=[0.5, 0.5, 0.5]
machine.procs=2
model.name=resnet18
augment.crop=none
global_batch=64
"""


def _examples() -> dict[str, Files]:
    current = {"schema": SCHEMAS["config"], **to_dict(Config())}
    built_in = {
        name: {"recipe.toml": to_toml(recipes.get(name)).encode()}
        for name in ("shapes-quick", "nvidia-resnet50-90e", "shapes-detect")
        if name in recipes.names()
    }
    return {
        **built_in,
        "current": {"recipe.json": json.dumps(current).encode()},
        "old": {"recipe.json": golden("classifier/config.json")},
        "detector": {"recipe.json": golden("detector/config.json")},
        "settings": {"set.txt": _SETTINGS},
    }


def _read(folder: Path) -> None:
    files = [folder / name for name in ("recipe.toml", "recipe.json") if (folder / name).exists()]
    if files:
        config = recipes.load(str(files[0]))
    else:
        lines = (folder / "set.txt").read_text(encoding="utf-8", errors="surrogateescape").split("\n")
        config = recipes.change(Config(), {}, [line for line in lines if line]).config
    name = config.recipe.model.name
    if name not in names():
        raise ConfigError(f"There is no network {name}.")
    detector = name.startswith("ssd")
    check_config(config, detector=detector)
    config_warnings(config, detector=detector)
    derive(config, train_samples=1_000_000)
    to_toml(config.recipe)


TARGETS = (Target("config", _examples, _read, text=True),)
