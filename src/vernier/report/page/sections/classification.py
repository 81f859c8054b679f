"""Classification: which classes are confused, and the mistakes the network was most sure of."""

from typing import Any

from markupsafe import Markup

from vernier.records.predictions import Mistake, Mistakes
from vernier.report.page.collect import Subject
from vernier.report.page.figures import Figure, Section, grid
from vernier.report.page.html import Column, joined, section, table, tag

WORST, HEAT, PAIRS, BASE64 = 20, 12, 50, frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")


def classification(subjects: list[Subject]) -> Section | None:
    runs = [s for s in subjects if s.mistakes and s.mistakes.classes]
    if not runs:
        return None
    figures: list[Figure] = []
    parts: list[Markup] = []
    for number, s in enumerate(runs):
        made = [f for f in (_worst(s, number), _confusion(s, number)) if f]
        figures += made
        head = tag("h3", s.name, style="margin-bottom:10px") if len(runs) > 1 else None
        parts.append(
            tag("div", head, grid(made), _pairs(s, number), _mistakes(s), cls="stack", style="margin-bottom:26px")
        )
    html = section("classification", "Classification", "What the last evaluation got wrong.", joined(parts))
    return Section(name="classification", title="Classification", html=html, figures=figures)


def class_name(document: Mistakes, index: int) -> str:
    classes = document.classes
    return str(classes[index]) if 0 <= index < len(classes) else f"output {index}"


def _accuracy(document: Mistakes) -> list[tuple[float, int, int]]:
    """(accuracy, class, samples) of the classes that were seen, worst first."""
    counts = zip(document.samples, document.correct, strict=True)
    return sorted((100 * hits / seen, i, seen) for i, (seen, hits) in enumerate(counts) if seen)


def _worst(s: Subject, number: int) -> Figure | None:
    assert s.mistakes is not None
    found = _accuracy(s.mistakes)
    rows: list[list[Any]] = [[class_name(s.mistakes, i), accuracy, seen] for accuracy, i, seen in found[:WORST]]
    title = f"The {len(rows)} worst of {len(found)} classes" if len(found) > len(rows) else "Accuracy by class"
    chart = {
        "type": "bars",
        "category": "class",
        "value": "accuracy %",
        "max": 100,
        "unit": " %",
        "xTitle": "% of its images recognised",
    }
    return (
        Figure(name=f"classes-{number}", title=title, chart=chart, columns=["class", "accuracy %", "images"], rows=rows)
        if rows
        else None
    )


def _confusion(s: Subject, number: int) -> Figure | None:
    """Counts among the worst classes; what else they were taken for is one column."""
    document = s.mistakes
    assert document is not None
    worst = sorted(i for _, i, _ in _accuracy(document)[:HEAT])
    counts = {(t, p): n for t, p, n in document.confused}
    if not counts:
        return None
    rows: list[list[Any]] = []
    for truth in worst:
        hits, seen = document.correct[truth], document.samples[truth]
        inside = [hits if truth == other else counts.get((truth, other), 0) for other in worst]
        rows += [
            [class_name(document, truth), class_name(document, other), n]
            for other, n in zip(worst, inside, strict=True)
        ]
        if len(worst) < len(document.classes):
            rows.append([class_name(document, truth), "any other", seen - sum(inside)])
    title = "Confusion of the worst classes" if len(worst) < len(document.classes) else "Confusion"
    chart = {
        "type": "heat",
        "row": "truth",
        "column": "taken for",
        "value": "images",
        "good": True,
        "cell": 52,
        "xTitle": "down: what it is, across: what it was taken for",
    }
    return Figure(
        name=f"confusion-{number}", title=title, chart=chart, columns=["truth", "taken for", "images"], rows=rows
    )


def _pairs(s: Subject, number: int) -> Markup | None:
    document = s.mistakes
    assert document is not None
    rows = [
        [
            class_name(document, t),
            class_name(document, p),
            n,
            n / document.samples[t] if document.samples[t] else None,
        ]
        for t, p, n in document.confused[:PAIRS]
    ]
    if not rows:
        return None
    columns = [
        Column("class", wrap=True),
        Column("taken for", wrap=True),
        Column("images"),
        Column("of the class", meter=True),
    ]
    return tag("div", table(f"pairs-{number}", columns, rows, "Confused most often"), cls="card")


def _mistakes(s: Subject) -> Markup | None:
    document = s.mistakes
    assert document is not None
    if not document.mistakes:
        return None
    return tag(
        "div",
        tag("div", tag("h3", "Mistakes it was most sure of"), cls="table-tools"),
        tag("div", *(_thumb(document, m) for m in document.mistakes), cls="thumbs"),
        cls="card",
    )


def _thumb(document: Mistakes, mistake: Mistake) -> Markup:
    took, was = class_name(document, mistake.taken_for), class_name(document, mistake.truth)
    return tag(
        "div",
        picture(mistake.jpeg, f"{was}, taken for {took}"),
        tag("div", f"{took} {100 * mistake.score:.0f} %", cls="took"),
        tag("div", f"is {was}, given\u00a0{100 * mistake.truth_score:.0f}\u00a0%", cls="was"),
        cls="thumb",
        title=mistake.image,
    )


def picture(jpeg: str | None, alt: str) -> Markup:
    """An image that the run kept; a grey square where it kept none."""
    good = jpeg is not None and BASE64.issuperset(jpeg)
    source = (
        f"data:image/jpeg;base64,{jpeg}"
        if good
        else "data:image/gif;base64,R0lGODlhAQABAIAAAMLCwgAAACH5BAAAAAAALAAAAAABAAEAAAICRAEAOw=="
    )
    return Markup('<img src="{}" alt="{}" decoding="async">').format(source, alt)
