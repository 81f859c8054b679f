"""The training section: loss, accuracy, learning rate, throughput and data wait; the first images; where the time went.

Charts are over epochs, steps or time, as the reader chooses.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from vernier.records.predictions import TrainImages
from vernier.records.run import own_figures
from vernier.report.page.designs import read_designs
from vernier.report.page.figures import Content, Figure, Lines, Section, grid, run_legend, with_data
from vernier.report.page.html import div, fill, tag
from vernier.report.page.runs import Run
from vernier.report.page.training import HEADLINES, EvalPoint, Point, Training

from .classification import picture

_DESIGNS = read_designs(Path(__file__).parent)
PARTS = {
    "data_wait": "waiting for data",
    "compute": "computing",
    "compilation": "compiling",
    "communication": "communication",
    "evaluation": "evaluation",
    "checkpoint": "checkpoints",
    "other": "other",
}
"""Labels of the parts of the time."""
# For each chart, keys of `EvalResult.figures` and their labels.
METRICS = {
    "accuracy": {"top1": "top-1", "top5": "top-5"},
    "ap": {name: name for name in ("AP", "AP50", "AP75")},
    "eval-accuracy": {"eval_accuracy": ""},
}
TIME = "time s"
AXES = ("epoch", "step", TIME)
"""Columns of every chart of a training, which can be its x axis."""
PROCESS_POINTS = 150  # windows per run; each is one dot per process
SHOWN_IMAGES = 16
_CONTROLS = Markup(
    '<label>smoothing <input type="range" id="smooth" min="0" max="0.98" step="0.02" value="0"> '
    '<output id="smooth-value" for="smooth">0</output></label><span class="note">drag over a chart to zoom, '
    "double-click for all; arrow keys move the cursor</span>"
)


def _training(subjects: list[Training]) -> Content | None:
    runs = [s for s in subjects if s.points or s.evals]
    if not runs:
        return None
    ranges = x_ranges(runs)
    charts = (*_losses(runs), *_metrics(runs), _lr(runs), _throughput(runs), _wait(runs), _processes(runs), _time(runs))
    # Charts side by side have the same axis.
    figures = [
        replace(f, chart=replace(f.chart, x_ranges=ranges)) if isinstance(f.chart, Lines) else f
        for f in with_data(*charts)
    ]
    lead = f"{len(runs)} runs over one another; a click on a name hides it." if len(runs) > 1 else ""
    parts = [div("controls", _axis_switch(ranges), _CONTROLS), run_legend(runs), grid(figures), _first_images(runs)]
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
    button = Markup('<button type="button" data-do="axis" data-axis="{}" aria-pressed="false">{}</button>')
    buttons = [button.format(name, name.removesuffix(" s")) for name in ranges]
    return tag("span", "x axis ", *buttons, cls="switch", role="group", aria_label="x axis")


def _losses(runs: list[Training]) -> list[Figure]:
    """One figure per task: losses of classifiers and detectors have no common scale."""
    # Before its first evaluation, a detector is known by the metric of its start event.
    detectors = [
        s for s in runs if any("AP" in e.result.figures for e in s.evals) or (s.start and s.start.metric == "AP")
    ]
    others = [s for s in runs if s not in detectors]
    if not detectors or not others:
        return [_loss(runs)]
    return [_loss(others, " of classifiers"), replace(_loss(detectors, " of detectors"), name="loss-detect")]


def _loss(runs: list[Training], of: str = "") -> Figure:
    rows = [
        *([s.name, *moment(p), p.loss, "training", None] for s in runs for p in s.points if p.loss is not None),
        *([*row[:-1], "validation", row[-1]] for row in _eval_rows(runs, "loss")),  # `on` comes before `best`
    ]
    return _DESIGNS.draw("loss", rows, {"of": of, "why": _why_above_validation(runs), "loss": _loss_name(runs)})


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
    """Reasons for a training loss above the validation loss: settings that only training has."""
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
    own = dict.fromkeys(name for s in runs for e in s.evals for name in own_figures(e.result.figures))
    charts: list[tuple[str, dict[str, str], dict[str, str]]] = [(name, labels, {}) for name, labels in METRICS.items()]
    # Metrics of the user's own share one design, and have a chart each.
    charts += [("own", {name: name}, {"metric": name}) for name in own]
    for design, labels, words in charts:
        rows = [
            # The best evaluation is that by the headline metric; on top-5 or AP50 the ring need not be at the maximum.
            [*row[:-2], label, row[-2], row[-1] if key in HEADLINES else None]
            for s in runs
            for key, label in labels.items()
            if key != "top5" or s.shows_top5
            for row in _eval_rows([s], key)
        ]
        # Beyond that, dots cover the lines.
        figures.append(_DESIGNS.draw(design, rows, words, marks=len(rows) < 200))
    return figures


def _over_epochs(key: str, runs: list[Training], value: Callable[[Point], float | None]) -> Figure:
    return _DESIGNS.draw(key, [[s.name, *moment(p), y] for s in runs for p in s.points if (y := value(p)) is not None])


def _lr(runs: list[Training]) -> Figure:
    return _over_epochs("lr", runs, lambda p: p.lr)


def _throughput(runs: list[Training]) -> Figure:
    # A log without the number of samples has no line, since one at 0 would look measured.
    return _over_epochs("throughput", runs, lambda p: p.window.samples_per_s or None)


def _wait(runs: list[Training]) -> Figure:
    recorded = [s for s in runs if any(p.window.data_wait_s for p in s.points)]  # not every log has it
    return _over_epochs("wait", recorded, lambda p: 100 * p.window.data_wait_share)


def _time(runs: list[Training]) -> Figure:
    rows = [[s.name, label, t] for s in runs for key, label in PARTS.items() if (t := s.spent_s.get(key, 0)) > 0]
    return _DESIGNS.draw("budget", rows)


def _processes(runs: list[Training]) -> Figure:
    """The busy time of each process per step, before it waited for the others: a slow process stands out."""
    rows: list[list[Any]] = [
        [f"{s.name}, rank {rank}" if len(runs) > 1 else f"rank {rank}", f"rank {rank}", 1000 * own]
        for s in runs
        for p in s.points[:: -(-len(s.points) // PROCESS_POINTS) or 1]  # `or 1`: no points give a stride of 0
        for rank, own in enumerate(p.own_s or ())
    ]
    return _DESIGNS.draw("processes", rows)


# --------------------------------------------------------------------------------------------------------- first images


def _first_images(runs: list[Training]) -> Markup | None:
    """The first training images as the network got them; once for runs that got the same ones."""
    names: dict[TrainImages, list[str]] = {}  # equal records are one key: runs that got the same images
    for s in runs:
        if isinstance(s, Run) and s.train_images and s.train_images.images:
            names.setdefault(s.train_images, []).append(s.name)
    if not names:
        return None
    return fill(
        "first_images",
        mixed=any(_recipe(s, "augment").get(name) for s in runs for name in ("mixup", "cutmix")),
        sizes=", ".join(dict.fromkeys(f"{images.width} x {images.height} pixels" for images in names)),
        sheets=names.items(),
        several=len(runs) > 1,
        shown=SHOWN_IMAGES,
        picture=picture,
    )


SECTION = Section(title="Training", order=20, of=Training, build=_training)
