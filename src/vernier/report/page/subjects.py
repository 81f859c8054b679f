"""A subject of the page, whatever its kind, and how kinds of subjects plug in.

A package offers a kind as an entry point of the group `vernier.report_kinds` that names a `Kind`. Run directories
are in this package; external logs, profiles, benchmarks and studies are in `vernier.lab.page`.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from vernier.frozen import frozen
from vernier.plugins import load_group
from vernier.records.environment import Environment
from vernier.records.what_ran import WhatRan, line_of

from .html import chip
from .identity import Parts, heading

GROUP = "vernier.report_kinds"
Tree = dict[str, Any]
"""Settings, as JSON values."""
Facts = list[tuple[str, Any]]


@frozen
class Subject:
    """Something that the page is about. A kind adds fields, and what its card shows."""

    name: str
    """Unique on the page."""
    path: Path
    kind: str
    """In tables of runs and JSON."""
    colour: int | None = None
    """Its number in the charts; None for one that was read briefly, which has no curves."""
    page_folder: Path | None = None
    """The folder of the page, for links; None where that is not known."""
    format: str = "vernier"
    foreign: bool = False
    """The log of another system."""
    status: str = "unknown"
    smoke: bool = False
    """A try-out of the settings, whose figures mean nothing."""
    brief: bool = False
    """One of many runs: only its settings and results were read."""
    note: str = ""
    """What a person wrote into the run's notes.txt."""
    ran: tuple[WhatRan, ...] = ()
    """What ran: one record, or one per configuration of a benchmark; from the settings where it was not `recorded`."""
    recorded: bool = True
    parts: Parts = field(default_factory=dict)
    """What ran, by part; also of another system's log."""
    settings: Tree = field(default_factory=dict)
    environment: Environment | None = None
    notes: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        """What ran in a few words; the name where that is not known."""
        return heading(self.parts) or self.name

    @property
    def recipe(self) -> Tree:
        """The settings of its recipe."""
        tree = self.settings.get("recipe")
        return tree if isinstance(tree, dict) else {}

    @property
    def started(self) -> str:
        """When it began, as an ISO time; empty where that is not known."""
        return ""

    # -- its card

    @property
    def label(self) -> str:
        return self.kind

    def chips(self) -> list[Markup]:
        smoke = [chip("SMOKE RUN: its figures mean nothing", "failed")] if self.smoke else []
        return [chip(self.label), chip(self.status, self.status), *smoke]

    def facts(self) -> Facts:
        """Names and values; empty values are not shown."""
        return []

    def tiles(self) -> list[Markup]:
        """The most important figures, from `html.tile`."""
        return []

    def published(self) -> list[Markup | None]:
        """How results compare with published ones."""
        return []

    def messages(self) -> list[str]:
        """What a reader must know, most important first."""
        return []

    def what_ran(self) -> str:
        """The line that says what ran; empty for a kind that has none."""
        line = line_of(self.ran) if self.ran else ""
        if self.recorded:
            return line
        return f"What ran was not recorded; from the settings: {line}" if line else "What ran was not recorded."


@frozen
class Kind:
    """A kind of subject: which paths hold such subjects, and how they are read."""

    recognizes: Callable[[Path, Any], bool]
    """Whether a path is of this kind; also given the content of a .json file, and None for any other path."""
    read: Callable[[Path, bool], Sequence[Subject]]
    """The subjects of a path that was recognized; briefly, so settings and results alone, if the flag is set. Raises
    ConfigError where nothing can be read."""
    order: int
    """Kinds are asked in this order, and the first one that recognizes a path reads it."""
    scores: Callable[[Sequence[Subject]], list[str]] = lambda _: []
    """Scores of several subjects of this kind together, for the terminal."""


def kinds() -> list[Kind]:
    """Every kind, in the order in which they are asked."""
    return sorted(load_group(GROUP, Kind).values(), key=lambda kind: kind.order)
