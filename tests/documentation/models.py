"""`src/vernier/models/catalogue.json`: the built-in models and their layers, counted in the real modules.

Commands list models and predict memory without torch from this file. It has every model at its own size, and at the
sizes of the built-in recipes.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter
from typing import Any

from vernier import recipes
from vernier.config import train_px
from vernier.models import Options, entry_of
from vernier.models.catalogue import FILE, families
from vernier.models.contract import Entry
from vernier.models.cost import Cost, _key_of
from vernier.models.trace import count, describe_entry

__all__ = ["FILE"]
FIRST = ("resnet18", "convnext-tiny", "airbench94")
"""The families that begin with these are listed first."""


def text() -> str:
    """The file as it should be."""
    declared = sorted(families(), key=lambda family: _place(family.models[0]))
    entries = [entry for family in declared for entry in family.models]
    models = [asdict(describe_entry(entry)) for entry in entries]
    costs = {_key_of(entry, options, px): (entry, options, px) for entry, options, px in _sizes(entries)}
    counted = {key: _encode(count(entry.name, options, px)) for key, (entry, options, px) in costs.items()}
    # A line per model and size, so that a change shows what it changed.
    lines = [f'"models": [\n{_lines(json.dumps(model) for model in models)}\n]']
    rows = (f"{json.dumps(key)}: {json.dumps(row, separators=(',', ':'))}" for key, row in counted.items())
    lines.append(f'"costs": {{\n{_lines(rows)}\n}}')
    return "{" + ",\n".join(lines) + "}\n"


def _encode(counted: Cost) -> dict[str, Any]:
    """A cost as the file has it: equal parts in a row are listed once, with their number."""
    rows = [
        [[n.inputs, n.outputs, n.params, n.macs, n.saved, *([1] if n.classifier else [])] for n in layers]
        for _, layers in groupby(counted.layers, key=attrgetter("part"))
    ]
    parts = [[len(list(same)), part] for part, same in groupby(rows)]
    return {"params": counted.params, "activations": counted.activations, "parts": parts}


def _lines(rows: Iterator[str]) -> str:
    return ",\n".join(rows)


def _place(entry: Entry) -> tuple[bool, int]:
    """Detectors are listed last."""
    return entry.family == "ssd", FIRST.index(entry.name) if entry.name in FIRST else len(FIRST)


def _sizes(entries: list[Entry]) -> Iterator[tuple[Entry, Options, int]]:
    for entry in entries:
        yield entry, Options(num_classes=entry.classes), entry.input_px
    for recipe in map(recipes.get, recipes.names()):
        spec, data = recipe.model, recipe.data
        entry, _ = entry_of(spec.name)
        options = Options(
            num_classes=entry.classes,
            in_channels=len(data.mean),
            stem=spec.stem,
            width=spec.width,
            blurpool=spec.blurpool,
            box_sizes=spec.box_sizes,
        )
        epochs = range(max(1, round(recipe.schedule.epochs)))
        sizes = {data.eval_px, *(train_px(data, recipe.augment, epoch) for epoch in epochs)}
        yield from ((entry, options, px) for px in sorted(sizes))
