"""Training: loss, accuracy and learning rate over epochs, throughput with data wait, where the time went."""

from typing import Any

from markupsafe import Markup

from vernier.report.page.collect import Subject
from vernier.report.page.figures import Figure, Section, grid
from vernier.report.page.html import joined, section, tag

PARTS = {
    "data_wait": "waiting for data", "compute": "computing", "communication": "communication", "evaluation": "evaluation",
    "checkpoint": "checkpoints", "other": "other",
}  # fmt: skip


def training(subjects: list[Subject]) -> Section | None:
    runs = [s for s in subjects if s.kind == "training" and (s.points or s.evals)]
    if not runs:
        return None
    figures = [f for f in (_loss(runs), *_metrics(runs), _lr(runs), _throughput(runs), _wait(runs), _budget(runs)) if f]
    control = tag(
        "div", tag("label", "smoothing ", Markup('<input type="range" id="smooth" min="0" max="0.98" step="0.02" value="0">'),
                   " ", tag("output", "0", id="smooth-value", for_="smooth")),
        tag("span", "drag over a chart to zoom, double-click for all; arrow keys move the cursor", cls="note"), cls="controls",
    )  # fmt: skip
    lead = f"{len(runs)} runs over one another; a click on a name hides it." if len(runs) > 1 else ""
    html = section("training", "Training", lead, joined([control, grid(figures)]))
    return Section(name="training", title="Training", html=html, figures=figures)


def _lines(name: str, title: str, y: str, rows: list[list[Any]], extra: dict[str, Any], caption: str = "") -> Figure | None:
    if not rows:
        return None
    chart = {"type": "lines", "x": "epoch", "y": y, "by": "run", **extra}
    return Figure(name=name, title=title, chart=chart, columns=["run", "epoch", "step", y], rows=rows, caption=caption)


def _loss(runs: list[Subject]) -> Figure | None:
    rows: list[list[Any]] = [[s.name, p["epoch"], p["step"], p["loss"], "training"] for s in runs for p in s.points if p["loss"] is not None]
    rows += [[s.name, e["epoch"], e.get("step"), e["loss"], "validation"] for s in runs for e in s.evals if e.get("loss") is not None]
    if not rows:
        return None
    return Figure(
        name="loss", title="Loss", columns=["run", "epoch", "step", "loss", "on"], rows=rows,
        chart={"type": "lines", "x": "epoch", "y": "loss", "by": "run", "dash": "on", "smooth": True, "log": True},
    )  # fmt: skip


METRICS = (
    ("accuracy", "Accuracy", (("top1", "top-1"), ("top5", "top-5")), "%"),
    ("ap", "Average precision", (("AP", "AP"), ("AP50", "AP50"), ("AP75", "AP75")), ""),
    ("eval-accuracy", "Accuracy as the log gives it", (("eval_accuracy", "eval_accuracy"),), ""),
)


def _metrics(runs: list[Subject]) -> list[Figure]:
    found = []
    for name, title, keys, unit in METRICS:
        rows = [
            [s.name, e["epoch"], e.get("step"), label, e[key]]
            for s in runs for key, label in keys for e in s.evals if e.get(key) is not None
        ]  # fmt: skip
        if rows:
            chart = {"type": "lines", "x": "epoch", "y": "value", "by": "run", "dash": "figure", "marks": len(rows) < 200, "unit": f" {unit}".rstrip(),
                     "yTitle": unit or "0 to 1"}  # fmt: skip
            found.append(Figure(name=name, title=title, chart=chart, columns=["run", "epoch", "step", "figure", "value"], rows=rows,
                                caption="on the validation set"))  # fmt: skip
    return found


def _lr(runs: list[Subject]) -> Figure | None:
    rows = [[s.name, p["epoch"], p["step"], p["lr"]] for s in runs for p in s.points if p["lr"] is not None]
    return _lines("lr", "Learning rate", "learning rate", rows, {"zero": True, "log": True})


def _throughput(runs: list[Subject]) -> Figure | None:
    rows = [[s.name, p["epoch"], p["step"], p["samples"] / p["seconds"]] for s in runs for p in s.points if p["samples"] and p["seconds"]]
    caption = "samples through the optimiser, all devices, over wall time, data loading included"
    return _lines("throughput", "Throughput", "images a second", rows, {"zero": True, "smooth": True, "unit": " img/s"}, caption)


def _wait(runs: list[Subject]) -> Figure | None:
    rows = [[s.name, p["epoch"], p["step"], 100 * p["wait_s"] / p["seconds"]] for s in runs for p in s.points if p["seconds"]]
    if not any(r[3] for r in rows):
        return None
    return _lines("wait", "Data wait", "% of step time", rows, {"zero": True, "smooth": True, "unit": " %"},
                  "above 10 % the loader sets the pace")  # fmt: skip


def _budget(runs: list[Subject]) -> Figure | None:
    rows = [
        [s.name, label, s.spent_s[key]]
        for s in runs for key, label in PARTS.items() if s.spent_s.get(key, 0) > 0
    ]  # fmt: skip
    if not rows:
        return None
    chart = {"type": "stack", "category": "run", "part": "part", "value": "seconds", "unit": "s"}
    return Figure(name="budget", title="Where the time went", chart=chart, columns=["run", "part", "seconds"], rows=rows, wide=True)
