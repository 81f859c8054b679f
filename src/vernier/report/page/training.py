"""What run directories and external logs have in common: curves, evaluations, a result and a speed."""

import math
from collections.abc import Sequence
from dataclasses import field, replace

from markupsafe import Markup

from vernier.frozen import frozen
from vernier.measure.estimates import share_interval
from vernier.measure.throughput import Window
from vernier.quantities import measured_duration
from vernier.records.events import StartEvent
from vernier.records.run import EvalResult, RunSummary
from vernier.wording import plural

from .html import joined, tag, tile
from .identity import NOT_IN_LOG
from .numbers import measured, number
from .subjects import Subject

MOST_POINTS = 1500  # per curve; more windows are merged into means, so that the page stays small
HEADLINES = ("top1", "AP", "eval_accuracy")  # in this order: a run is judged by the first one that it has
TOP5_CLASSES = 50
"""With fewer classes, five guesses are more than a tenth of them, and top-5 says little."""


@frozen
class Point:
    """A window of steps: where it ends, its mean loss, its time. `own_s` is the busy time per step of each process.

    `step` is None where the log has only epochs. `time_s` adds up steps, evaluations and stalls for checkpoints, not
    the pauses between sessions. `t_s` is the session's monotonic clock, as in telemetry.
    """

    epoch: float
    step: int | None
    time_s: float
    loss: float | None
    lr: float | None
    steps: int
    window: Window
    own_s: tuple[float, ...] | None = None
    session: int = 0
    t_s: float | None = None
    steady: bool = True
    """False for a warm-up that another system's log has."""


@frozen
class EvalPoint:
    """An evaluation during training, at its end."""

    epoch: float
    step: int | None
    time_s: float
    result: EvalResult


@frozen
class Training(Subject):
    """A subject that learned something, with its curves."""

    kind: str = "training"
    start: StartEvent | None = None
    summary: RunSummary = field(default_factory=RunSummary)
    points: tuple[Point, ...] = ()
    evals: tuple[EvalPoint, ...] = ()
    spent_s: dict[str, float] = field(default_factory=dict)

    @property
    def started(self) -> str:
        return (self.start.time if self.start else None) or ""

    @property
    def result(self) -> EvalResult | None:
        """The last evaluation, also of a run that has no summary yet."""
        return self.summary.result or (self.evals[-1].result if self.evals else None)

    @property
    def result_of(self) -> str:
        """What `result` is of, if not of the last weights."""
        return ""

    def figure(self, name: str) -> float | None:
        """One metric of the last evaluation, such as top1; None if it is not known."""
        return self.result.figures.get(name) if self.result else None

    @property
    def metric(self) -> str | None:
        """Name of the main metric: top1, AP, or `eval_accuracy` of another system's log."""
        return next((name for name in HEADLINES if self.figure(name) is not None), None)

    @property
    def best(self) -> EvalPoint | None:
        """The best evaluation by the main metric; the first one of several equal ones."""
        metric = self.metric or ""
        known = [e for e in self.evals if e.result.figures.get(metric) is not None]
        return max(known, key=lambda e: e.result.figures[metric] or 0.0, default=None)

    @property
    def images_per_s(self) -> tuple[float, float | None, float | None] | None:
        """Over all devices with its interval; of external logs and runs without a summary, over recorded steps."""
        if speed := self.summary.training:
            return (speed.images_per_s_total, *speed.images_per_s_total_95)
        # Images over time of all windows; a mean of the windows' rates would give short windows too much weight.
        rate = Window.total(p.window for p in self.points if p.steady).samples_per_s
        return (rate, None, None) if rate else None

    @property
    def shows_top5(self) -> bool:
        """Whether top-5 is informative: there are enough classes, or their number is not known."""
        # External logs have no start event with classes; NVIDIA's have num_classes among their settings.
        classes = (self.start.classes if self.start else 0) or self.settings.get("num_classes") or TOP5_CLASSES
        return not isinstance(classes, int) or classes >= TOP5_CLASSES  # a setting of an external log can be anything

    def tiles(self) -> list[Markup]:
        total, remark = self.spent_s.get("total"), "so far" if self.status == "running" else ""
        return [
            *_result_tiles(self),
            *_speed_tiles(self),
            *([tile("time", measured_duration(total), "", remark)] if total else []),
        ]


def _result_tiles(s: Training) -> list[Markup]:
    result = s.result
    if not result:
        return []
    # `exact` is False if only a part of the validation set was evaluated.
    figures, part = result.figures, "" if result.exact else f", {result.describe_part()}"
    top1, top5 = figures.get("top1"), figures.get("top5")
    if top1 is not None:
        more = [_share_tile("top-5", top5, result.samples)] if top5 and s.shows_top5 else []
        return [_share_tile(f"top-1{s.result_of}", top1, result.samples, part), *more]
    ap = figures.get("AP")
    if ap is not None:
        images = f"{plural(result.samples, 'image')}{part}" if result.samples else ""
        ap50 = [tile("AP50", number(figures["AP50"], 3))] if figures.get("AP50") is not None else []
        return [tile(f"AP (IoU 0.50 to 0.95){s.result_of}", f"{ap:.3f}", "", images), *ap50]
    return [tile("accuracy as the log gives it", number(v)) for k, v in figures.items() if k == "eval_accuracy"]


def _share_tile(name: str, value: float, n: int, part: str = "") -> Markup:
    """A percentage with the interval for another draw of as many images; another training run may differ by more."""
    if not n or not 0 <= value <= 100:  # an external log can claim any number
        return tile(name, f"{value:.2f}", "%")
    # Wilson's interval for the number of correct predictions, which the percentage gives back exactly.
    low, high = share_interval(round(value * n / 100), n)
    digits = min(2, max(0, math.ceil(math.log10(n / 100))))  # what one image more or less changes
    return tile(
        name, f"{value:.{digits}f}", "%", f"95 %: {100 * low:.1f} to {100 * high:.1f}, {plural(n, 'image')}{part}"
    )


def _speed_tiles(s: Training) -> list[Markup]:
    speed = s.summary.training
    if speed is None:
        rate = s.images_per_s[0] if s.images_per_s else 0.0
        # No summary yet, or an external log. Windows of a Vernier run do not mark the warm-up, so it is included.
        name = "throughput so far" if s.status == "running" else "throughput"
        unknown = s.foreign and not (s.start and s.start.world)
        devices = f"; over all devices, whose number is {NOT_IN_LOG}" if unknown else ""
        remark = f"recorded steps{' after the warm-up' if s.foreign else ', warm-up included'}{devices}"
        return [tile(name, measured(rate, None, None)[0], "img/s", remark)] if rate else []
    figure, between = measured(speed.images_per_s_total, *speed.images_per_s_total_95)
    why = speed.step_s.basis if speed.step_s is not None and speed.step_s.basis else "too few steps"
    tiles = [tile("throughput", figure, "img/s", joined([interval(between, why), "; data included"]))]
    if speed.energy:
        tiles.append(tile("energy", number(speed.energy.joules_per_image), "J/img", speed.energy.method))
    if speed.data_wait_share is not None:
        tiles.append(tile("data wait", f"{100 * speed.data_wait_share:.1f}", "%", "of the steps' time"))
    return tiles


def interval(between: str, why: str) -> Markup | str:
    """The interval, or that there is none; the reason, which is long, for readers who point at it."""
    return between or tag("span", "no interval", title=why)


def thin(points: Sequence[Point]) -> tuple[Point, ...]:
    """At most MOST_POINTS: neighbours are merged, times and samples added, losses averaged by steps."""
    size = -(-len(points) // MOST_POINTS)  # rounded up, so that at most MOST_POINTS remain
    return tuple(points if size <= 1 else (_merge(points[i : i + size]) for i in range(0, len(points), size)))


def _merge(points: Sequence[Point]) -> Point:
    losses = [(p.loss, p.steps) for p in points if p.loss is not None]
    own_s = [p.own_s for p in points if p.own_s]
    same_processes = len(own_s) == len(points) and len({len(of_window) for of_window in own_s}) == 1
    return replace(
        points[-1],  # epoch, step and time are those at the end of a window
        loss=math.fsum(v * n for v, n in losses) / sum(n for _, n in losses) if losses else None,
        steps=sum(p.steps for p in points),
        window=Window.total(p.window for p in points),
        # [windows, processes] -> mean per process. None unless every window has it, and for as many processes: a run
        # may have been resumed with another number of them.
        own_s=tuple(sum(rank) / len(own_s) for rank in zip(*own_s, strict=True)) if same_processes else None,
    )
