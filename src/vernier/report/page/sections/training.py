"""The training section: loss, accuracy, learning rate, throughput and data wait over epochs; where the time went."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from vernier.report.page.collect import Point, Subject
from vernier.report.page.figures import Boxes, Figure, Lines, Row, Section, Stack, grid, make_section, with_data
from vernier.report.page.html import div, tag

PARTS = {
    "data_wait": ("waiting for data", 4),
    "compute": ("computing", 0),
    "communication": ("communication", 3),
    "evaluation": ("evaluation", 2),
    "checkpoint": ("checkpoints", 5),
    "other": ("other", 7),
}
"""Parts of the time: label and number of its colour."""
METRICS = (
    ("accuracy", "Accuracy", {"top1": "top-1", "top5": "top-5"}, "%"),
    ("ap", "Average precision", {name: name for name in ("AP", "AP50", "AP75")}, ""),
    ("eval-accuracy", "Accuracy as the log gives it", {"eval_accuracy": ""}, ""),
)
PROCESS_POINTS = 150


def training(subjects: list[Subject]) -> Section | None:
    runs = [s for s in subjects if s.kind == "training" and (s.points or s.evals)]
    if not runs:
        return None
    names = tuple(s.name for s in subjects)
    charts = (*_losses(runs), *_metrics(runs), _lr(runs), _throughput(runs), _wait(runs), _processes(runs), _time(runs))
    epochs = [0.0, *(p.epoch for s in runs for p in s.points), *(e.epoch for s in runs for e in s.evals)]
    figures = [_fit_to_page(f, names, max(epochs)) for f in with_data(*charts)]
    control = div(
        "controls",
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
    return make_section("training", "Training", lead, control, grid(figures), figures=figures)


def _fit_to_page(figure: Figure, names: tuple[str, ...], epochs: float) -> Figure:
    """A run has one colour on the whole page, and all charts over epochs have the same axis."""
    if not isinstance(figure.chart, Lines):
        return figure
    return replace(figure, chart=replace(figure.chart, colours=names, x_range=(0.0, epochs)))


def _losses(runs: list[Subject]) -> list[Figure]:
    """One figure per task: losses of classifiers and detectors have no common scale."""
    detectors = [
        s for s in runs if any("AP" in e.result.figures for e in s.evals) or (s.start and s.start.metric == "AP")
    ]
    others = [s for s in runs if s not in detectors]
    if not detectors or not others:
        return [_loss(runs, "loss", "Loss")]
    return [_loss(others, "loss", "Loss of classifiers"), _loss(detectors, "loss-detect", "Loss of detectors")]


def _loss(runs: list[Subject], name: str, title: str) -> Figure:
    rows = [
        *([s.name, p.epoch, p.step, p.loss, "training"] for s in runs for p in s.points if p.loss is not None),
        *([*row, "validation"] for row in _eval_rows(runs, "loss")),
    ]
    chart = Lines(x="epoch", y="loss", by="run", dash="on", smooth=True, log=True, zero=True, y_title=_loss_name(runs))
    columns, caption = ["run", "epoch", "step", "loss", "on"], _why_above_validation(runs)
    return Figure(name=name, title=title, chart=chart, columns=columns, rows=rows, caption=caption)


def _loss_name(runs: list[Subject]) -> str:
    """The loss that all runs share, with its unit; just `loss` where it is not known or differs."""
    names = {_recipe(s, "loss").get("kind") for s in runs if "AP" not in (s.result.figures if s.result else {})}
    name = names.pop() if len(names) == 1 else None
    return f"{name}, nats per image" if name == "cross-entropy" else f"loss: {name}" if name else "loss"


def _recipe(s: Subject, part: str) -> dict[str, Any]:
    tree = (s.settings.get("recipe") or {}).get(part)
    return tree if isinstance(tree, dict) else {}


def _why_above_validation(runs: list[Subject]) -> str:
    """Why training loss lies above validation loss where it does: what only training has, from the settings."""
    above = [s for s in runs if _ends_above(s)]
    reasons = dict.fromkeys(reason for s in above for reason in _reasons(s))
    return f"Training loss can lie above validation loss: {'; '.join(reasons)}." if reasons else ""


def _ends_above(s: Subject) -> bool:
    losses, validation = [p.loss for p in s.points if p.loss is not None], s.figure("loss")
    tail = losses[-max(1, len(losses) // 20) :]
    return bool(tail) and validation is not None and sum(tail) / len(tail) > validation


def _reasons(s: Subject) -> list[str]:
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
        "it is the mean over steps before the evaluation": not s.foreign,
    }
    return [reason for reason, applies in reasons.items() if applies]


def _eval_rows(runs: list[Subject], key: str) -> list[list[Any]]:
    rows = [[s.name, e.epoch, e.step, e.result.figures.get(key)] for s in runs for e in s.evals]
    return [row for row in rows if row[3] is not None]


def _metrics(runs: list[Subject]) -> list[Figure]:
    figures = []
    for name, title, labels, unit in METRICS:
        rows = [
            [*row[:3], label, row[3]] for s in runs for key, label in labels.items() for row in _eval_rows([s], key)
        ]
        chart = Lines(
            x="epoch",
            y="value",
            by="run",
            dash="figure",
            marks=len(rows) < 200,
            unit=f" {unit}".rstrip(),
            y_title=f"{title.lower()}, {unit or '0 to 1'}",
        )
        columns = ["run", "epoch", "step", "figure", "value"]
        caption = "on the validation set"
        figures.append(Figure(name=name, title=title, chart=chart, columns=columns, rows=rows, caption=caption))
    return figures


def _over_epochs(
    name: str, title: str, runs: list[Subject], value: Callable[[Point], float | None], chart: Lines, caption: str = ""
) -> Figure:
    rows: list[Row] = [[s.name, p.epoch, p.step, y] for s in runs for p in s.points if (y := value(p)) is not None]
    columns = ["run", "epoch", "step", chart.y]
    return Figure(name=name, title=title, chart=chart, columns=columns, rows=rows, caption=caption)


def _lr(runs: list[Subject]) -> Figure:
    chart = Lines(x="epoch", y="learning rate", by="run", zero=True, log=True)
    return _over_epochs("lr", "Learning rate", runs, lambda p: p.lr, chart)


def _throughput(runs: list[Subject]) -> Figure:
    chart = Lines(x="epoch", y="images per second", by="run", zero=True, smooth=True, unit=" img/s")
    caption = "samples through the optimiser, all devices, over wall time, data loading included"
    return _over_epochs("throughput", "Throughput", runs, lambda p: p.window.samples_per_s or None, chart, caption)


def _wait(runs: list[Subject]) -> Figure:
    recorded = [s for s in runs if any(p.window.data_wait_s for p in s.points)]  # not every log has it
    chart = Lines(x="epoch", y="% of step time", by="run", zero=True, smooth=True, unit=" %")
    caption = "above 10 % the loader sets the pace"
    return _over_epochs("wait", "Data wait", recorded, lambda p: 100 * p.window.data_wait_share, chart, caption)


def _time(runs: list[Subject]) -> Figure:
    return Figure(
        name="budget",
        title="Where the time went",
        chart=Stack(category="run", part="part", value="seconds", unit="s", part_colours=dict(PARTS.values())),
        columns=["run", "part", "seconds"],
        rows=[
            [s.name, label, t] for s in runs for key, (label, _) in PARTS.items() if (t := s.spent_s.get(key, 0)) > 0
        ],
        wide=True,
    )


def _processes(runs: list[Subject]) -> Figure:
    """The busy time of each process per step, before it waited for the others: a slow process stands out."""
    rows: list[list[Any]] = [
        [f"{s.name}, rank {rank}" if len(runs) > 1 else f"rank {rank}", f"rank {rank}", 1000 * own]
        for s in runs
        for p in s.points[:: -(-len(s.points) // PROCESS_POINTS) or 1]
        for rank, own in enumerate(p.own_s or ())
    ]
    return Figure(
        name="processes",
        title="Own time of each process",
        chart=Boxes(category="process", value="ms per step", name="rank"),
        columns=["process", "rank", "ms per step"],
        rows=rows,
        caption="busy time per step, before waiting for the others; each dot is a window of steps",
    )
