"""Joins the sections of a page, their figures as data, style and scripts into one file that loads nothing else.

Also writes that file, for `vernier report` and for Python.

A section that fails, such as one of an outside package, is shown as failed: the rest of the page is still of use.
"""

import base64
import hashlib
import json
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from vernier.clock import utc_stamp
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.plugins import describe_failures
from vernier.references import given, use
from vernier.store import write_atomically
from vernier.version import describe_version
from vernier.wording import plural

from .collect import collect, smoke_runs
from .figures import Content, Figure, Lines, Section, sections
from .html import div, joined, tag
from .identity import Parts, summary_of_parts
from .numbers import when
from .subjects import Subject

# Joined into one element, whose hash is in the policy.
SCRIPTS = ("numbers.js", "draw.js", "charts.js", "plots.js", "runs.js", "picture.js", "page.js")
_JOINED = {"devices": ("batch", " x "), "mode": ("precision", " ")}
"""Parts of what ran that are shown next to another one, and what is between them."""
BRAND = Markup(
    '<svg viewBox="0 0 46 14" aria-hidden="true">'
    '<path d="M1 13V1M6 13V7M11 13V7M16 13V1M21 13V7M26 13V7M31 13V1M36 13V7M41 13V7M45 13V1" '
    'stroke="currentColor" stroke-width="1.6" fill="none"/></svg>'
)


@dataclass(frozen=True)
class _BuiltSection:
    """A section with its content, as HTML and the figures in it."""

    name: str
    title: str
    html: Markup
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Page:
    """The content of a page."""

    title: str
    top: Markup
    sections: tuple[_BuiltSection, ...]
    ran: str = ""
    """What ran, in one line; saved pictures have it in small print."""

    @property
    def figures(self) -> dict[str, Figure]:
        return {f.name: f for s in self.sections for f in s.figures}

    def html(self) -> str:
        """The text of the HTML file."""
        script = "\n".join(map(_resource, SCRIPTS))
        text = Markup(_resource("template.html")).format(  # noqa: S704  Vernier's own file
            policy=_policy(script),
            title=f"{self.title} · Vernier",
            ran=self.ran or self.title,
            style=Markup(_resource("style.css")),  # noqa: S704  Vernier's own file
            top=self.top,
            contents=self.contents(),
            sections=joined(s.html for s in self.sections),
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


def build(subjects: list[Subject], left_out: Sequence[Path] = ()) -> Page:
    """Make the page of some subjects, with the sections they have content for. `left_out` are smoke runs."""
    candidates = [_build(name, each, subjects) for name, each in sections().items()]
    title = subjects[0].name if len(subjects) == 1 else _title_of_several(subjects)
    kinds = ", ".join(dict.fromkeys("another system's log" if s.foreign else s.status for s in subjects))
    if len(subjects) == 1 and subjects[0].heading != title:
        kinds, title = f"{title} · {kinds}", subjects[0].heading
    smoke = "SMOKE RUN: " if all(s.smoke for s in subjects) else ""
    note = f" · {plural(len(left_out), 'smoke run')} left out; name one to see it" if left_out else ""
    note += describe_failures("vernier.report_sections") + describe_failures("vernier.report_kinds")
    lead = f"{kinds} · made {when(utc_stamp())}{note}"
    parts = _joined_parts(summary_of_parts([s.parts for s in subjects]))
    head = [div("brand", BRAND, "Vernier report"), tag("h1", smoke, title), tag("p", lead, cls="lead"), _strip(parts)]
    return Page(f"{smoke}{title}", joined(head), tuple(filter(None, candidates)), " · ".join(parts.values()))


def _build(name: str, plugin: Section, subjects: Sequence[Subject]) -> _BuiltSection | None:
    chosen = [s for s in subjects if isinstance(s, plugin.of) and (plugin.brief or not s.brief)]
    content, failure = _try(plugin, chosen)
    failures = {s.name: why for s in chosen if failure and (why := _try(plugin, [s])[1])}
    if failures:
        content, failure = _try(plugin, [s for s in chosen if s.name not in failures])
    if failure:  # it fails for several at once
        failures = {"all of them": failure}
    if content is None and not failures:
        return None
    content = content or Content(parts=[])
    notices = [tag("p", f"This section could not be made for {s}: {why}", cls="notice") for s, why in failures.items()]
    html = _section(name, plugin.title, content.lead, *content.parts, *notices, cls=content.cls)
    # A run has one colour on the whole page, which follows from its position among all names.
    names = tuple(s.name for s in subjects if not s.brief)
    figures = tuple(
        replace(f, chart=replace(f.chart, colours=names)) if isinstance(f.chart, Lines) and f.chart.by == "run" else f
        for f in content.figures
    )
    return _BuiltSection(name, plugin.contents or plugin.title, html, figures)


def _section(name: str, title: str, lead: Any, *children: Any, cls: str | None = None) -> Markup:
    heading = Markup('<h2 id="{}-title">{}</h2>').format(name, title)
    sentence = tag("p", lead, cls="section-lead") if lead else None
    return tag("section", heading, sentence, *children, cls=cls, id=name, aria_labelledby=f"{name}-title")


def _try(plugin: Section, subjects: list[Subject]) -> tuple[Content | None, str]:
    """What a section shows of some subjects; why it fails, with the line of its code, or an empty text."""
    try:
        return (plugin.build(subjects) if subjects else None), ""
    except Exception as error:  # the code of any package may run here
        at = traceback.extract_tb(error.__traceback__)[-1]
        return None, f"{type(error).__name__}: {error} ({Path(at.filename).name}, line {at.lineno})."


def _title_of_several(subjects: Sequence[Subject]) -> str:
    recipes = {s.recipe.get("name") for s in subjects if s.kind == "training"}
    shared = next(iter(recipes)) if len(recipes) == 1 and all(s.kind == "training" for s in subjects) else None
    return f"{shared}: {plural(len(subjects), 'run')}" if shared else plural(len(subjects), "run")


def _joined_parts(parts: Parts) -> Parts:
    """What ran with batch and devices, and precision and mode, as one part each."""
    shown = {part: text for part, text in parts.items() if part not in _JOINED}
    for part, (first, between) in _JOINED.items():
        if first in shown and part in parts:
            shown[first] = f"{shown[first]}{between}{parts[part]}"
    return shown


def _strip(parts: Parts) -> Markup | None:
    """What ran and on what, in the head of the page."""
    # A text such as "batch 32" repeats the name of its part, which is the heading here.
    cells = [tag("div", tag("dt", part), tag("dd", text.removeprefix(f"{part} "))) for part, text in parts.items()]
    return tag("dl", *cells, cls="strip") if cells else None


def _encodable(text: str) -> str:
    """The text with a question mark for every half of a character, which JSON can hold and UTF-8 cannot."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


@cache
def _resource(name: str) -> str:
    return files("vernier.report.page").joinpath("assets", name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """The content security policy: only this script runs and nothing is fetched, whatever text a run contains."""
    # The hash is of exactly the text between the script tags. Inline styles are allowed: bars have their width in one.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


# ------------------------------------------------------------------------------------------------------------ the file


@frozen
class WrittenPage:
    """A page that was written: its file and content, its subjects, and the smoke runs that were left out."""

    path: Path
    page: Page
    subjects: tuple[Subject, ...]
    left_out: tuple[Path, ...]


def _choose_file(paths: Sequence[Path], out: Path | None) -> Path:
    """The file of a page: as named, in the folder that is named, or report.html in the run or the current folder.

    Raises ConfigError for a file of another kind.
    """
    if out is not None and out.suffix not in ("", ".html", ".htm") and not out.is_dir():
        page = use("out", out.with_suffix(".html"))
        raise ConfigError(f"{given('out', out)}: reports are HTML. Use {page}; a browser prints it to PDF.")
    if out is not None:
        return out / "report.html" if out.is_dir() else out
    return (paths[0] if len(paths) == 1 and paths[0].is_dir() else Path()) / "report.html"


def write_page(paths: Sequence[Path], out: Path | None) -> WrittenPage:
    """Write one page about all paths; an older one is replaced. Raises ConfigError."""
    target = _choose_file(paths, out)
    subjects, left_out = collect(paths, target.resolve().parent), smoke_runs(paths)
    page = build(subjects, left_out)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, page.html())
    except OSError as error:
        raise ConfigError(f"Cannot write {given('out', target)}: {error.strerror}. Choose another file.") from None
    return WrittenPage(path=target, page=page, subjects=tuple(subjects), left_out=tuple(left_out))
