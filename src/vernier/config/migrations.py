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
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from vernier.addresses import note_origin
from vernier.errors import ConfigError

from .settings import Config

Tree = dict[str, Any]

SCHEMAS = {
    "config": 4,
    "checkpoint": 4,
    "bench": 4,
    "run": 1,
    "environment": 1,
    "events": 1,
    "study": 1,
    "baseline": 1,
}

RENAMED_SETTINGS = {
    "recipe.model.bn_span": "recipe.model.batch_norm_images",
    "recipe.detect.score": "recipe.detect.min_score",
    "recipe.detect.per_class": "recipe.detect.max_per_class",
    "recipe.detect.most": "recipe.detect.max_detections",
    "recipe.optim.trust": "recipe.optim.trust_coefficient",
    "machine.buffers": "machine.batch_norm_statistics",
}
"""Old name -> new name, from the top of the configuration: for files of schema 1, and for the message about a setting
that is given by its old name, which is an error since 0.3.0."""


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
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise ConfigError(f"{where}: its schema is {schema!r}, not a number of a version. The file is damaged.")
    if schema > SCHEMAS[kind]:
        raise NewerFile(
            f"{where} was written by a newer version of Vernier (schema {schema}; this one reads up to "
            f"{SCHEMAS[kind]}). Update Vernier to use it."
        )
    tree = {name: value for name, value in tree.items() if name != "schema"}
    for number in range(schema, SCHEMAS[kind]):
        tree = _STEPS[kind, number](tree)
    note_origin(tree.get("config") if kind == "checkpoint" else tree, where)
    for path in _CONFIGURATIONS.get(kind, ()):
        config: Any = tree
        for part in filter(None, path.split(".")):
            config = config.get(part) if isinstance(config, dict) else None
        if config is not None:
            _refuse_wrong_tables(config, Config, where)
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


def _with_new_names(tree: Tree) -> Tree:
    """A configuration with today's names of settings."""
    out = {name: dict(value) if isinstance(value, dict) else value for name, value in tree.items()}
    for old, new in RENAMED_SETTINGS.items():
        group, name = _group(out, old)
        if group is not None and name in group:
            group[new.rpartition(".")[2]] = group.pop(name)
    return out


def _group(tree: Tree, path: str) -> tuple[Tree | None, str]:
    """The table that holds a setting, copied so that the original stays as it is; None where there is none."""
    *groups, name = path.split(".")
    for group in groups:
        inner = tree.get(group)
        if not isinstance(inner, dict):
            return None, name
        tree[group] = dict(inner)
        tree = tree[group]
    return tree, name


def _config_2(tree: Tree) -> Tree:
    """A configuration of schema 1 as schema 2 has it."""
    out = _with_new_names(tree)
    return _without(out, WITHOUT_EFFECT[_task(out)])


def _config_3(tree: Tree) -> Tree:
    """A configuration of schema 2 as schema 3 has it."""
    out = dict(tree)
    augment, name = _group(out, "recipe.augment.crop")
    if augment is not None and augment.get(name) == "ssd-tf":
        augment[name] = "ssd-tf-tall"
    return _without(out, ("data.eval_short_side_px",) if _task(out) == "detector" else ())


def _config_4(tree: Tree) -> Tree:
    """A configuration of schema 3 as schema 4 has it."""
    out = dict(tree)
    machine, name = _group(out, "machine.gradient_compression")
    if machine is not None:
        for removed in ("all_reduce", "powersgd_rank", "powersgd_start"):
            machine.pop(removed, None)
        if machine.get(name) == "powersgd":
            machine[name] = "none"
    return out


def _task(tree: Tree) -> str:
    model, _ = _group(tree, "recipe.model.name")
    return "detector" if model and str(model.get("name", "")).startswith(_DETECTOR_PREFIX) else "classifier"


def _without(tree: Tree, paths: Sequence[str]) -> Tree:
    for path in paths:
        group, name = _group(tree, f"recipe.{path}")
        if group is not None:
            group.pop(name, None)
    return tree


def _config_within(change: Callable[[Tree], Tree], *paths: str) -> Callable[[Tree], Tree]:
    """A step for the configurations that a file holds at these paths."""

    def step(tree: Tree) -> Tree:
        tree = dict(tree)
        for path in paths:
            group, name = _group(tree, path)
            if group is not None and isinstance(group.get(name), dict):
                group[name] = change(group[name])
        return tree

    return step


_STEPS: dict[tuple[str, int], Callable[[Tree], Tree]] = {
    ("config", 1): _config_2,
    ("checkpoint", 1): _config_within(_config_2, "config"),
    ("bench", 1): _config_within(_config_2, "config", "asked.config"),
    ("config", 2): _config_3,
    ("checkpoint", 2): _config_within(_config_3, "config"),
    ("bench", 2): _config_within(_config_3, "config", "asked.config"),
    ("config", 3): _config_4,
    ("checkpoint", 3): _config_within(_config_4, "config"),
    ("bench", 3): _config_within(_config_4, "config", "asked.config"),
}
"""(kind, schema) -> the step to the next schema."""
