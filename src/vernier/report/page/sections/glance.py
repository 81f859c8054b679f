"""The first section: a card per subject. What a card shows of its subject is up to the kind of the subject."""

from collections.abc import Sequence

from markupsafe import Markup

from vernier.report.logs.work import NOT_IN_LOG
from vernier.report.page.figures import COLOURS, Content, Section
from vernier.report.page.html import div, facts, folded, tag
from vernier.report.page.identity import differing_parts
from vernier.report.page.subjects import Subject

SHOWN_WARNINGS, SHOWN_NOTES = 8, 3


def glance(subjects: list[Subject]) -> Content:
    differing = differing_parts([s.parts for s in subjects])
    return Content(parts=[div("runs", *(card(s, differing, several=len(subjects) > 1) for s in subjects))])


def card(s: Subject, differing: Sequence[str] = (), *, several: bool = False) -> Markup:
    """A card; of several with the subject's colour, and with those parts of what ran in which they differ."""
    mark = tag("span", cls=f"mark c{(s.colour or 0) % COLOURS}", aria_hidden="true") if several else None
    known_parts = [(part, text) for part in differing if (text := s.parts.get(part, "")) != NOT_IN_LOG]
    line = s.what_ran()
    ran = tag("p", line, cls="ran")
    first = "bad" if s.status in ("crashed", "failed") else None
    return tag(
        "article",
        div("run-head", mark, tag("h3", s.name)),
        div("chips", *s.chips()),
        tag("p", s.note, cls="user-note") if s.note else None,
        facts([*known_parts, *s.facts()]),
        tag("dl", *s.tiles(), cls="tiles"),
        *s.published(),
        folded(s.messages(), SHOWN_WARNINGS, "warnings", first),
        folded(s.notes, SHOWN_NOTES, "notes"),
        # Folded away: the page's head has it too. Open where it was not recorded.
        tag("details", tag("summary", "what ran, in one line"), ran, open=not s.recorded) if line else None,
        cls="card",
    )


SECTION = Section(title="At a glance", order=0, of=Subject, build=glance)
