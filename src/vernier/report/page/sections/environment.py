"""Environment and configuration: everything a run was made with, side by side; what differs is marked."""

import json
from typing import Any

from markupsafe import Markup

from vernier.records.codec import encode
from vernier.report.page.collect import Subject
from vernier.report.page.figures import Section
from vernier.report.page.html import NONE, chip, joined, section, tag

_PASSING = ("cpu.load_average", "command", "git_commit", "telemetry", "sensors", "processes")
"""What differs from run to run without meaning anything."""


def environment(subjects: list[Subject]) -> Section | None:
    trees = {
        "Configuration": [flat(s.settings) for s in subjects],
        "Environment": [flat(encode(s.environment) or {}) for s in subjects],
    }
    if not any(any(t) for t in trees.values()):
        return None
    parts = [_table(title, subjects, found) for title, found in trees.items() if any(found)]
    several = len(subjects) > 1
    box = Markup('<label><input type="checkbox" class="only-different"{}> only what differs</label>')
    control = tag("div", box.format(Markup(" checked")), cls="controls") if several else None
    lead = "What differs between the runs is marked." if several else ""
    html = section("environment", "Configuration and environment", lead, joined([control, *parts]))
    if several:
        html = Markup(html.replace("<section ", Markup('<section class="different-only" '), 1))
    return Section(name="environment", title="Configuration", html=html)


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Leaves by dotted name, as text."""
    found: dict[str, str] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            found |= flat(value, f"{name}.")
        else:
            found[name] = value if isinstance(value, str) else json.dumps(value, default=str)
    return found


def _table(title: str, subjects: list[Subject], trees: list[dict[str, str]]) -> Markup:
    names = list(dict.fromkeys(name for tree in trees for name in tree))
    rows = []
    for name in names:
        values = [tree.get(name) for tree in trees]
        having = {s.format for s, v in zip(subjects, values, strict=True) if v is not None}
        alike = [
            v for s, t, v in zip(subjects, trees, values, strict=True) if t and s.format in having and s.kind != "study"
        ]
        differs = len(set(alike)) > 1 and not any(name == p or name.startswith(f"{p}.") for p in _PASSING)
        cells = [tag("td", _short(v), cls="wrap mono") for v in values]
        rows.append(tag("tr", tag("td", name, cls="mono"), *cells, cls="differs" if differs else None))
    identifier = title.lower()
    head = tag(
        "tr",
        tag("th", "setting" if identifier == "configuration" else "what", scope="col"),
        *(tag("th", s.name, scope="col") for s in subjects),
    )
    grid = tag("table", tag("thead", head), tag("tbody", *rows), cls="config", id=identifier)
    count = sum("differs" in r[:40] for r in rows)
    note = chip(f"{count} differ", "noisy" if count else "accepted") if len(subjects) > 1 else None
    tools = tag(
        "div",
        tag("h3", title, " ", note),
        tag("button", "CSV", type="button", data_do="csv", data_table=identifier),
        cls="table-tools",
    )
    return tag(
        "div",
        tools,
        tag("div", grid, cls="scroll", tabindex="0", role="region", aria_label=title),
        cls="card",
        style="margin-bottom:18px",
    )


def _short(value: str | None) -> str:
    if value is None:
        return NONE
    return value if len(value) <= 400 else value[:397] + "..."
