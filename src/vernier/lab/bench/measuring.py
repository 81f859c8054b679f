"""One measurement of one load in one process: warm up until steady, measure until the rate is known, keep every sample.

A load is anything that takes steps: a training, an inference, a matrix product. This module decides when a load is
steady and how long to measure, and computes figures from the samples. `configurations` decides the order of the loads.
"""

import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from vernier.clock import now_s
from vernier.devices import Device
from vernier.lab.records.bench import Figures, Plan, Samples, WarmUp, WarmUpSamples
from vernier.measure.estimates import mean_interval, rate_estimate, summarize
from vernier.measure.throughput import LOADER_BOUND_SHARE, Window
from vernier.records.profile import PhaseTimes
from vernier.records.run import Compilation
from vernier.records.statistics import Estimate

from .progress import MEASURING, PHASES, WARM_UP, PhaseWatch

METHOD = "vernier-bench-2"
"""2: warm-up is bounded, growing images are measured at their last size, matrix products before and after."""
PRECISION = 0.01
"""Half width of the rate's 95 % interval to reach, as a share of the rate."""
FEWEST_STEPS = 30  # `mean_interval` takes fewer for independent (FEWEST_SAMPLES)
CHECK_GROWTH = 1.5  # each check computes the interval of all steps so far, so the distances between checks grow
EXTRA_SHARE, EXTRA_LEAST_S = 0.9, 10.0
"""Start-up, warm-up and phases of a process take at most this share of its longest measuring time, but may take
so many seconds in any case: start-up alone takes half of them."""
_CLOCK_CHECK_S = 0.25
"""How often the elapsed time is compared with the limit; in between nothing but steps happens."""


class Load(Protocol):
    """Something that takes steps. `images` per step are summed over all processes, which use `devices` devices."""

    images: int
    devices: int

    def step(self) -> float:
        """One whole step; the device is synchronised at its end. Returns the seconds waited for data."""
        ...

    def split(self, steps: int) -> dict[str, list[float]]:
        """Seconds by phase of that many further steps, synchronised after every phase; empty without phases."""
        ...


def measure(
    load: Load,
    plan: Plan,
    watch: PhaseWatch | None = None,
) -> Samples:
    """Warm up, measure, then split some further steps by phase."""
    watch = watch or PhaseWatch()
    watch.enter(WARM_UP)
    warmup = warm_up(load, plan, watch)
    watch.enter(MEASURING)
    samples = _measure_steps(load, plan, warmup, watch)
    watch.enter(PHASES)
    # Last, and on further steps: a synchronization after every phase makes steps slower than those measured.
    split_steps = watch.agreed(_affordable_steps(plan, statistics.median(samples.step_s), watch))
    split_s = load.split(split_steps) if split_steps else {}
    return replace(samples, split_s={name: tuple(values) for name, values in split_s.items()})


def _measure_steps(load: Load, plan: Plan, warmup: WarmUpSamples, watch: PhaseWatch) -> Samples:
    """Steps until the rate is known, or the next one would end after the time limit."""
    step_s, wait_s, reached_precision = list[float](), list[float](), None
    began_s, began_cpu_s, timer = now_s(), _own_cpu_s(), _Timer(load)
    due = plan.steps or FEWEST_STEPS
    typical_s = statistics.median(warmup.step_s) if warmup.step_s else None
    # Agreed, as every check is a collective: all must check at the same steps, or they hang.
    check_every = watch.agreed(max(1, round(_CLOCK_CHECK_S / typical_s))) if typical_s else 1

    def time_left() -> bool:
        elapsed_s = now_s() - began_s
        return elapsed_s + elapsed_s / max(1, len(step_s)) <= plan.max_seconds

    while True:
        while len(step_s) < due:
            lasted_s, waited_s = timer.step()
            step_s.append(lasted_s)
            wait_s.append(waited_s)
            if len(step_s) % check_every == 0:
                if plan.steps is None and not watch.agreed(time_left()):
                    break
                watch.show(step_s, load.images)
                timer.resume()
        # Before the precision is computed: sensors are read for the span of the steps only.
        ended_s, cpu_s = now_s(), _own_cpu_s() - began_cpu_s
        if plan.steps is not None:
            break
        reached_precision = is_precise(step_s, plan.precision, alone=bool(plan.alone))
        if not watch.agreed(not reached_precision and time_left()):
            break
        due = max(due + 1, int(len(step_s) * CHECK_GROWTH))
        timer.resume()
    return Samples(
        step_s=tuple(step_s),
        wait_s=tuple(wait_s),
        warmup=warmup,
        began_s=began_s,
        ended_s=ended_s,
        reached_precision=reached_precision,
        cpu_s=cpu_s,
    )


def _own_cpu_s() -> float:
    times = os.times()
    return times.user + times.system


def _affordable_steps(plan: Plan, step_s: float, watch: PhaseWatch) -> int:
    """How many further steps fit into the time that is left for all but measuring."""
    if plan.extra_max_seconds is None:
        return plan.split_steps
    return max(0, min(plan.split_steps, int((plan.extra_max_seconds - watch.extra_s()) / step_s)))


class _Timer:
    """A step lasts from the end of the previous one, so nothing between steps is lost."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._began_s = now_s()

    def resume(self) -> None:
        """Leave the time since the last step out."""
        self._began_s = now_s()

    def step(self) -> tuple[float, float]:
        """Seconds of one step, and those of them that it waited for data."""
        # One reading of the clock ends this step and begins the next.
        wait_s = self._load.step()
        began_s, self._began_s = self._began_s, now_s()
        return self._began_s - began_s, wait_s


def is_precise(step_s: Sequence[float], share: float, *, alone: bool = False) -> bool:
    """Whether the rate is known to `share` of itself, by the noise and the correlation of these steps.

    Between several processes this is a guess that ends one of them: the interval is that of the processes. Steps that
    are `alone` must also be enough for an interval of their own.
    """
    if len(step_s) < FEWEST_STEPS:
        return False
    interval = mean_interval(np.array(step_s))
    precise = bool(interval.high[0] - interval.low[0] <= 2 * share * interval.mean[0])
    return precise and (not alone or bool(interval.needs[0] <= len(step_s)))


# -------------------------------------------------------------------------------------------------------------- warm-up


WINDOW_STEPS, WINDOW_S, STEADY_TOLERANCE = 5, 0.5, 0.02


def warm_up(load: Load, plan: Plan, watch: PhaseWatch | None = None) -> WarmUpSamples:
    """Steps until two successive windows agree, or the time is up; at least one, or two where the first compiles."""
    watch = watch or PhaseWatch()
    step_s, steady, timer = list[float](), False, _Timer(load)
    # The first step alone would not show how much of it was compiling.
    fewest = 2 if watch.compiles else 1
    compiled, graphs = _compiled(load), 1
    while watch.agreed(
        len(step_s) < fewest
        or (graphs > 0 and len(step_s) < _MOST_COMPILING)
        or (not steady and _warm_up_time_left(step_s, plan, watch))
    ):
        timer.resume()
        before = _compiled(load)
        step_s.append(timer.step()[0])
        steady, graphs = is_steady(step_s), _compiled(load).graphs - before.graphs
        # Compiling is not charged to the time limit of a process: it would leave nothing for the warm-up.
        counted_s = _compiled(load).seconds - compiled.seconds
        watch.one_off_s = max(counted_s, step_s[0] - 2 * step_s[-1] if watch.compiles else 0.0)
        watch.show(step_s, load.images)
    return WarmUpSamples(step_s=tuple(step_s), steady=steady)


_MOST_COMPILING = 20
"""Warm-up lasts until a step compiles nothing, but no more steps than this."""


def _compiled(load: Load) -> Compilation:
    """What the device of a load has compiled so far; a load without a device compiles nothing that is counted."""
    device: Device | None = getattr(load, "device", None)
    return Compilation() if device is None else device.compilations()


def _warm_up_time_left(step_s: Sequence[float], plan: Plan, watch: PhaseWatch) -> bool:
    """Whether another step fits into the limits, with one more left for the phases of a step."""
    last_s = step_s[-1]
    # The first step is not charged: it may compile for minutes. The next one is expected to take as long as the last.
    within = sum(step_s[1:]) + last_s <= plan.warmup_max_seconds
    return within and (plan.extra_max_seconds is None or watch.extra_s() + 2 * last_s <= plan.extra_max_seconds)


def is_steady(step_s: Sequence[float]) -> bool:
    """Whether the last two windows have the same median: within 2 %, or within what their own scatter explains.

    A window has at least 5 steps and half a second; the first step is never in one.
    """
    newest = _window(step_s)
    before = _window(step_s[: -len(newest)]) if newest else ()
    if not newest or not before or len(newest) + len(before) >= len(step_s):
        return False
    a, b = statistics.median(before), statistics.median(newest)
    scatter = math.hypot(_median_error(before), _median_error(newest))
    return abs(a - b) <= max(STEADY_TOLERANCE * a, 2 * scatter)


def _window(step_s: Sequence[float]) -> Sequence[float]:
    """The shortest last stretch that is long enough; empty when there is none."""
    total = 0.0
    for count, seconds in enumerate(reversed(step_s), start=1):
        total += seconds
        if count >= WINDOW_STEPS and total >= WINDOW_S:
            return step_s[-count:]
    return ()


def _median_error(values: Sequence[float]) -> float:
    """Standard error of a median, from the differences of neighbours: a trend must not count as scatter."""
    typical: float = statistics.median(abs(b - a) for a, b in pairwise(values))
    # 1.4826 turns a median absolute deviation into an sd, sqrt(2) belongs to the difference of two steps, and
    # 1.2533 = sqrt(pi / 2) is the error of a median over that of a mean (normal numbers).
    return float(1.4826 / math.sqrt(2) * 1.2533 * typical / math.sqrt(len(values)))


# -------------------------------------------------------------------------------------------------------------- figures


def compute_figures(samples: Samples, *, images: int, devices: int) -> Figures:
    """Rates with intervals, step times, data wait and phases of raw samples; `images` per step over all devices."""
    warmup_s, steady_s = samples.warmup.step_s, statistics.median(samples.step_s)
    warmup = WarmUp(
        steps=len(warmup_s),
        seconds=sum(warmup_s),
        steady=samples.warmup.steady,
        first_step_s=warmup_s[0] if warmup_s else None,
        first_step_extra_s=max(0.0, warmup_s[0] - steady_s) if warmup_s else None,
    )
    rate = rate_estimate(samples.step_s, images)
    return Figures(
        method=METHOD,
        phases=mean_phases(samples.split_s),
        warmup=warmup,
        reached_precision=samples.reached_precision,
        **describe_steps(samples.step_s, samples.wait_s, rate, images=images, devices=devices),
    )


def describe_steps(
    step_s: Sequence[float], wait_s: Sequence[float], rate: Estimate, *, images: int, devices: int
) -> dict[str, Any]:
    """The figures that one process and a configuration over its rounds have in common, from the seconds of all their
    steps."""
    window = Window(samples=images * len(step_s), wall_s=sum(step_s), data_wait_s=sum(wait_s))
    low, high = (None if end is None else end / devices for end in (rate.low, rate.high))
    return {
        "images_per_s_total": rate,
        "images_per_s_per_device": replace(rate, value=rate.value / devices, low=low, high=high),
        "devices": devices,
        "compute_only_images_per_s_total": window.compute_samples_per_s,
        "data_wait_share": window.data_wait_share,
        "verdict": bound_by(window.data_wait_share),
        "step_s": summarize(step_s, unit="s", of="step, all devices"),
    }


def bound_by(data_wait_share: float) -> str:
    """Whether loading or computing limits the speed."""
    return "loader-bound" if data_wait_share > LOADER_BOUND_SHARE else "compute-bound"


def mean_phases(split_s: dict[str, tuple[float, ...]]) -> PhaseTimes | None:
    """Mean seconds of each phase and its share of the split steps; None when no step was split."""
    means = {name: statistics.fmean(values) for name, values in split_s.items() if values}
    total = sum(means.values())
    if not total:
        return None
    steps = max(len(v) for v in split_s.values())
    return PhaseTimes(steps=steps, seconds=means, share={name: mean / total for name, mean in means.items()})
