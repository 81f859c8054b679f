"""The first section: a card per subject. What a card shows of its subject is up to the kind of the subject."""

from collections.abc import Sequence

from markupsafe import Markup

from vernier.report.page.figures import COLOURS, Content, Section
from vernier.report.page.html import div, fill, folded
from vernier.report.page.identity import NOT_IN_LOG, differing_parts
from vernier.report.page.subjects import Subject

SHOWN_WARNINGS, SHOWN_NOTES = 8, 3


def _glance(subjects: list[Subject]) -> Content:
    differing = differing_parts([s.parts for s in subjects])
    return Content(parts=[div("runs", *(_card(s, differing, several=len(subjects) > 1) for s in subjects))])


def _card(s: Subject, differing: Sequence[str] = (), *, several: bool = False) -> Markup:
    """A card; of several with the subject's colour, and with those parts of what ran in which they differ."""
    known_parts = [(part, text) for part in differing if (text := s.parts.get(part, "")) != NOT_IN_LOG]
    # The first message of such a run is the reason why it ended.
    first = "bad" if s.status in ("crashed", "failed") else None
    return fill(
        "card",
        s=s,
        several=several,
        colour=(s.colour or 0) % COLOURS,
        facts=[(name, value) for name, value in (*known_parts, *s.facts()) if value not in (None, "")],
        messages=folded(s.messages(), SHOWN_WARNINGS, "warnings", first),
        notes=folded(s.notes, SHOWN_NOTES, "notes"),
        line=s.what_ran(),
    )


SECTION = Section(title="At a glance", order=0, of=Subject, build=_glance)
