"""Versions of every file that Vernier writes: their schema numbers and all changes between them.

A file of a newer version is refused with a sentence that says so; an older one is brought up to date as it is read,
never on disk. A file without a number is of schema 1.

| schema | changed in | what changed |
|---|---|---|
| config 2, checkpoint 2, bench 2 | 0.2.0 | settings renamed as in `RENAMED_SETTINGS`; settings that have no effect on |
| | | the task (`WITHOUT_EFFECT`), which were recorded and ignored, take their default because they are refused now |
| config 3, checkpoint 3, bench 3 | 0.3.0 | data.eval_short_side_px of a detector, always 256 and without effect, is |
| | | derived from data.eval_px; augment.crop = ssd-tf, which tested one side of a window only, is ssd-tf-tall |
| config 4, checkpoint 4, bench 4 | 0.4.0 | machine.all_reduce, powersgd_rank and powersgd_start are gone; |
| | | machine.gradient_compression = powersgd is none |
| config 5, checkpoint 5, bench 5 | 0.4.0 | data.exif is new: runs made before used the stored pixels (ignore) |
| config 6, checkpoint 6, bench 6 | 0.4.0 | machine.gradient_compression is gone |
"""

import copy
import dataclasses
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from vernier.addresses import note_origin
from vernier.errors import ConfigError

from .names import RENAMED_SETTINGS
from .settings import Config

Tree = dict[str, Any]

SCHEMAS = {
    "config": 6,
    "checkpoint": 6,
    "bench": 6,
    "run": 1,
    "environment": 1,
    "events": 1,
    "study": 1,
    "baseline": 1,
}

_CONFIGURATIONS = {"config": ("",), "checkpoint": ("config",), "bench": ("config", "asked.config")}
"""Where the files of each kind hold a configuration."""
_DETECTOR_PREFIX = "ssd"
WITHOUT_EFFECT = {
    "detector": ("loss", "model.unused_outputs", "data.scaled_decode", "data.eval_short_side_px", "eval.target_top1"),
    "classifier": ("detect", "eval.target_ap"),
}
"""Settings of schema 1 that were accepted for a task on which they have no effect."""


class NewerFile(ConfigError):
    """A file that a newer version of Vernier wrote."""


def migrated(kind: str, tree: Tree, where: Path | str) -> Tree:
    """The content of a file of that kind as this version writes it, without its schema number.

    Raises NewerFile, or ConfigError where the number is none or the settings in it are no tables.
    """
    schema = tree.get("schema", 1)
    # A bool is an int for Python: true would be read as schema 1.
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise ConfigError(f"{where}: its schema is {schema!r}, not a number of a version. The file is damaged.")
    # Not read as far as it is known: a setting with a new meaning would be used with the old one.
    if schema > SCHEMAS[kind]:
        raise NewerFile(
            f"{where} was written by a newer version of Vernier (schema {schema}; this one reads up to "
            f"{SCHEMAS[kind]}). Update Vernier to use it."
        )
    tree = {name: value for name, value in tree.items() if name != "schema"}
    if schema < SCHEMAS[kind]:
        try:
            tree = copy.deepcopy(tree)  # the steps change it in place, and the caller keeps its own
        except RecursionError:  # json reads tables nested deeper than Python can copy them
            raise ConfigError(f"{where}: its settings are nested too deep. The file is damaged.") from None
    note_origin(tree.get("config") if kind == "checkpoint" else tree, where)
    for path in _CONFIGURATIONS.get(kind, ()):
        table, name = _table({"file": tree}, f"file.{path}".rstrip("."))
        if table.get(name) is not None:
            # One step at a time: each step knows two neighboring schemas and never changes again.
            for step in _STEPS[schema - 1 :]:
                step(table[name])
            # Readers index into groups without a check, for example in a list of a thousand runs.
            _refuse_wrong_tables(table[name], Config, where)
    return tree


def _refuse_wrong_tables(tree: Any, cls: type, where: Path | str) -> None:
    """Raise ConfigError where a group of settings is none, so that readers of a run can look settings up in it."""
    if not isinstance(tree, dict):
        raise ConfigError(f"{where}: its settings are damaged: {cls.__name__} is no table.")
    for name, group in _groups(cls):
        if name in tree:
            _refuse_wrong_tables(tree[name], group, where)


@cache
def _groups(cls: type) -> tuple[tuple[str, Any], ...]:
    """Name and class of the groups of settings in one; a report reads thousands of configurations."""
    hints = get_type_hints(cls).items()
    return tuple((name, hint) for name, hint in hints if isinstance(hint, type) and dataclasses.is_dataclass(hint))


def _table(tree: Any, path: str) -> tuple[Tree, str]:
    """The table that holds a setting, and its name there; an empty table, which belongs to nobody, if there is none."""
    *groups, name = path.split(".")
    for group in groups:
        tree = tree.get(group) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) else {}, name


def _config_2(config: Any) -> None:
    """Make a configuration of schema 1 one of schema 2."""
    for old, new in RENAMED_SETTINGS.items():
        table, name = _table(config, old)
        if name in table:
            table[new.rpartition(".")[2]] = table.pop(name)
    # The new names first: WITHOUT_EFFECT has today's.
    _remove(config, *(f"recipe.{path}" for path in WITHOUT_EFFECT[_task(config)]))


def _config_3(config: Any) -> None:
    """Make a configuration of schema 2 one of schema 3."""
    augment, name = _table(config, "recipe.augment.crop")
    # The name ssd-tf now means the corrected crop; old runs used the one that tests one side only.
    if augment.get(name) == "ssd-tf":
        augment[name] = "ssd-tf-tall"
    if _task(config) == "detector":
        _remove(config, "recipe.data.eval_short_side_px")


def _config_4(config: Any) -> None:
    """Make a configuration of schema 3 one of schema 4."""
    _remove(config, "machine.all_reduce", "machine.powersgd_rank", "machine.powersgd_start")
    machine, name = _table(config, "machine.gradient_compression")
    if machine.get(name) == "powersgd":
        machine[name] = "none"


def _config_5(config: Any) -> None:
    """Make a configuration of schema 4 one of schema 5."""
    data, name = _table(config, "recipe.data.exif")
    # Not today's default: the runs saw pixels as they are stored, and must be evaluated in the same way.
    data.setdefault(name, "ignore")


def _config_6(config: Any) -> None:
    """Make a configuration of schema 5 one of schema 6."""
    _remove(config, "machine.gradient_compression")


def _task(config: Any) -> str:
    model, name = _table(config, "recipe.model.name")
    # By name: settings are a layer below the models, and files of old versions outlive them.
    return "detector" if str(model.get(name)).startswith(_DETECTOR_PREFIX) else "classifier"


def _remove(config: Any, *paths: str) -> None:
    for table, name in (_table(config, path) for path in paths):
        table.pop(name, None)


_STEPS = (_config_2, _config_3, _config_4, _config_5, _config_6)
"""From each schema of a configuration to the next one, in place. The other kinds of files have had none yet."""
