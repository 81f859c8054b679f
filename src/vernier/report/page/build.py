"""Joins the sections of a page, their figures as data, style and scripts into one file that loads nothing else."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from vernier.clock import utc_stamp
from vernier.version import describe_version
from vernier.wording import plural

from .collect import Subject
from .figures import Figure, Section
from .html import div, joined, tag
from .identity import Parts, summary_of_parts
from .numbers import when
from .sections import SECTIONS
from .sections.runs import runs_table

# Joined into one element, whose hash is in the policy.
SCRIPTS = ("numbers.js", "draw.js", "charts.js", "plots.js", "runs.js", "picture.js", "page.js")
_JOINED_TO = {"batch": "devices", "precision": "mode"}
_JOINED = {"devices": " x ", "mode": " "}
"""Parts of what ran that stand beside another one."""
BRAND = Markup(
    '<svg viewBox="0 0 46 14" aria-hidden="true">'
    '<path d="M1 13V1M6 13V7M11 13V7M16 13V1M21 13V7M26 13V7M31 13V1M36 13V7M41 13V7M45 13V1" '
    'stroke="currentColor" stroke-width="1.6" fill="none"/></svg>'
)


@dataclass(frozen=True)
class Page:
    """The content of a page."""

    title: str
    top: Markup
    sections: tuple[Section, ...]
    ran: str = ""
    """What ran, in one line; saved pictures have it in small print."""

    @property
    def figures(self) -> dict[str, Figure]:
        return {f.name: f for s in self.sections for f in s.figures}

    def html(self, *, live: bool = False) -> str:
        """The text of the HTML file."""
        script = "\n".join(map(_resource, SCRIPTS))
        text = Markup(_resource("template.html")).format(  # noqa: S704  Vernier's own file
            live=Markup(' data-live="yes"') if live else "",
            policy=_policy(script, live=live),
            title=f"{self.title} · Vernier",
            ran=self.ran or self.title,
            style=Markup(_resource("style.css")),  # noqa: S704  Vernier's own file
            top=self.top,
            contents=self.contents(),
            sections=joined(s.html for s in self.sections),
            light=tag("span", "live", id="live", cls="live", role="status") if live else Markup(""),
            footer=f"Made by Vernier {describe_version()} from run directories alone; it needs no network.",
            figures=Markup(self.figures_json()),  # noqa: S704  made safe there
            script=Markup(script),  # noqa: S704  Vernier's own file
        )
        return _encodable(str(text))

    def contents(self) -> Markup:
        return joined(Markup('<a href="#{}">{}</a>').format(s.name, s.title) for s in self.sections)

    def figures_json(self) -> str:
        """The data of all figures, escaped so that nothing in it can end the script element."""
        text = json.dumps({name: f.data() for name, f in self.figures.items()}, allow_nan=False, separators=(",", ":"))
        # HTML ends a script element at `</script`, also within a JSON string. JSON reads these escapes back.
        return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

    def update(self) -> dict[str, Any]:
        """The parts that the live view replaces."""
        parts = [{"id": s.name, "html": _encodable(str(s.html)), "digest": _digest(s)} for s in self.sections]
        return {
            "top": _encodable(str(self.top)),
            "contents": str(self.contents()),
            "sections": parts,
            "figures": self.figures_json(),
        }


def build(subjects: list[Subject], left_out: Sequence[Path] = ()) -> Page:
    """Make the page of some subjects, with the sections they have content for. `left_out` are smoke runs."""
    full = [s for s in subjects if not s.brief]
    # The table of runs comes second. It alone lists the runs that were read briefly.
    candidates = [SECTIONS[0](full), runs_table(subjects), *(make(full) for make in SECTIONS[1:])]
    sections = tuple(section for section in candidates if section is not None)
    title = subjects[0].name if len(subjects) == 1 else _title_of_several(subjects)
    kinds = ", ".join(dict.fromkeys(s.status if s.status != "foreign" else "another system's log" for s in subjects))
    if len(subjects) == 1 and subjects[0].heading != title:
        kinds, title = f"{title} · {kinds}", subjects[0].heading
    smoke = "SMOKE RUN: " if all(s.smoke for s in subjects) else ""
    note = f" · {plural(len(left_out), 'smoke run')} left out; name one to see it" if left_out else ""
    lead = f"{kinds} · made {when(utc_stamp())}{note}"
    parts = _joined_parts(summary_of_parts([s.parts for s in subjects]))
    head = [div("brand", BRAND, "Vernier report"), tag("h1", smoke, title), tag("p", lead, cls="lead"), _strip(parts)]
    return Page(f"{smoke}{title}", joined(head), sections, " · ".join(parts.values()))


def _title_of_several(subjects: Sequence[Subject]) -> str:
    recipes = {(s.settings.get("recipe") or {}).get("name") for s in subjects if s.kind == "training"}
    shared = next(iter(recipes)) if len(recipes) == 1 and all(s.kind == "training" for s in subjects) else None
    return f"{shared}: {plural(len(subjects), 'run')}" if shared else plural(len(subjects), "run")


def _joined_parts(parts: Parts) -> Parts:
    """What ran with batch and devices, and precision and mode, as one part each."""
    shown = {part: text for part, text in parts.items() if part not in _JOINED}
    for part, joined_part in _JOINED_TO.items():
        if part in shown and joined_part in parts:
            shown[part] = f"{shown[part]}{_JOINED[joined_part]}{parts[joined_part]}"
    return shown


def _strip(parts: Parts) -> Markup | None:
    """What ran and on what, in the head of the page."""
    # A text such as "batch 32" repeats the name of its part, which is the heading here.
    cells = [tag("div", tag("dt", part), tag("dd", text.removeprefix(f"{part} "))) for part, text in parts.items()]
    return tag("dl", *cells, cls="strip") if cells else None


def _encodable(text: str) -> str:
    """The text with a question mark for every half of a character, which JSON can hold and UTF-8 cannot."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _digest(section: Section) -> str:
    # The live page replaces a section only if its digest changed, so that zoom, open tables and scrolling stay.
    text = json.dumps([str(section.html), [f.data() for f in section.figures]])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _resource(name: str) -> str:
    return files("vernier.report.page").joinpath("assets", name).read_text(encoding="utf-8")


def _policy(script: str, *, live: bool) -> str:
    """The content security policy: only this script runs and nothing is fetched, whatever text a run contains."""
    # The hash is of exactly the text between the script tags. Inline styles are allowed: bars have their width in one.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
