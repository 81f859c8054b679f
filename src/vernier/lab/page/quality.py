"""The section of the report about precision, recall and F1 by class, and about calibration."""

from markupsafe import Markup

from vernier.report.page.figures import Content, Section, stacks
from vernier.report.page.html import card, tag
from vernier.report.page.runs import Run

from .drawing import TABLES, draw

_TOTALS = {"balanced accuracy": "balanced_accuracy", "macro F1": "macro_f1", "expected calibration error": "ece"}


def _quality(subjects: list[Run]) -> Content | None:
    runs = []
    for number, run in enumerate(subjects):
        if run.result is None or (quality := run.result.quality) is None:
            continue
        known = {name: getattr(quality, field) for name, field in _TOTALS.items()}
        totals = ", ".join(f"{name} {value:.3f}" for name, value in known.items() if value is not None)
        # The diagonal is what a calibrated model would have: of images with score 0.8, 80 % are correct.
        bins = [["model", score, correct, images] for images, score, correct in quality.reliability]
        reliability = draw("reliability", [*bins, ["calibrated", 0.0, 0.0, 0], ["calibrated", 1.0, 1.0, 0]])
        columns = TABLES["quality"]
        rows = [[column.cell(each) for column in columns] for each in quality.classes]
        table: list[Markup] = [card(f"quality-{number}", columns, rows, "By class")] if rows else []
        runs.append((run.name, [tag("p", totals)], [reliability] if bins else [], table))
    return stacks("Every class counts the same here, however many images it has.", runs)


SECTION = Section(title="Quality by class", order=41, of=Run, build=_quality)
