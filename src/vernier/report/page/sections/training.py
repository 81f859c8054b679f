"""The training section: loss, accuracy, learning rate, throughput and data wait; the first images; where the time went.

Charts are over epochs, steps or time, as the reader chooses.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from vernier.records.predictions import TrainImages
from vernier.report.page.figures import (
    Boxes,
    Content,
    Figure,
    Lines,
    Row,
    Section,
    Stack,
    grid,
    run_legend,
    with_data,
)
from vernier.report.page.html import div, note, tag
from vernier.report.page.runs import Run
from vernier.report.page.training import HEADLINES, EvalPoint, Point, Training

from .classification import picture

# The colors of `figures.PHASE_COLOURS` for the same things: data 4, computing 0, communication 3.
PARTS = {
    "data_wait": ("waiting for data", 4),
    "compute": ("computing", 0),
    "communication": ("communication", 3),
    "evaluation": ("evaluation", 2),
    "checkpoint": ("checkpoints", 5),
    "other": ("other", 7),
}
"""Parts of the time: label and number of its colour."""
# Name and title of the figure; keys of `EvalResult.figures` and their labels; unit (none: from 0 to 1).
METRICS = (
    ("accuracy", "Accuracy", {"top1": "top-1", "top5": "top-5"}, "%"),
    ("ap", "Average precision", {name: name for name in ("AP", "AP50", "AP75")}, ""),
    ("eval-accuracy", "Accuracy as the log gives it", {"eval_accuracy": ""}, ""),
)
TIME = "time s"
AXES = ("epoch", "step", TIME)
"""Columns of every chart of a training, which can be its x axis."""
PROCESS_POINTS = 150  # windows per run; each is one dot per process
SHOWN_IMAGES = 16


def training(subjects: list[Training]) -> Content | None:
    runs = [s for s in subjects if s.points or s.evals]
    if not runs:
        return None
    ranges = x_ranges(runs)
    charts = (*_losses(runs), *_metrics(runs), _lr(runs), _throughput(runs), _wait(runs), _processes(runs), _time(runs))
    figures = [_with_axis(f, ranges) for f in with_data(*charts)]
    control = div(
        "controls",
        _axis_switch(ranges),
        tag(
            "label",
            "smoothing ",
            Markup('<input type="range" id="smooth" min="0" max="0.98" step="0.02" value="0">'),
            " ",
            tag("output", "0", id="smooth-value", for_="smooth"),
        ),
        tag("span", "drag over a chart to zoom, double-click for all; arrow keys move the cursor", cls="note"),
    )
    lead = f"{len(runs)} runs over one another; a click on a name hides it." if len(runs) > 1 else ""
    parts = [control, run_legend(runs), grid(figures), _first_images(runs)]
    return Content(lead=lead, parts=parts, figures=figures)


def x_ranges(runs: Sequence[Training]) -> dict[str, tuple[float, float]]:
    """The columns that charts can have as their x axis, from 0 to the largest value; without those no run has."""
    moments: list[Point | EvalPoint] = []
    for s in runs:
        moments += [*s.points]
        moments += [*s.evals]
    # MLPerf logs have no steps; an axis that no run has is not offered.
    largest = {
        "epoch": max((m.epoch for m in moments), default=0.0),
        "step": max((m.step or 0.0 for m in moments), default=0.0),
        TIME: max((m.time_s for m in moments), default=0.0),
    }
    return {name: (0.0, float(end)) for name, end in largest.items() if end > 0 or name == "epoch"}


def moment(at: Point | EvalPoint) -> list[Any]:
    """The cells of AXES for a point."""
    return [at.epoch, at.step, at.time_s]


def _axis_switch(ranges: Mapping[str, object]) -> Markup | None:
    if len(ranges) < 2:
        return None
    buttons = [
        tag("button", name.removesuffix(" s"), type="button", data_do="axis", data_axis=name, aria_pressed="false")
        for name in ranges
    ]
    return tag("span", "x axis ", *buttons, cls="switch", role="group", aria_label="x axis")


def _with_axis(figure: Figure, ranges: dict[str, tuple[float, float]]) -> Figure:
    """Charts side by side have the same axis."""
    return replace(figure, chart=replace(figure.chart, x_ranges=ranges)) if isinstance(figure.chart, Lines) else figure


def _losses(runs: list[Training]) -> list[Figure]:
    """One figure per task: losses of classifiers and detectors have no common scale."""
    # Before its first evaluation, a detector is known by the metric of its start event.
    detectors = [
        s for s in runs if any("AP" in e.result.figures for e in s.evals) or (s.start and s.start.metric == "AP")
    ]
    others = [s for s in runs if s not in detectors]
    if not detectors or not others:
        return [_loss(runs, "loss", "Loss")]
    return [_loss(others, "loss", "Loss of classifiers"), _loss(detectors, "loss-detect", "Loss of detectors")]


def _loss(runs: list[Training], name: str, title: str) -> Figure:
    rows = [
        *([s.name, *moment(p), p.loss, "training", None] for s in runs for p in s.points if p.loss is not None),
        *([*row[:-1], "validation", row[-1]] for row in _eval_rows(runs, "loss")),  # `on` comes before `best`
    ]
    chart = Lines(
        "epoch",
        "loss",
        by="run",
        dash="on",
        best="best",
        smooth=True,
        log=True,
        zero=True,
        y_title=_loss_name(runs),
    )
    columns, caption = ["run", *AXES, "loss", "on", "best"], _why_above_validation(runs)
    return Figure(name, title, chart, columns, rows, caption=caption)


def _loss_name(runs: list[Training]) -> str:
    """The loss that all runs share, with its unit; just `loss` where it is not known or differs."""
    kinds = [_recipe(s, "loss").get("kind") for s in runs if "AP" not in (s.result.figures if s.result else {})]
    names = {kind if isinstance(kind, str) else None for kind in kinds}
    name = names.pop() if len(names) == 1 else None
    return f"{name}, nats per image" if name == "cross-entropy" else f"loss: {name}" if name else "loss"


def _recipe(s: Training, part: str) -> dict[str, Any]:
    tree = s.recipe.get(part)
    return tree if isinstance(tree, dict) else {}


def _why_above_validation(runs: list[Training]) -> str:
    """Why training loss lies above validation loss where it does: what only training has, from the settings."""
    above = [s for s in runs if _ends_above(s)]
    reasons = dict.fromkeys(reason for s in above for reason in _reasons(s))
    return f"Training loss can lie above validation loss: {'; '.join(reasons)}." if reasons else ""


def _ends_above(s: Training) -> bool:
    losses, validation = [p.loss for p in s.points if p.loss is not None], s.figure("loss")
    tail = losses[-max(1, len(losses) // 20) :]  # the last 5 %: the loss of a single window is noisy
    return bool(tail) and validation is not None and sum(tail) / len(tail) > validation


def _reasons(s: Training) -> list[str]:
    """Settings of another system are named differently: of its log only the ones that most training code has."""
    augment, loss, known = _recipe(s, "augment"), _recipe(s, "loss"), s.settings
    mixed = any(augment.get(name) or known.get(name) for name in ("mixup", "cutmix"))
    cropped = augment.get("crop", "none") != "none" or bool(augment.get("flip"))
    averaged = s.result is not None and s.result.averaged
    reasons = {
        "training images are cropped and flipped at random": cropped,
        "training images are mixed with others (mixup, cutmix)": mixed,
        "training labels are smoothed": bool(loss.get("label_smoothing") or known.get("label_smoothing")),
        "the network drops paths at random while it trains": bool(_recipe(s, "model").get("drop_path")),
        "validation uses averaged weights": averaged,
        "it is the mean over steps before the evaluation": not s.foreign,  # how other systems average is not known
    }
    return [reason for reason, applies in reasons.items() if applies]


def _eval_rows(runs: list[Training], key: str) -> list[list[Any]]:
    """Run, epoch, step, time, value, and whether it is the run's best evaluation."""
    return [
        [s.name, *moment(e), value, True if e is best and len(s.evals) > 1 else None]  # one evaluation has no best
        for s, best in ((s, s.best) for s in runs)
        for e in s.evals
        if (value := e.result.figures.get(key)) is not None
    ]


def _metrics(runs: list[Training]) -> list[Figure]:
    figures = []
    for name, title, labels, unit in METRICS:
        rows = [
            # The best evaluation is that by the headline metric; on top-5 or AP50 the ring need not be at the maximum.
            [*row[:-2], label, row[-2], row[-1] if key in HEADLINES else None]
            for s in runs
            for key, label in labels.items()
            if key != "top5" or s.shows_top5
            for row in _eval_rows([s], key)
        ]
        chart = Lines(
            "epoch",
            "value",
            by="run",
            dash="figure",
            best="best",
            marks=len(rows) < 200,  # beyond that, dots cover the lines
            unit=f" {unit}".rstrip(),
            y_title=f"{title.lower()}, {unit or '0 to 1'}",
        )
        columns = ["run", *AXES, "figure", "value", "best"]
        caption = "on the validation set"
        figures.append(Figure(name, title, chart, columns, rows, caption=caption))
    return figures


def _over_epochs(
    name: str, title: str, runs: list[Training], value: Callable[[Point], float | None], chart: Lines, caption: str = ""
) -> Figure:
    rows: list[Row] = [[s.name, *moment(p), y] for s in runs for p in s.points if (y := value(p)) is not None]
    columns = ["run", *AXES, chart.y]
    return Figure(name, title, chart, columns, rows, caption=caption)


def _lr(runs: list[Training]) -> Figure:
    chart = Lines("epoch", "learning rate", by="run", zero=True, log=True)
    return _over_epochs("lr", "Learning rate", runs, lambda p: p.lr, chart)


def _throughput(runs: list[Training]) -> Figure:
    chart = Lines("epoch", "images per second", by="run", zero=True, smooth=True, unit=" img/s")
    caption = "samples through the optimiser, all devices, over wall time, data loading included"
    # A log without the number of samples has no line, since one at 0 would look measured.
    return _over_epochs("throughput", "Throughput", runs, lambda p: p.window.samples_per_s or None, chart, caption)


def _wait(runs: list[Training]) -> Figure:
    recorded = [s for s in runs if any(p.window.data_wait_s for p in s.points)]  # not every log has it
    chart = Lines("epoch", "% of step time", by="run", zero=True, smooth=True, unit=" %")
    caption = "above 10 % the loader sets the pace"  # LOADER_BOUND_SHARE
    return _over_epochs("wait", "Data wait", recorded, lambda p: 100 * p.window.data_wait_share, chart, caption)


def _time(runs: list[Training]) -> Figure:
    return Figure(
        "budget",
        "Where the time went",
        Stack("run", "part", "seconds", "s", dict(PARTS.values())),
        ["run", "part", "seconds"],
        [[s.name, label, t] for s in runs for key, (label, _) in PARTS.items() if (t := s.spent_s.get(key, 0)) > 0],
        wide=True,
    )


def _processes(runs: list[Training]) -> Figure:
    """The busy time of each process per step, before it waited for the others: a slow process stands out."""
    rows: list[list[Any]] = [
        [f"{s.name}, rank {rank}" if len(runs) > 1 else f"rank {rank}", f"rank {rank}", 1000 * own]
        for s in runs
        for p in s.points[:: -(-len(s.points) // PROCESS_POINTS) or 1]  # `or 1`: no points give a stride of 0
        for rank, own in enumerate(p.own_s or ())
    ]
    return Figure(
        "processes",
        "Own time of each process",
        Boxes("process", "ms per step", "rank"),
        ["process", "rank", "ms per step"],
        rows,
        caption="busy time per step, before waiting for the others; each dot is a window of steps",
    )


# --------------------------------------------------------------------------------------------------------- first images


def _first_images(runs: list[Training]) -> Markup | None:
    """The first training images as the network got them; once for runs that got the same ones."""
    names: dict[TrainImages, list[str]] = {}  # equal records are one key: runs that got the same images
    for s in runs:
        if isinstance(s, Run) and s.train_images and s.train_images.images:
            names.setdefault(s.train_images, []).append(s.name)
    if not names:
        return None
    several = len(runs) > 1
    mixed = any(_recipe(s, "augment").get(name) for s in runs for name in ("mixup", "cutmix"))
    how = "cropped, flipped and coloured as in training" + ("; before mixing with others" if mixed else "")
    sheets = [
        div(
            "sheet",
            note(", ".join(shared)) if several else None,
            # Images with boxes, which name no class, are shown larger: so that the boxes are seen.
            div(
                "thumbs small" if any(image.class_name for image in images.images) else "thumbs",
                *(
                    div("thumb", picture(image.jpeg, image.class_name), div("was", image.class_name))
                    for image in images.images[:SHOWN_IMAGES]
                ),
            ),
        )
        for images, shared in names.items()
    ]
    sizes = ", ".join(dict.fromkeys(f"{images.width} x {images.height} pixels" for images in names))
    title = div("table-tools", tag("h3", "The first training images, as the network gets them"))
    return div("card apart", title, tag("p", f"{how}; {sizes}", cls="caption"), *sheets)


SECTION = Section(title="Training", order=20, of=Training, build=training)
