"""A training run as any system's log records it: what was set, how long steps took, what was reached.

The common form between readers (run directories, NVIDIA's `raport.json` and DLLogger lines, MLPerf's `:::MLLOG`) and those who
use them: comparison, study, exporters. `seconds[i]` is the wall time of step or window i, data loading included.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

from vernier.errors import ConfigError
from vernier.measure.statistics.comparison import Trace
from vernier.measure.statistics.throughput import warmup_steps


def is_number(value: Any) -> TypeGuard[float]:
    """A finite number: what a log's field must be to be used as one."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """A step, or a window of steps of which a log keeps the mean. Times in seconds; `lr` and `loss` where recorded.

    `steady` is False for first steps that are recorded but in no figure.
    """

    epoch: int
    step: int
    seconds: float
    wait_s: float = 0.0
    samples: float = 0.0
    loss: float | None = None
    lr: float | None = None
    steady: bool = True


@dataclass(frozen=True, kw_only=True)
class EvalRecord:
    """An evaluation. `values` are named as Vernier names them (top1 and top5 in percent, AP from 0 to 1)."""

    epoch: int
    values: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RunLog:
    """One run; `notes` say what a reader should know. `reached` is whether it got to the accuracy it aimed for.

    `started` is an ISO time; `train_samples` and `eval_samples` are the sizes of the sets.
    """

    format: str
    path: Path
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    steps: tuple[StepRecord, ...] = ()
    evals: tuple[EvalRecord, ...] = ()
    devices: int = 1
    round: int | None = None
    total_s: float | None = None
    reached: bool | None = None
    started: str | None = None
    train_samples: int | None = None
    eval_samples: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def steady(self) -> tuple[StepRecord, ...]:
        return tuple(s for s in self.steps if s.steady)

    def trace(self) -> Trace:
        """For comparison. Raises ConfigError when the log has no steps past the warm-up."""
        if not self.steady:
            raise ConfigError(f"{self.path} ({self.format}) records no steps to measure.")
        sizes = [s.samples for s in self.steady]
        per_step = sum(sizes) / len(sizes)
        if per_step <= 0:
            raise ConfigError(f"{self.path} ({self.format}) does not say how many samples a step has.")
        try:
            return Trace(step_s=tuple(s.seconds for s in self.steady), samples_per_step=per_step, round=self.round)
        except ValueError as error:
            raise ConfigError(f"{self.path}: {error}.") from None


def mark_warmup(steps: Sequence[StepRecord]) -> tuple[StepRecord, ...]:
    """The steps, the first ones marked that are not yet steady."""
    first = warmup_steps([s.seconds for s in steps])
    return tuple(replace(s, steady=i >= first) for i, s in enumerate(steps))
