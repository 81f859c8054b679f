"""Which subject is which: what ran in it, in the same parts for every kind of subject, and names by what differs.

Vernier's runs have a record; other systems' logs are described from what they have (`NOT_IN_LOG`).
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vernier.records.what_ran import WhatRan

if TYPE_CHECKING:
    from .subjects import Subject

NOT_IN_LOG = "not in the log"
HEADING = ("network", "image size", "batch", "data")
PARTS = (*HEADING[:2], "classes", "batch", "devices", "data", "precision", "mode", "device", "torch", "Vernier", "date")
# Names are also the entries of legends: settings per name, characters per value.
MOST_DIFFERENCES, LONGEST_DIFFERENCE = 3, 24
LONGEST_LIST = 60  # characters; a longer list of values becomes "7 different"
_NOT_A_NAME = re.compile(
    r"(.*\.)?(schema|out|every_epochs|log_every_steps)|recipe\.(name|about|source|published.*)|limits\.smoke"
)
"""Settings by which people do not tell runs apart."""
_FIRST_NAMED = (
    *("model.name", "data.source", "data.image_px", "global_batch", "optim.lr", "optim.name", "optim.weight_decay"),
    *("schedule.epochs", "model.width", "machine.precision", "machine.mode", "machine.procs", "seed"),
)
_FIRST_GROUPS = ("model", "optim", "schedule", "data", "augment", "loss")
"""Settings, and groups of them, that people name a run by, before all others."""
# The time in front of a directory's name; the lookahead keeps a name of nothing else.
_STAMP = re.compile(r"^\d{8}-\d{6}-(?=.)")
Parts = dict[str, str]


def parts_of_record(ran: Sequence[WhatRan]) -> Parts:
    """What ran in all records of a subject; a part in which they differ lists its values."""
    records = [r.parts() for r in ran]
    texts = {part: " | ".join(dict.fromkeys(p for r in records if (p := r[part]))) for part in PARTS}
    return texts | {"batch": texts["batch"].replace(" | batch ", ", ")} if ran else {}


def differing_parts(subjects: Sequence[Parts]) -> list[str]:
    """The parts of what ran in which some subjects differ, among those that are known."""
    return [part for part in PARTS if part != "date" and len(_known_texts(subjects, part)) > 1]


def _known_texts(subjects: Iterable[Mapping[str, str]], part: str) -> list[str]:
    """What subjects say of a part of what ran, each text once."""
    return list(dict.fromkeys(text for each in subjects if (text := each.get(part, "")) not in ("", NOT_IN_LOG)))


def summary_of_parts(subjects: Sequence[Parts]) -> Parts:
    """What ran in all subjects, for the head of a page; where they differ, their values, or how many there are."""
    summary: Parts = {}
    for part in PARTS:
        texts = _known_texts(subjects, part)
        joined = " | ".join(texts).replace(" | batch ", ", ")
        if texts:
            summary[part] = joined if len(texts) == 1 or len(joined) <= LONGEST_LIST else f"{len(texts)} different"
    return summary


def heading(parts: Mapping[str, str]) -> str:
    """Network, image size, batch and data in a few words; empty if the model is not known."""
    if parts.get("network", NOT_IN_LOG) == NOT_IN_LOG:
        return ""
    # Without how the images are loaded, at which size they are evaluated, and what the model costs.
    first = {part: parts.get(part, "").partition(", ")[0] for part in ("image size", "data")}
    shown = {"network": parts["network"].partition(" (")[0], "batch": parts.get("batch", "")} | first
    known = (shown[part] for part in HEADING if shown[part] not in ("", NOT_IN_LOG))
    return " · ".join(known).replace(" | ", ", ")


# --------------------------------------------------------------------------------------------------------------- names


def unique_names(subjects: "Sequence[Subject]") -> list[str]:
    """Short names that tell subjects apart: by what differs, and without what all of them share.

    Two runs of one recipe are `lr 0.1` and `lr 0.2`; beside another recipe the recipe is in front. Runs that differ in
    nothing are numbered, with the time at which they began.
    """
    logs = [s for s in subjects if s.foreign]
    names = [_log_name(s, logs) if s.foreign else _STAMP.sub("", s.name) for s in subjects]
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        recipe = str(subjects[i].recipe.get("name") or "")
        # Directories are named after a recipe and what was changed in it, which the differences say better.
        groups.setdefault(recipe if recipe and name.startswith(recipe) else name, []).append(i)
    for name, group in groups.items():
        if len(group) > 1:
            texts = differences([subjects[i].settings for i in group])
            for i, text in zip(group, texts, strict=True):
                names[i] = ", ".join(filter(None, ("" if len(groups) == 1 else name, text)))
    return _numbered(names, [s.started for s in subjects])


def _numbered(names: Sequence[str], started: Sequence[str]) -> list[str]:
    """The names; those that several subjects share, numbered in their order."""
    counts, used = Counter(names), Counter[str]()
    days = {stamp[:10] for stamp in started if stamp}
    numbered = []
    for name, stamp in zip(names, started, strict=True):
        if name and counts[name] == 1:
            numbered.append(name)
            continue
        used[name] += 1
        began = stamp[11:16] if len(days) <= 1 else stamp[:16].replace("T", " ")
        run = f"run {used[name]}" + (f" ({began})" if began else "")
        numbered.append(", ".join(filter(None, (name, run))))
    return numbered


def _log_name(s: "Subject", logs: "Sequence[Subject]") -> str:
    """Another system's log by its file; in front the network, the system and the folder, where logs differ in them."""
    parts = [log.parts for log in logs]
    shown = [s.parts.get(part, "") for part in ("network", "device") if len(_known_texts(parts, part)) > 1]
    # Many systems write the same file name, such as result_0.txt: then the folder tells the logs apart.
    twins = [log for log in logs if log.path.stem == s.path.stem and log.parts == s.parts]
    if len(twins) > 1:
        common = os.path.commonpath([twin.path.resolve().parent for twin in twins])
        shown.append(os.path.relpath(s.path.resolve().parent, common))
    return " ".join([*(text for text in shown if text not in ("", ".", NOT_IN_LOG)), s.path.stem])


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            leaves |= _leaves(value, f"{prefix}{key}.")
        elif isinstance(value, str | int | float):  # no lists: `differing_settings` puts the values into a set
            leaves[prefix + key] = value
    return leaves


def differing_settings(trees: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The settings in which runs that have them differ, those that matter most first: their values by dotted name."""
    leaves = [_leaves(tree) for tree in trees]
    names = [name for name in dict.fromkeys(n for each in leaves for n in each) if not _NOT_A_NAME.fullmatch(name)]
    values = {name: [each.get(name) for each in leaves] for name in sorted(names, key=_rank)}
    # A setting that a run lacks (None), as one of a newer version, is no difference.
    return {name: column for name, column in values.items() if len({*column} - {None}) > 1}


def _last_part(name: str) -> str:
    """`lr` of recipe.optim.lr; `model` of recipe.model.name and `data` of recipe.data.source."""
    *before, last = name.split(".")
    return before[-1] if before and last in ("name", "source") else last


def short_names(settings: Iterable[str]) -> dict[str, str]:
    """The last part of dotted names, such as `lr`; the whole name where two settings would share it."""
    last = {name: _last_part(name) for name in settings}
    counts = Counter(last.values())
    return {name: short if counts[short] == 1 else name for name, short in last.items()}


def differences(trees: Sequence[Mapping[str, Any]]) -> list[str]:
    """The few settings that matter most among those in which the trees differ, as `lr 0.1, width 16`.

    More than a few only where it takes them to tell runs apart.
    """
    columns = differing_settings(trees)
    texts = [""] * len(trees)
    for count, (name, values) in enumerate(columns.items()):
        # Columns come in order of importance. Beyond the usual few, only until all names differ, and never without end.
        if count >= MOST_DIFFERENCES and (len(set(texts)) == len(texts) or count >= 2 * MOST_DIFFERENCES):
            break
        last = _last_part(name)
        parts = ["" if value is None else f"{last} {_short(value)}" for value in values]
        longer = [", ".join(filter(None, pair)) for pair in zip(texts, parts, strict=True)]
        # What merely follows from a setting that is shown, such as a warm-up from the epochs, tells no runs apart.
        if _rank(name) < len(_FIRST_NAMED) or len(set(longer)) > len(set(texts)):
            texts = longer
    return texts


def _rank(name: str) -> int:
    # With the dot in front, `seed` is not the end of another name such as `data_seed`.
    first = next((i for i, end in enumerate(_FIRST_NAMED) if f".{name}".endswith(f".{end}")), None)
    if first is not None:
        return first
    parts = name.split(".")
    group = next((i for i, group in enumerate(_FIRST_GROUPS) if group in parts), len(_FIRST_GROUPS))
    return len(_FIRST_NAMED) + group


def _short(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST_DIFFERENCE else f"{text[: LONGEST_DIFFERENCE - 3]}..."
