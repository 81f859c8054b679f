"""The classification section: accuracy by class, confused classes, and the most confident mistakes."""

from pathlib import Path

from markupsafe import Markup

from vernier.records.predictions import Mistake, Mistakes
from vernier.report.page.designs import read_designs
from vernier.report.page.figures import Content, Figure, Section, stacks
from vernier.report.page.html import Cell, card, div
from vernier.report.page.runs import Run

_DESIGNS = read_designs(Path(__file__).parent)
WORST, HEAT, PAIRS = 20, 12, 50
BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
GREY = "data:image/gif;base64,R0lGODlhAQABAIAAAMLCwgAAACH5BAAAAAAALAAAAAABAAEAAAICRAEAOw=="


def _classification(subjects: list[Run]) -> Content | None:
    evaluated = [(s.name, s.mistakes) for s in subjects if s.mistakes and s.mistakes.classes]
    runs = [
        (name, (), [_worst_classes(m), _confusion(m)], [_pairs(m, number), _thumbs(m)])
        for number, (name, m) in enumerate(evaluated)
    ]
    return stacks("What the last evaluation got wrong.", runs)


def _class_name(mistakes: Mistakes, index: int) -> str:
    """The name of a class; a network may have more outputs than the data has classes."""
    return mistakes.classes[index] if 0 <= index < len(mistakes.classes) else f"output {index}"


def _accuracy(mistakes: Mistakes) -> list[tuple[float, int, int]]:
    """(accuracy in percent, class, samples) of the classes with samples, worst first."""
    counts = enumerate(zip(mistakes.samples, mistakes.correct, strict=True))
    return sorted((100 * correct / samples, i, samples) for i, (samples, correct) in counts if samples)


def _worst_classes(mistakes: Mistakes) -> Figure:
    classes = _accuracy(mistakes)
    rows: list[list[str | float]] = [
        [_class_name(mistakes, i), accuracy, samples] for accuracy, i, samples in classes[:WORST]
    ]
    title = f"The {len(rows)} worst of {len(classes)} classes" if len(classes) > len(rows) else "Accuracy by class"
    return _DESIGNS.draw("classes", rows, {"title": title})


def _confusion(mistakes: Mistakes) -> Figure | None:
    """Counts among the worst classes; all other predictions for them are one column."""
    worst = sorted(i for _, i, _ in _accuracy(mistakes)[:HEAT])
    counts = {(truth, taken_for): n for truth, taken_for, n in mistakes.confused}
    if not counts:
        return None
    some = len(worst) < len(mistakes.classes)
    rows: list[list[str | int]] = []
    for truth in worst:
        name, correct = _class_name(mistakes, truth), mistakes.correct[truth]
        inside = [correct if truth == other else counts.get((truth, other), 0) for other in worst]
        rows += [[name, _class_name(mistakes, other), n] for other, n in zip(worst, inside, strict=True)]
        if some:
            rows.append([name, "any other", mistakes.samples[truth] - sum(inside)])
    return _DESIGNS.draw(
        "confusion", rows, {"of": " of the worst classes" if len(worst) < len(mistakes.classes) else ""}
    )


def _pairs(mistakes: Mistakes, number: int) -> Markup | None:
    rows: list[list[Cell]] = []
    for truth, taken_for, n in mistakes.confused[:PAIRS]:
        samples = mistakes.samples[truth]
        rows.append(
            [_class_name(mistakes, truth), _class_name(mistakes, taken_for), n, n / samples if samples else None]
        )
    return card(f"pairs-{number}", _DESIGNS.tables["pairs"], rows, "Confused most often") if rows else None


def _thumbs(mistakes: Mistakes) -> Markup | None:
    if not mistakes.mistakes:
        return None
    title = Markup('<div class="table-tools"><h3>Mistakes it was most sure of</h3></div>')
    return div("card", title, div("thumbs", *(_thumb(mistakes, m) for m in mistakes.mistakes)))


_THUMB = Markup(
    '<div class="thumb" title="{}">{}<div class="took">{} {:.0f} %</div><div class="was">is {}, given\u00a0'
    "{:.0f}\u00a0%</div></div>"
)


def _thumb(mistakes: Mistakes, mistake: Mistake) -> Markup:
    took, was = _class_name(mistakes, mistake.taken_for), _class_name(mistakes, mistake.truth)
    image = picture(mistake.jpeg, f"{was}, taken for {took}")
    return _THUMB.format(mistake.image, image, took, 100 * mistake.score, was, 100 * mistake.truth_score)


def picture(jpeg: str | None, alt: str) -> Markup:
    """A thumbnail of the run, in base64; a grey square where there is none."""
    # Run directories come from anywhere: what is no base64 could end the attribute.
    source = f"data:image/jpeg;base64,{jpeg}" if jpeg is not None and BASE64.issuperset(jpeg) else GREY
    return Markup('<img src="{}" alt="{}" decoding="async">').format(source, alt)


SECTION = Section(title="Classification", order=40, of=Run, build=_classification)
