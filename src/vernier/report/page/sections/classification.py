"""The classification section: accuracy by class, confused classes, and the most confident mistakes."""

from markupsafe import Markup

from vernier.records.predictions import Mistake, Mistakes
from vernier.report.page.figures import Bars, Content, Figure, Heat, Section, stacks
from vernier.report.page.html import Cell, Column, div, table, tag
from vernier.report.page.runs import Run

WORST, HEAT, PAIRS = 20, 12, 50
BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
GREY = "data:image/gif;base64,R0lGODlhAQABAIAAAMLCwgAAACH5BAAAAAAALAAAAAABAAEAAAICRAEAOw=="


def classification(subjects: list[Run]) -> Content | None:
    evaluated = [(s.name, s.mistakes) for s in subjects if s.mistakes and s.mistakes.classes]
    runs = [
        (name, (), [_worst_classes(m), _confusion(m)], [_pairs(m, number), _thumbs(m)])
        for number, (name, m) in enumerate(evaluated)
    ]
    return stacks("What the last evaluation got wrong.", runs)


def class_name(mistakes: Mistakes, index: int) -> str:
    """The name of a class; a network may have more outputs than the data has classes."""
    return mistakes.classes[index] if 0 <= index < len(mistakes.classes) else f"output {index}"


def _accuracy(mistakes: Mistakes) -> list[tuple[float, int, int]]:
    """(accuracy in percent, class, samples) of the classes with samples, worst first."""
    counts = enumerate(zip(mistakes.samples, mistakes.correct, strict=True))
    return sorted((100 * correct / samples, i, samples) for i, (samples, correct) in counts if samples)


def _worst_classes(mistakes: Mistakes) -> Figure:
    classes = _accuracy(mistakes)
    rows: list[list[str | float]] = [
        [class_name(mistakes, i), accuracy, samples] for accuracy, i, samples in classes[:WORST]
    ]
    title = f"The {len(rows)} worst of {len(classes)} classes" if len(classes) > len(rows) else "Accuracy by class"
    chart = Bars("class", "accuracy %", max=100, unit=" %", x_title="% of its images recognised")
    columns = ["class", "accuracy %", "images"]
    return Figure("classes", title, chart, columns, rows)


def _confusion(mistakes: Mistakes) -> Figure | None:
    """Counts among the worst classes; all other predictions for them are one column."""
    worst = sorted(i for _, i, _ in _accuracy(mistakes)[:HEAT])
    counts = {(truth, taken_for): n for truth, taken_for, n in mistakes.confused}
    if not counts:
        return None
    rows: list[list[str | int]] = []
    for truth in worst:
        name, correct = class_name(mistakes, truth), mistakes.correct[truth]
        inside = [correct if truth == other else counts.get((truth, other), 0) for other in worst]
        rows += [[name, class_name(mistakes, other), n] for other, n in zip(worst, inside, strict=True)]
        if len(worst) < len(mistakes.classes):
            rows.append([name, "any other", mistakes.samples[truth] - sum(inside)])
    return Figure(
        "confusion",
        "Confusion of the worst classes" if len(worst) < len(mistakes.classes) else "Confusion",
        Heat(
            "truth",
            "taken for",
            "images",
            good=True,
            cell=52,
            x_title="down: what it is, across: what it was taken for",
        ),
        ["truth", "taken for", "images"],
        rows,
    )


def _pairs(mistakes: Mistakes, number: int) -> Markup | None:
    rows: list[list[Cell]] = []
    for truth, taken_for, n in mistakes.confused[:PAIRS]:
        samples = mistakes.samples[truth]
        rows.append([class_name(mistakes, truth), class_name(mistakes, taken_for), n, n / samples if samples else None])
    if not rows:
        return None
    columns = [
        Column("class", wrap=True),
        Column("taken for", wrap=True),
        Column("images"),
        Column("of the class", meter=True),
    ]
    return div("card", table(f"pairs-{number}", columns, rows, "Confused most often"))


def _thumbs(mistakes: Mistakes) -> Markup | None:
    if not mistakes.mistakes:
        return None
    return div(
        "card",
        div("table-tools", tag("h3", "Mistakes it was most sure of")),
        div("thumbs", *(_thumb(mistakes, m) for m in mistakes.mistakes)),
    )


def _thumb(mistakes: Mistakes, mistake: Mistake) -> Markup:
    took, was = class_name(mistakes, mistake.taken_for), class_name(mistakes, mistake.truth)
    return div(
        "thumb",
        picture(mistake.jpeg, f"{was}, taken for {took}"),
        div("took", f"{took} {100 * mistake.score:.0f} %"),
        div("was", f"is {was}, given\u00a0{100 * mistake.truth_score:.0f}\u00a0%"),
        title=mistake.image,
    )


def picture(jpeg: str | None, alt: str) -> Markup:
    """A thumbnail of the run, in base64; a grey square where there is none."""
    source = f"data:image/jpeg;base64,{jpeg}" if jpeg is not None and BASE64.issuperset(jpeg) else GREY
    return Markup('<img src="{}" alt="{}" decoding="async">').format(source, alt)


SECTION = Section(title="Classification", order=40, of=Run, build=classification)
