"""Training: loss, accuracy and learning rate over epochs, throughput with data wait, where the time went."""

from dataclasses import replace
from typing import Any

from markupsafe import Markup

from vernier.report.page.collect import Subject
from vernier.report.page.figures import Figure, Section, grid
from vernier.report.page.html import joined, section, tag

COLOURS = {
    "waiting for data": 4,
    "computing": 0,
    "communication": 3,
    "evaluation": 2,
    "checkpoints": 5,
    "other": 7,
}
PARTS = {
    "data_wait": "waiting for data",
    "compute": "computing",
    "communication": "communication",
    "evaluation": "evaluation",
    "checkpoint": "checkpoints",
    "other": "other",
}


def training(subjects: list[Subject]) -> Section | None:
    runs = [s for s in subjects if s.kind == "training" and (s.points or s.evals)]
    if not runs:
        return None
    made = (*_losses(runs), *_metrics(runs), _lr(runs), _throughput(runs), _wait(runs), _processes(runs), _budget(runs))
    names = [s.name for s in subjects]
    figures = [replace(f, chart={**f.chart, "colours": names}) if f.chart.get("by") == "run" else f for f in made if f]
    control = tag(
        "div",
        tag(
            "label",
            "smoothing ",
            Markup('<input type="range" id="smooth" min="0" max="0.98" step="0.02" value="0">'),
            " ",
            tag("output", "0", id="smooth-value", for_="smooth"),
        ),
        tag("span", "drag over a chart to zoom, double-click for all; arrow keys move the cursor", cls="note"),
        cls="controls",
    )
    lead = f"{len(runs)} runs over one another; a click on a name hides it." if len(runs) > 1 else ""
    html = section("training", "Training", lead, joined([control, grid(figures)]))
    return Section(name="training", title="Training", html=html, figures=figures)


def _lines(
    name: str, title: str, y: str, rows: list[list[Any]], extra: dict[str, Any], caption: str = ""
) -> Figure | None:
    if not rows:
        return None
    chart = {"type": "lines", "x": "epoch", "y": y, "by": "run", **extra}
    return Figure(name=name, title=title, chart=chart, columns=["run", "epoch", "step", y], rows=rows, caption=caption)


def _losses(runs: list[Subject]) -> list[Figure | None]:
    """One figure a task: losses of classifiers and detectors have no common scale."""
    detectors = [
        s for s in runs if any("AP" in e.result.figures for e in s.evals) or (s.start and s.start.metric == "AP")
    ]
    others = [s for s in runs if s not in detectors]
    if not detectors or not others:
        return [_loss(runs, "loss", "Loss")]
    return [_loss(others, "loss", "Loss of classifiers"), _loss(detectors, "loss-detect", "Loss of detectors")]


def _loss(runs: list[Subject], name: str, title: str) -> Figure | None:
    rows: list[list[Any]] = [
        [s.name, p.epoch, p.step, p.loss, "training"] for s in runs for p in s.points if p.loss is not None
    ]
    rows += [
        [s.name, e.epoch, e.step, e.result.figures["loss"], "validation"]
        for s in runs
        for e in s.evals
        if e.result.figures.get("loss") is not None
    ]
    if not rows:
        return None
    return Figure(
        name=name,
        title=title,
        columns=["run", "epoch", "step", "loss", "on"],
        rows=rows,
        chart={
            "type": "lines",
            "x": "epoch",
            "y": "loss",
            "by": "run",
            "dash": "on",
            "smooth": True,
            "log": True,
            "yTitle": "",
        },
    )


METRICS = (
    ("accuracy", "Accuracy", (("top1", "top-1"), ("top5", "top-5")), "%"),
    ("ap", "Average precision", (("AP", "AP"), ("AP50", "AP50"), ("AP75", "AP75")), ""),
    ("eval-accuracy", "Accuracy as the log gives it", (("eval_accuracy", "eval_accuracy"),), ""),
)


def _metrics(runs: list[Subject]) -> list[Figure]:
    found = []
    for name, title, keys, unit in METRICS:
        rows = [
            [s.name, e.epoch, e.step, label, e.result.figures[key]]
            for s in runs
            for key, label in keys
            for e in s.evals
            if e.result.figures.get(key) is not None
        ]
        if rows:
            chart = {
                "type": "lines",
                "x": "epoch",
                "y": "value",
                "by": "run",
                "dash": "figure",
                "marks": len(rows) < 200,
                "unit": f" {unit}".rstrip(),
                "yTitle": unit or "0 to 1",
            }
            found.append(
                Figure(
                    name=name,
                    title=title,
                    chart=chart,
                    columns=["run", "epoch", "step", "figure", "value"],
                    rows=rows,
                    caption="on the validation set",
                )
            )
    return found


def _lr(runs: list[Subject]) -> Figure | None:
    rows = [[s.name, p.epoch, p.step, p.lr] for s in runs for p in s.points if p.lr is not None]
    return _lines("lr", "Learning rate", "learning rate", rows, {"zero": True, "log": True, "yTitle": ""})


def _throughput(runs: list[Subject]) -> Figure | None:
    rows = [[s.name, p.epoch, p.step, p.window.samples_per_s] for s in runs for p in s.points if p.window.samples_per_s]
    caption = "samples through the optimiser, all devices, over wall time, data loading included"
    return _lines(
        "throughput", "Throughput", "images a second", rows, {"zero": True, "smooth": True, "unit": " img/s"}, caption
    )


def _wait(runs: list[Subject]) -> Figure | None:
    rows = [
        [s.name, p.epoch, p.step, 100 * p.window.data_wait_share]
        for s in runs
        if any(p.window.data_wait_s for p in s.points)  # not every log has it
        for p in s.points
        if p.window.wall_s
    ]
    return _lines(
        "wait",
        "Data wait",
        "% of step time",
        rows,
        {"zero": True, "smooth": True, "unit": " %"},
        "above 10 % the loader sets the pace",
    )


def _budget(runs: list[Subject]) -> Figure | None:
    rows: list[list[Any]] = [
        [s.name, label, s.spent_s[key]] for s in runs for key, label in PARTS.items() if s.spent_s.get(key, 0) > 0
    ]
    if not rows:
        return None
    chart = {
        "type": "stack",
        "category": "run",
        "part": "part",
        "value": "seconds",
        "unit": "s",
        "partColours": COLOURS,
    }
    return Figure(
        name="budget",
        title="Where the time went",
        chart=chart,
        columns=["run", "part", "seconds"],
        rows=rows,
        wide=True,
    )


def _processes(runs: list[Subject]) -> Figure | None:
    """How long each process was busy in a step, before it waited for the others: a slow one stands out."""
    rows: list[list[Any]] = [
        [f"{s.name}, rank {rank}" if len(runs) > 1 else f"rank {rank}", f"rank {rank}", 1000 * own]
        for s in runs
        for p in s.points[:: -(-len(s.points) // 150) or 1]
        for rank, own in enumerate(p.own_s or ())
    ]
    if not rows:
        return None
    chart = {"type": "boxes", "category": "process", "value": "ms a step", "name": "rank"}
    return Figure(
        name="processes",
        title="Own time of each process",
        chart=chart,
        columns=["process", "rank", "ms a step"],
        rows=rows,
        caption="busy in a step, before waiting for the others; each dot is a window of steps",
    )
