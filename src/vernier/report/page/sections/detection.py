"""The detection section: COCO's figures, average precision by class, and detected boxes on some images."""

from markupsafe import Markup

from vernier.records.predictions import Box, DetectionExample, ScoredClass
from vernier.report.page.figures import Bars, Content, Figure, Section, with_data
from vernier.report.page.html import Cell, Column, div, table, tag
from vernier.report.page.numbers import number
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
LEAST_SCORE, COLOURS = 0.3, 8  # b0 to b7 of style.css, which do not follow the theme: boxes are on photographs


def detection(subjects: list[Training]) -> Content | None:
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
    coco = div("card", table("coco", columns, rows, "COCO's twelve figures"))
    examples = [_examples(s, len(runs) > 1) for s in runs if isinstance(s, Run) and s.examples]
    charts = div("grid", coco, *(f.html() for f in figures))
    parts = [charts, _score_control() if examples else None, *examples]
    return Content(lead="The last evaluation, on the validation set.", parts=parts, figures=figures)


def _score_control() -> Markup:
    slider = Markup('<input type="range" id="least-score" min="0" max="0.95" step="0.05" value="{}">')
    label = tag(
        "label",
        "least score shown ",
        slider.format(LEAST_SCORE),
        " ",
        tag("output", number(LEAST_SCORE), cls="least-score"),
    )
    note = tag(
        "span",
        "dashed black and white: annotated; a colour per class: detected, with its score. Images with many boxes have "
        "no labels: point at a box, or raise the least score",
        cls="note",
    )
    return div("controls apart", label, note)


def _by_class(runs: list[Training]) -> Figure:
    scores = [(c, s.name) for s in runs for c in (s.result and s.result.classes) or () if c.AP is not None]
    best: dict[str, float] = {}  # by the best run, so that the bars of all runs share one order
    for c, _ in scores:
        best[c.name] = max(best.get(c.name, 0.0), c.AP or 0.0)
    scores.sort(key=lambda score: (-best[score[0].name], score[0].name))
    return Figure(
        "class-ap",
        "AP by class",
        Bars("class", "AP", by="run" if len(runs) > 1 else None, x_title="AP"),
        ["class", "run", "AP", "AP50"],
        [[c.name, name, c.AP, c.AP50] for c, name in scores],
    )


def _examples(s: Run, several: bool) -> Markup:
    classes = sorted(  # over all images: a class has the same color in each
        {t.class_name for e in s.examples for t in e.truth} | {o.class_name for e in s.examples for o in e.objects}
    )
    title = tag("h3", f"Examples of {s.name}" if several else "Examples")
    shown = [n for n in classes if any(o.class_name == n for e in s.examples for o in e.objects)]
    keys = [
        tag("span", tag("i", cls=f"swatch b{classes.index(n) % COLOURS}"), tag("span", n), cls="key") for n in shown
    ]
    repeated = "colours repeat after eight classes; every box names its class" if len(classes) > COLOURS else ""
    legend = div("legend", *keys, tag("span", repeated, cls="note"))
    return div("card", div("table-tools", title), legend, div("examples", *(_example(e, classes) for e in s.examples)))


def _example(e: DetectionExample, classes: list[str]) -> Markup:
    objects = sorted(e.objects, key=lambda o: o.score)  # later elements are painted on top: the highest score last
    boxes = [_box(t.box, cls=cls) for t in e.truth for cls in ("under", "truth")]  # visible on light and dark
    labels = []
    for thing in objects:
        if thing.box:
            colour = classes.index(thing.class_name) % COLOURS
            boxes.append(
                _box(
                    thing.box,
                    f"{thing.class_name} {thing.score:.2f}",
                    cls=f"b{colour}",
                    data_score=f"{thing.score:.3f}",
                )
            )
            labels.append(_label(thing, thing.box, colour))
    # Stretched over the picture, whatever its shape: coordinates are percent of its width and height.
    drawing = tag("svg", *boxes, viewBox="0 0 100 100", preserveAspectRatio="none", aria_hidden="true")
    names = ", ".join(t.class_name for t in e.truth) or "no objects"
    return div(
        "example",
        div("picture", picture(e.jpeg, f"annotated: {names}"), drawing, *labels),
        div("name", e.image.replace("\\", "/").rsplit("/", 1)[-1], title=e.image),
    )


def _box(ltrb: Box, title: str = "", **attributes: str) -> Markup:
    left, top, right, bottom = (100 * min(1.0, max(0.0, v)) for v in ltrb)  # a detection can reach beyond the image
    rectangle = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    children = [tag("title", title)] if title else []
    return tag("rect", *children, **{name: f"{value:.2f}" for name, value in rectangle.items()}, **attributes)


def _label(thing: ScoredClass, ltrb: Box, colour: int) -> Markup:
    left, top = (100 * min(0.97, max(0.0, v)) for v in ltrb[:2])
    under = " under" if top < 8 else ""  # no room above the box
    return tag(
        "span",
        f"{thing.class_name} {thing.score:.2f}",
        cls=f"tag b{colour}{under}",
        style=f"left:{left:.1f}%;top:{top:.1f}%",
        data_score=f"{thing.score:.3f}",
    )


SECTION = Section(title="Detection", order=50, of=Training, build=detection)
