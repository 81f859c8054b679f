"""The common form of a run's log: settings, step times, evaluations.

Readers (run directories, NVIDIA's, MLPerf's and console logs) produce it; comparison, studies and converters use it.
"""

import datetime as dt
import hashlib
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal

from vernier.clock import utc_stamp
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.measure.throughput import Window, warmup_steps
from vernier.records.environment import Environment
from vernier.records.what_ran import WhatRan
from vernier.wording import plural

_LONGEST_S = 1e9  # 32 years: longer is a damaged number
Tree = dict[str, Any]
"""Settings as the log has them, as JSON values: every system has its own keys."""


LARGEST = 1e15
"""More than any log counts, in whatever unit; beyond it, sums and products of whole numbers stop being exact."""


def finite(value: Any) -> float | None:
    """The value of a log's field if it is a finite number below LARGEST; otherwise None."""
    # A bool is an int in Python. NaN fails both comparisons, and a huge int is compared without an overflow.
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST
    return value if is_number else None


def whole(value: Any) -> int | None:
    """The whole number of a log's field; None where it is no number that `finite` takes."""
    return None if finite(value) is None else int(value)


@frozen
class StepRecord:
    """A step, or a window of steps of which a log keeps the mean. `seconds` is wall time, data loading included.

    `loss`, `lr` and the training accuracy (`top1`, `top5` in percent) are None where the log has none; `steady` is
    False for warm-up steps, which no figure includes. `step` counts from the start of the run in Vernier's own logs
    and as the log does in others. `steps` is above 1 where several were timed as one: then seconds, waits and samples
    are their sums.
    """

    epoch: int
    step: int
    seconds: float
    wait_s: float = 0.0
    samples: float = 0.0
    loss: float | None = None
    lr: float | None = None
    top1: float | None = None
    top5: float | None = None
    steady: bool = True
    steps: int = 1

    @property
    def window(self) -> Window:
        # Waits and steps are timed apart, and Window refuses a wait that is longer than the wall time.
        return Window(samples=self.samples, wall_s=self.seconds, data_wait_s=min(self.seconds, self.wait_s))


@frozen
class EvalRecord:
    """An evaluation. `values` are named as Vernier names them (top1 and top5 in percent, AP from 0 to 1).

    `batches` are its batches as far as they were timed. `speed` has the figures of another system's log, by NVIDIA's
    names (total_ips, data_time, compute_latency_at95, ...).
    """

    epoch: int
    values: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    samples: int | None = None
    batches: tuple[StepRecord, ...] = ()
    speed: dict[str, float] = field(default_factory=dict)


@frozen
class RunLog:
    """The log of one run; `notes` say what a reader should know about it. `devices` is None where no log says it.

    `ran` is Vernier's own record of what ran, `content` a digest of what was measured, by which copies are recognised.
    `kind` is what a step is: training, or inference on a batch. `total_s` is the time of the whole run.
    `reached_target` is whether it reached the accuracy it aimed for; `aborted` that its log says it did not.
    `started` is an ISO time; `train_samples` and `eval_samples` are the sizes of the sets; `round` is the round of a
    benchmark that it was measured in.
    """

    format: str
    path: Path
    kind: Literal["train", "infer"] = "train"
    settings: Tree = field(default_factory=dict)
    ran: WhatRan | None = None
    environment: Environment | None = None
    steps: tuple[StepRecord, ...] = ()
    evals: tuple[EvalRecord, ...] = ()
    devices: int | None = None
    round: int | None = None
    total_s: float | None = None
    reached_target: bool | None = None
    aborted: bool = False
    started: str | None = None
    train_samples: int | None = None
    eval_samples: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def content(self) -> str:
        # Not the path: a copy can have another name. Losses distinguish runs whose times are rounded to the same.
        steps = [(s.seconds, s.samples, s.loss) for s in self.steps]
        return hashlib.sha256(repr((self.started, steps)).encode()).hexdigest()

    def began(self) -> dt.datetime:
        """When the run began; now, where its log does not say. Raises ConfigError for what is no time."""
        try:
            start = dt.datetime.fromisoformat(self.started or utc_stamp())
        except ValueError:
            start = dt.datetime.min  # refused below
        if not 1970 < start.year < 2200:  # so that times after it are times too
            raise ConfigError(f"{self.path} says that it began at {self.started!r}, which is no possible time.")
        return start

    @property
    def has_single_steps(self) -> bool:
        """Whether each step was timed; on some devices only windows of several steps can be."""
        return all(s.steps == 1 for s in self.steps)

    @property
    def steady_steps(self) -> tuple[StepRecord, ...]:
        return tuple(s for s in self.steps if s.steady)


def without_impossible(log: RunLog) -> RunLog:
    """The log without steps and figures that no run can have: times that are no numbers, or of thousands of years."""
    steps = tuple(_with_figures(s) for s in log.steps if _is_possible(s))
    evals = tuple(
        replace(
            e,
            values=_finite_values(e.values),
            speed=_finite_values(e.speed),
            seconds=finite(e.seconds) or 0.0,
            batches=tuple(_with_figures(b) for b in e.batches if _is_possible(b)),
        )
        for e in log.evals
        if finite(e.epoch) is not None
    )
    left_out = len(log.steps) - len(steps)
    note = (
        (f"{plural(left_out, 'step record')} of {log.path.name} with impossible numbers left out",) if left_out else ()
    )
    return replace(
        log,
        steps=steps,
        evals=evals,
        total_s=finite(log.total_s),
        devices=whole(log.devices) or None,
        train_samples=whole(log.train_samples),
        eval_samples=whole(log.eval_samples),
        notes=(*log.notes, *note),
    )


def _is_possible(step: StepRecord) -> bool:
    counts = (step.step, step.wait_s, step.samples, step.steps - 1)  # a record of no steps has no rate
    return 0 < step.seconds < _LONGEST_S and -LARGEST < step.epoch < LARGEST and all(0 <= n < LARGEST for n in counts)


def _with_figures(step: StepRecord) -> StepRecord:
    return replace(step, loss=finite(step.loss), lr=finite(step.lr), top1=finite(step.top1), top5=finite(step.top5))


def _finite_values(values: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if finite(value) is not None}


def mark_warmup(steps: Sequence[StepRecord]) -> tuple[StepRecord, ...]:
    """The steps, with those before the steady state marked."""
    first = warmup_steps([s.seconds / s.steps for s in steps])  # windows can differ in length
    return tuple(replace(s, steady=i >= first) for i, s in enumerate(steps))
