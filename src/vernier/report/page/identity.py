"""Which subject is which: what ran in it, in the same parts for every kind of subject, and names by what differs.

Vernier's own record comes first. Old runs and other systems' logs are described from what they have.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vernier.measure.what_ran import describe_feeding
from vernier.records.bench import BenchResult
from vernier.records.environment import Environment
from vernier.records.events import StartEvent
from vernier.records.what_ran import WhatRan

NOT_IN_LOG = "not in the log"
HEADING = ("network", "image size", "batch", "data")
PARTS = (*HEADING[:2], "classes", "batch", "devices", "data", "precision", "mode", "device", "torch", "Vernier", "date")
MOST_DIFFERENCES, LONGEST_DIFFERENCE = 2, 24
_NOT_A_NAME = ("name", "about", "source", "published", "schema", "out", "every_epochs", "log_every_steps")
"""Settings by which people do not tell runs apart, by the last part of their name."""
_FIRST_NAMED = ("model", "data", "global_batch", "optim", "schedule", "augment", "loss")
_IN_LOGS = {
    "network": ("arch", "model", "submission_benchmark"),
    "classes": ("num_classes",),
    "data": ("data",),
    "device": ("submission_platform", "gpu"),
    "date": ("date",),
}
"""Where other systems' logs say it, by part."""
_STAMP = re.compile(r"^\d{8}-\d{6}-(?=.)")
Parts = dict[str, str]


def parts_of_record(ran: Sequence[WhatRan]) -> Parts:
    """What ran in all records of a subject; a part in which they differ lists its values."""
    if not ran:
        return {}
    return {part: " | ".join(dict.fromkeys(p for r in ran if (p := r.parts()[part]))) for part in PARTS}


def parts_of_settings(
    settings: Mapping[str, Any], start: StartEvent, environment: Environment, bench: BenchResult | None
) -> Parts:
    """What ran in a run of an older version, as far as its settings, first event and environment tell."""
    recipe = settings.get("recipe") or {}
    model, data = recipe.get("model") or {}, recipe.get("data") or {}
    machine = settings.get("machine") or {}
    size = f" ({start.parameters / 1e6:.3g} M parameters)" if start.parameters else ""
    px = data.get("eval_px" if bench and bench.asked and bench.asked.what == "infer" else "image_px")
    source, versions = str(data.get("source", "")), environment.versions
    workers = machine.get("workers", 0)
    feeding = f", {describe_feeding(source, None, workers)}" if source in ("synthetic", "static") else ""
    commit = f" ({environment.git_commit})" if environment.git_commit else ""
    return {
        "network": f"{model.get('name', '')}{size}",
        "image size": f"{px} px" if px else "",
        "classes": f"{start.classes:,} classes" if start.classes else "",
        **_batch_and_devices(start, bench),
        "data": f"{source}{feeding}",
        **_precision_and_mode(start, machine, bench),
        "device": ", ".join(dict.fromkeys(d.name for d in environment.devices if d.name)) or environment.device_kind,
        "torch": f"torch {torch}" if (torch := versions.get("torch")) else "",
        "Vernier": f"Vernier {version}{commit}" if (version := versions.get("vernier")) else "",
        "date": (start.time or "")[:10],
    }


def _batch_and_devices(start: StartEvent, bench: BenchResult | None) -> Parts:
    if bench is not None:
        batches, devices = _values(r.batch for r in bench.rows), _values(r.procs for r in bench.rows)
    else:
        batches, devices = str(start.process_batch or ""), str(start.world) if start.process_batch else ""
    plural = "device" if devices == "1" else "devices"
    return {"batch": f"batch {batches}" if batches else "", "devices": f"{devices} {plural}" if devices else ""}


def _precision_and_mode(start: StartEvent, machine: Mapping[str, Any], bench: BenchResult | None) -> Parts:
    if bench is not None:
        return {name: _values(getattr(r, name) for r in bench.rows) for name in ("precision", "mode")}
    return {
        "precision": start.precision or machine.get("precision", ""),
        "mode": start.mode or machine.get("mode", ""),
    }


def _values(values: Iterable[object]) -> str:
    return " | ".join(dict.fromkeys(str(v) for v in values if v is not None))


def parts_of_log(settings: Mapping[str, Any], devices: int | None, train_samples: int | None) -> Parts:
    """What ran in another system's log; what it does not say is `NOT_IN_LOG`."""
    parts = {part: next((str(settings[n]) for n in names if settings.get(n)), "") for part, names in _IN_LOGS.items()}
    if train_samples:
        parts["data"] = ", ".join(filter(None, (parts["data"], f"{train_samples:,} training images")))
    if settings.get("batch_size"):
        parts["batch"] = f"batch {settings['batch_size']:,}"
    elif settings.get("global_batch_size"):
        parts["batch"] = f"batch {settings['global_batch_size']:,} over all devices"
    if devices:
        parts["devices"] = f"{devices:,} {'device' if devices == 1 else 'devices'}"
    if settings.get("amp") or settings.get("fp16"):
        parts["precision"] = "amp" if settings.get("amp") else "fp16"
    return {part: parts.get(part) or NOT_IN_LOG for part in PARTS[: PARTS.index("mode")]} | {
        part: parts[part] for part in ("device", "date") if parts[part]
    }


def heading(parts: Mapping[str, str]) -> str:
    """Network, image size, batch and data in a few words; empty where the network is not known."""
    if parts.get("network", NOT_IN_LOG) == NOT_IN_LOG:
        return ""
    shown = (parts["network"].partition(" (")[0], *(parts.get(part, "") for part in HEADING[1:]))
    known = (text for text in shown if text not in ("", NOT_IN_LOG))
    return " · ".join(text if i == 0 else text.partition(", ")[0] for i, text in enumerate(known)).replace(" | ", ", ")


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
