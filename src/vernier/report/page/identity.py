"""Which subject is which: what ran in it, in the same parts for every kind of subject, and names by what differs.

Vernier's runs have a record; other systems' logs are described from what they have.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vernier.records.what_ran import WhatRan
from vernier.report.logs.model import RunLog
from vernier.report.logs.work import NOT_IN_LOG, work_of

HEADING = ("network", "image size", "batch", "data")
PARTS = (*HEADING[:2], "classes", "batch", "devices", "data", "precision", "mode", "device", "torch", "Vernier", "date")
MOST_DIFFERENCES, LONGEST_DIFFERENCE = 3, 24
_NOT_A_NAME = ("name", "about", "source", "published", "schema", "out", "every_epochs", "log_every_steps")
"""Settings by which people do not tell runs apart, by the last part of their name."""
_FIRST_NAMED = ("model", "data", "global_batch", "optim", "schedule", "augment", "loss")
_STAMP = re.compile(r"^\d{8}-\d{6}-(?=.)")
Parts = dict[str, str]


def parts_of_record(ran: Sequence[WhatRan]) -> Parts:
    """What ran in all records of a subject; a part in which they differ lists its values."""
    texts = {part: " | ".join(dict.fromkeys(p for r in ran if (p := r.parts()[part]))) for part in PARTS}
    return texts | {"batch": texts["batch"].replace(" | batch ", ", ")} if ran else {}


def parts_of_log(log: RunLog) -> Parts:
    """What ran in another system's log; what it does not say is `NOT_IN_LOG`."""
    texts = work_of(log).texts
    texts = texts | {"batch": texts.get("batch") or texts.get("global batch", "")}
    if log.devices is None:
        texts.pop("devices", None)
    parts = {part: texts.get(part) or NOT_IN_LOG for part in PARTS[: PARTS.index("mode")]}
    return parts | ({"device": texts["device"]} if texts.get("device") else {})


def heading(parts: Mapping[str, str]) -> str:
    """Network, image size, batch and data in a few words; empty where the network is not known."""
    if parts.get("network", NOT_IN_LOG) == NOT_IN_LOG:
        return ""
    first = {part: parts.get(part, "").partition(", ")[0] for part in ("image size", "data")}
    shown = {"network": parts["network"].partition(" (")[0], "batch": parts.get("batch", "")} | first
    known = (shown[part] for part in HEADING if shown[part] not in ("", NOT_IN_LOG))
    return " · ".join(known).replace(" | ", ", ")


# --------------------------------------------------------------------------------------------------------------- names


def unique_names(names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names that tell subjects apart: without the date, and with settings in which those of one name differ.

    Runs that differ in nothing keep their date.
    """
    short = [_STAMP.sub("", name) for name in names]
    unique = list(short)
    for name in dict.fromkeys(short):
        group = [i for i, other in enumerate(short) if other == name]
        if len(group) > 1:
            for i, text in zip(group, _differences([_leaves(settings[i]) for i in group]), strict=True):
                unique[i] = f"{name}, {text}" if text else name
    dated = [n if unique.count(n) == 1 else name for n, name in zip(unique, names, strict=True)]
    return [n if (count := dated[: i + 1].count(n)) == 1 else f"{n} ({count})" for i, n in enumerate(dated)]


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            leaves |= _leaves(value, f"{prefix}{key}.")
        elif key not in _NOT_A_NAME and isinstance(value, str | int | float):
            leaves[prefix + key] = value
    return leaves


def _differences(trees: Sequence[dict[str, Any]]) -> list[str]:
    """The few settings that matter most among those in which the trees differ, as `lr 0.1, width 16`."""
    names = [n for n in dict.fromkeys(k for t in trees for k in t) if len({t.get(n) for t in trees}) > 1]
    ranked = sorted(names, key=_rank)[:MOST_DIFFERENCES]
    return [", ".join(f"{n.rpartition('.')[2]} {_short(t[n])}" for n in ranked if n in t) for t in trees]


def _rank(name: str) -> int:
    parts = name.split(".")
    return next((i for i, first in enumerate(_FIRST_NAMED) if first in parts), len(_FIRST_NAMED))


def _short(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST_DIFFERENCE else f"{text[: LONGEST_DIFFERENCE - 3]}..."
