"""One measurement of one load in one process: warm up until steady, measure until sure enough, keep every sample.

A load is anything that takes steps: a training, an inference, a matrix product. What a step is is the load's business;
this file owns when it is steady, how long to go on, and what the samples come to. Which loads are measured in which order
is decided in `bench_arms`.
"""

import math
import statistics
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Protocol, TypeVar

from vernier.clock import now_s
from vernier.measure.statistics.estimates import rate_estimate
from vernier.measure.statistics.summary_checks import summarize
from vernier.measure.statistics.throughput import Window
from vernier.records.codec import encode

METHOD = "vernier-bench-1"
LOADER_BOUND_SHARE = 0.1
"""Of the time waiting for data: MLPerf Storage calls an accelerator that is busy for less than 90 % starved."""
PRECISION, PRECISION_TO_COMPARE = 0.01, 0.005
"""How well a process's rate is to be known, as a share of it. `benchmarks/coverage.py` shows what comparing needs."""
FEWEST_STEPS = 30
CHECK_GROWTH = 1.5
_LOOK_S = 0.25
"""How often the time is looked at; between looks nothing but steps happens."""

T = TypeVar("T")


class Load(Protocol):
    """Something that takes steps. `images` a step are summed over all processes; `devices` is how many share them."""

    images: int
    devices: int

    def step(self) -> float:
        """One whole step, finished when this returns (the device is synchronised). Returns seconds waited for data."""
        ...

    def split(self, steps: int) -> dict[str, list[float]]:
        """Seconds by phase of that many further steps, synchronised at every phase's end; empty where there are none."""
        ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long to measure: `steps` exactly, or until the rate is known to `precision`, within `max_seconds`."""

    steps: int | None = None
    precision: float = PRECISION
    max_seconds: float = 60.0
    warmup_max_seconds: float = 60.0
    split_steps: int = 10


@dataclass
class WarmUp:
    """The first steps: their durations, and whether they had become steady when measuring began."""

    step_s: list[float] = field(default_factory=list)
    steady: bool = False


@dataclass
class Measured:
    """Every sample of one measurement, in the order taken."""

    warmup: WarmUp
    step_s: list[float] = field(default_factory=list)
    wait_s: list[float] = field(default_factory=list)
    began_s: float = 0.0
    ended_s: float = 0.0
    split_s: dict[str, list[float]] = field(default_factory=dict)
    reached_precision: bool | None = None


class Agree(Protocol):
    """What the first process says, so that all processes take the same number of steps."""

    def __call__(self, value: T, /) -> T: ...


def alone(value: T) -> T:
    """One process agrees with itself."""
    return value


def measure(load: Load, plan: Plan, agree: Agree = alone) -> Measured:
    """Warm up, measure, then split some further steps by phase."""
    warmup = warm_up(load, plan.warmup_max_seconds, agree)
    found = Measured(warmup, began_s=now_s())
    timer = _Timer(load)
    due = plan.steps or FEWEST_STEPS
    look_every = agree(max(1, round(_LOOK_S / statistics.median(warmup.step_s)))) if warmup.step_s else 1
    while True:
        while len(found.step_s) < due:
            step_s, wait_s = timer.step()
            found.step_s.append(step_s)
            found.wait_s.append(wait_s)
            if plan.steps is None and len(found.step_s) % look_every == 0:
                if not agree(now_s() - found.began_s < plan.max_seconds):
                    break
                timer.resume()
        found.ended_s = now_s()
        if plan.steps is not None:
            break
        found.reached_precision = precise(found.step_s, plan.precision)
        late = found.ended_s - found.began_s >= plan.max_seconds
        if not agree(not found.reached_precision and not late):
            break
        due = max(due + 1, int(len(found.step_s) * CHECK_GROWTH))
        timer.resume()
    if plan.split_steps:
        found.split_s = load.split(plan.split_steps)
    return found


class _Timer:
    """A step lasts from the end of the one before, so nothing between steps is lost."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._began_s = now_s()

    def resume(self) -> None:
        """After a pause that is not part of any step."""
        self._began_s = now_s()

    def step(self) -> tuple[float, float]:
        wait_s = self._load.step()
        began_s, self._began_s = self._began_s, now_s()
        return self._began_s - began_s, wait_s


def precise(step_s: list[float], share: float) -> bool:
    """Whether the rate's 95 % interval is at most `share` of it to either side."""
    if len(step_s) < FEWEST_STEPS:
        return False
    half = rate_estimate(step_s, 1).half_width_share
    return half is not None and half <= share


# ------------------------------------------------------------------------------------------------------------- warm-up


WINDOW_STEPS, WINDOW_S, STEADY_TOLERANCE = 5, 0.5, 0.02


def warm_up(load: Load, max_seconds: float, agree: Agree = alone) -> WarmUp:
    """Steps until two successive windows agree, or the time is up."""
    found, began_s, timer = WarmUp(), now_s(), _Timer(load)
    while agree(not found.steady and now_s() - began_s < max_seconds):
        timer.resume()
        found.step_s.append(timer.step()[0])
        found.steady = steady(found.step_s)
    return found


def steady(step_s: list[float]) -> bool:
    """Whether the last two windows have the same median: within 2 %, or within what their own scatter explains.

    A window is at least 5 steps and half a second; the first step is never in one.
    """
    newest = _window(step_s)
    before = _window(step_s[: -len(newest)]) if newest else []
    if not newest or not before or len(newest) + len(before) >= len(step_s):
        return False
    a, b = statistics.median(before), statistics.median(newest)
    scatter = math.hypot(_median_error(before), _median_error(newest))
    return abs(a - b) <= max(STEADY_TOLERANCE * a, 2 * scatter)


def _window(step_s: list[float]) -> list[float]:
    """The shortest last stretch that is long enough; empty when there is none."""
    total = 0.0
    for count, seconds in enumerate(reversed(step_s), start=1):
        total += seconds
        if count >= WINDOW_STEPS and total >= WINDOW_S:
            return step_s[-count:]
    return []


def _median_error(values: list[float]) -> float:
    """Standard error of a median, from the differences of neighbours: a trend must not pass for scatter."""
    typical: float = statistics.median(abs(b - a) for a, b in pairwise(values))
    return float(1.4826 / math.sqrt(2) * 1.2533 * typical / math.sqrt(len(values)))


# ------------------------------------------------------------------------------------------------------------- figures


def figures(found: Measured, *, images: int, devices: int) -> dict[str, Any]:
    """What the samples come to: rates with intervals, step times, data wait, phases. All from raw samples, seconds."""
    window = Window(
        samples=images * len(found.step_s), wall_s=sum(found.step_s), data_wait_s=sum(found.wait_s), devices=devices
    )
    rate = rate_estimate(found.step_s, images)
    share = window.data_wait_share
    steady_s = statistics.median(found.step_s)
    return {
        "method": METHOD,
        "images_per_s_total": encode(rate),
        "images_per_s_per_device": {**encode(rate), **divided(encode(rate), devices)},
        "devices": devices,
        "compute_only_images_per_s_total": window.compute_samples_per_s,
        "data_wait_share": share,
        "verdict": verdict(share),
        "step_s": encode(summarize(found.step_s, unit="s", of="step, all devices")),
        "phases": phases(found.split_s),
        "warmup": {
            "steps": len(found.warmup.step_s), "seconds": sum(found.warmup.step_s), "steady": found.warmup.steady,
            "first_step_s": found.warmup.step_s[0] if found.warmup.step_s else None,
            "first_step_extra_s": max(0.0, found.warmup.step_s[0] - steady_s) if found.warmup.step_s else None,
        },
        "reached_precision": found.reached_precision,
    }  # fmt: skip


def verdict(data_wait_share: float) -> str:
    """Whether loading or computing sets the pace."""
    return "loader-bound" if data_wait_share > LOADER_BOUND_SHARE else "compute-bound"


def divided(rate: dict[str, Any], devices: int) -> dict[str, Any]:
    """A rate and its interval, per device."""
    return {k: None if rate[k] is None else rate[k] / devices for k in ("value", "low", "high")}


def phases(split_s: dict[str, list[float]]) -> dict[str, Any] | None:
    """Mean seconds of each phase and its share of the steps that were split; None where none were."""
    means = {name: statistics.fmean(values) for name, values in split_s.items() if values}
    total = sum(means.values())
    if not total:
        return None
    steps = max(len(v) for v in split_s.values())
    return {"steps": steps, "seconds": means, "share": {name: mean / total for name, mean in means.items()}}


def raw(found: Measured) -> dict[str, Any]:
    """Every sample, for the file."""
    return asdict(found)
