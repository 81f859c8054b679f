"""Versions of every file that Vernier writes: their schema numbers, all changes between them, and the way up to today's.

A file of a newer version is refused with a sentence that says so; an older one is brought up to date as it is read, never on
disk. A file without a number is of schema 1.

| schema | changed in | what changed |
|---|---|---|
| config 2, checkpoint 2, bench 2 | 0.2.0 | settings renamed as in `RENAMED_SETTINGS`, wherever the file holds a configuration |
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError

Tree = dict[str, Any]

SCHEMAS = {
    "config": 2,
    "checkpoint": 2,
    "bench": 2,
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
"""Old name -> new name, from the top of the configuration. The old ones work in 0.2 with a note, and are gone in 0.3."""


class NewerFile(ConfigError):
    """A file that a newer version of Vernier wrote."""


def migrated(kind: str, tree: Tree, where: Path | str) -> Tree:
    """The content of a file of that kind as this version writes it, without its schema number.

    Raises NewerFile, or ConfigError where the number is none.
    """
    schema = tree.get("schema", 1)
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise ConfigError(f"{where}: its schema is {schema!r}, not a number of a version. The file is damaged.")
    if schema > SCHEMAS[kind]:
        raise NewerFile(
            f"{where} was written by a newer version of Vernier (schema {schema}; this one reads up to {SCHEMAS[kind]}). "
            "Update Vernier to use it."
        )
    tree = {name: value for name, value in tree.items() if name != "schema"}
    for number in range(schema, SCHEMAS[kind]):
        tree = _STEPS[kind, number](tree)
    return tree


def with_new_names(tree: Tree) -> Tree:
    """A configuration with today's names of settings."""
    out = {name: dict(value) if isinstance(value, dict) else value for name, value in tree.items()}
    for old, new in RENAMED_SETTINGS.items():
        group, name = _group(out, old)
        if group is not None and name in group:
            group[new.rpartition(".")[2]] = group.pop(name)
    return out


def _group(tree: Tree, path: str) -> tuple[Tree | None, str]:
    """The table that holds a setting, copied on the way so that the original stays as it is; None where there is none."""
    *groups, name = path.split(".")
    for group in groups:
        inner = tree.get(group)
        if not isinstance(inner, dict):
            return None, name
        tree[group] = dict(inner)
        tree = tree[group]
    return tree, name


def _config_within(*paths: tuple[str, ...]) -> Callable[[Tree], Tree]:
    """A step that renames settings in the configurations that a file holds at these paths."""

    def step(tree: Tree) -> Tree:
        tree = dict(tree)
        for path in paths:
            holder: Any = tree
            for part in path[:-1]:
                inner = holder.get(part)
                holder[part] = dict(inner) if isinstance(inner, dict) else {}
                holder = holder[part]
            if isinstance(holder.get(path[-1]), dict):
                holder[path[-1]] = with_new_names(holder[path[-1]])
        return tree

    return step


_STEPS: dict[tuple[str, int], Callable[[Tree], Tree]] = {
    ("config", 1): with_new_names,
    ("checkpoint", 1): _config_within(("config",)),
    ("bench", 1): _config_within(("config",), ("asked", "config")),
}
"""(kind, schema) -> the step to the next schema."""
