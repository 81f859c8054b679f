"""The detection section: COCO's figures, average precision by class, and detected boxes on some images."""

from pathlib import Path

from markupsafe import Markup

from vernier.records.predictions import Box
from vernier.report.page.designs import read_designs
from vernier.report.page.figures import Content, Figure, Section, with_data
from vernier.report.page.html import Cell, Column, card, div, fill
from vernier.report.page.runs import Run
from vernier.report.page.training import Training

from .classification import picture

MEANINGS = {
    "AP": "precision, mean over IoU 0.50 to 0.95",
    "AP50": "precision at IoU 0.50",
    "AP75": "precision at IoU 0.75",
    "APs": "precision, small objects (under 32² pixels)",
    "APm": "precision, medium objects",
    "APl": "precision, large objects (over 96² pixels)",
    "AR1": "recall with one detection per image",
    "AR10": "recall with ten",
    "AR100": "recall with a hundred",
    "ARs": "recall, small objects",
    "ARm": "recall, medium objects",
    "ARl": "recall, large objects",
}
COLOURS = 8  # b0 to b7 of style.css, which do not follow the theme: boxes are on photographs
_SCORE_CONTROL = Markup(
    '<div class="controls apart"><label>least score shown <input type="range" id="least-score" min="0" max="0.95" '
    'step="0.05" value="0.3"> <output class="least-score">0.3</output></label><span class="note">dashed black and '
    "white: annotated; a colour per class: detected, with its score. Images with many boxes have no labels: point at a "
    "box, or raise the least score</span></div>"
)


def _detection(subjects: list[Training]) -> Content | None:
    # The table has twelve metrics. External logs such as MLPerf's have AP alone, which is in the other sections.
    runs = [s for s in subjects if None not in (s.figure("AP"), s.figure("AP50"))]
    if not runs:
        return None
    figures = with_data(_by_class(runs))
    rows: list[list[Cell]] = [[name, *(s.figure(name) for s in runs), meaning] for name, meaning in MEANINGS.items()]
    columns: list[Column | str] = [
        "figure",
        *(Column(s.name if len(runs) > 1 else "value", 3) for s in runs),
        Column("what it is", wrap=True),
    ]
    coco = card("coco", columns, rows, "COCO's twelve figures")
    examples = [_examples(s, len(runs) > 1) for s in runs if isinstance(s, Run) and s.examples]
    charts = div("grid", coco, *(f.html() for f in figures))
    parts = [charts, _SCORE_CONTROL if examples else None, *examples]
    return Content(lead="The last evaluation, on the validation set.", parts=parts, figures=figures)


def _by_class(runs: list[Training]) -> Figure:
    scores = [(c, s.name) for s in runs for c in (s.result and s.result.classes) or () if c.AP is not None]
    best: dict[str, float] = {}  # by the best run, so that the bars of all runs share one order
    for c, _ in scores:
        best[c.name] = max(best.get(c.name, 0.0), c.AP or 0.0)
    scores.sort(key=lambda score: (-best[score[0].name], score[0].name))
    rows = [[c.name, name, c.AP, c.AP50] for c, name in scores]
    return read_designs(Path(__file__).parent).draw("class-ap", rows, by="run" if len(runs) > 1 else None)


def _examples(s: Run, several: bool) -> Markup:
    classes = sorted(  # over all images: a class has the same color in each
        {t.class_name for e in s.examples for t in e.truth} | {o.class_name for e in s.examples for o in e.objects}
    )
    detected = {o.class_name for e in s.examples for o in e.objects}
    return fill(
        "examples",
        title=f"Examples of {s.name}" if several else "Examples",
        shown=[name for name in classes if name in detected],
        repeated="colours repeat after eight classes; every box names its class" if len(classes) > COLOURS else "",
        colours={name: number % COLOURS for number, name in enumerate(classes)},
        examples=s.examples,
        percent=_percent,
        picture=picture,
    )


def _percent(ltrb: Box, most: float = 100) -> tuple[float, ...]:
    """A box in percent of the image, which a detection can reach beyond."""
    return tuple(min(most, max(0.0, 100 * v)) for v in ltrb)


SECTION = Section(title="Detection", order=50, of=Training, build=_detection)
