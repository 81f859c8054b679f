"""What ran, configuration and environment of all runs side by side, with the rows that differ marked."""

import json
import shlex
from collections.abc import Mapping

from markupsafe import Markup

from vernier.quantities import memory_size
from vernier.records.codec import encode
from vernier.report.page.figures import Content, Section
from vernier.report.page.html import chip, div, fill, framed, tag
from vernier.report.page.identity import differing_parts
from vernier.report.page.numbers import NONE
from vernier.report.page.subjects import Subject
from vernier.report.page.training import Training

WHAT_RAN = "What ran"
_EXPECTED_TO_DIFFER = ("cpu.load_average", "command", "git_commit", "telemetry", "sensors", "processes")
"""Rows that differ from run to run without a meaning, and are not marked."""
# A list of a thousand classes would make the whole table unreadable.
_LONGEST_TEXT = 400


def _environment(subjects: list[Subject]) -> Content | None:
    """None where no subject has settings or an environment."""
    several = len(subjects) > 1
    tables = {
        WHAT_RAN: [s.parts if several else {} for s in subjects],
        "Configuration": [_flatten(s.settings) for s in subjects],
        "Environment": [
            _flatten({**encode(e), "command": shlex.join(e.command)}) if (e := s.environment) else {} for s in subjects
        ],
    }
    parts = [_table(title, subjects, trees) for title, trees in tables.items() if any(trees)]
    if not parts:
        return None
    box = Markup('<label><input type="checkbox" class="only-different" checked> only what differs</label>')
    return Content(
        lead="What differs between the runs is marked." if several else "",
        parts=[tag("div", box, cls="controls") if several else None, *parts],
        cls="different-only" if several else None,
    )


def _flatten(tree: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Leaves by dotted name, as text."""
    leaves: dict[str, str] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        # An empty table has no leaves, and is shown as a value.
        if isinstance(value, dict) and value:
            leaves |= _flatten(value, f"{name}.")
        elif key.endswith("_bytes") and isinstance(value, int) and not isinstance(value, bool):
            leaves[name.removesuffix("_bytes")] = memory_size(value)
        else:
            leaves[name] = _text(value)
    return leaves


def _text(value: object) -> str:
    """A value as text: `none` if nothing is set, lists as `a, b`, lists of tables as `name value, ...; ...`."""
    if value in (None, "", [], {}):
        return "none"
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        if all(isinstance(entry, dict) for entry in value):
            entries = ([f"{k} {_text(v)}" for k, v in entry.items() if v is not None] for entry in value)
            return "; ".join(map(", ".join, entries))
        return ", ".join(map(_text, value))
    return f"{value:.7g}" if isinstance(value, float) else json.dumps(value, default=str)


def _table(title: str, subjects: list[Subject], trees: list[dict[str, str]]) -> Markup:
    names = list(dict.fromkeys(name for tree in trees for name in tree))
    if title == WHAT_RAN:
        differing = differing_parts(trees)
    else:
        differing = [name for name in names if _settings_differ(name, subjects, trees)]
    identifier = title.lower().replace(" ", "-")
    heads = ["setting" if identifier == "configuration" else "what", *(s.name for s in subjects)]
    grid = fill(
        "settings",
        cls="always" if title == WHAT_RAN else "config",
        identifier=identifier,
        heads=heads,
        names=names,
        differing=differing,
        trees=trees,
        breakable=_breakable,
        shorten=_shorten,
        none_shown=NONE,
    )
    differ = chip(f"{len(differing)} differ", "noisy" if differing else "accepted") if len(subjects) > 1 else None
    frame = framed(grid, identifier, title, tag("h3", title, " ", differ), "scroll tall")
    return div("card", *frame, style="margin-bottom:18px")


def _breakable(name: str) -> Markup:
    """A dotted name that a narrow screen breaks after its parts."""
    return Markup(".<wbr>").join(Markup("_<wbr>").join(part.split("_")) for part in name.split("."))


def _settings_differ(name: str, subjects: list[Subject], trees: list[dict[str, str]]) -> bool:
    """Whether runs or logs of a format that has this row differ in it; other kinds are not compared."""
    if any(name == prefix or name.startswith(f"{prefix}.") for prefix in _EXPECTED_TO_DIFFER):
        return False
    pairs = list(zip(subjects, trees, strict=True))
    # A log of another system has other settings; that they are absent is no difference.
    formats = {s.format for s, tree in pairs if name in tree}
    return len({tree.get(name) for s, tree in pairs if tree and s.format in formats and isinstance(s, Training)}) > 1


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "..."


SECTION = Section(
    title="Configuration and environment", contents="Configuration", order=100, of=Subject, build=_environment
)
