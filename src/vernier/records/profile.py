"""The profile of some steps: profile.rank0.json, `vernier profile --json`, and `profile` in a run's summary."""

from dataclasses import field

from vernier.frozen import frozen

from .codec import omitted
from .what_ran import WhatRan

_OTHERS_CORES_LIMIT, _STEAL_LIMIT_PCT, _DRIFT_LIMIT_PCT = 0.1, 2.0, 2.0
"""What a machine may be disturbed by and still count as quiet."""


@frozen
class KernelTime:
    """All calls of one kernel or operation with one launch shape; `share` is of all time on its device."""

    name: str
    device: str
    calls: int
    total_ms: float
    mean_ms: float
    min_ms: float
    max_ms: float
    share: float
    grid: str | None = None
    block: str | None = None


@frozen
class KernelCall:
    """One call of a kernel on a device, or of an operation on the host, in the order of time.

    `start_ms` counts from the first call of the profile; sizes and registers are those of a launch.
    """

    start_ms: float
    duration_ms: float
    device: str
    stream: str | None = None
    grid: str | None = None
    block: str | None = None
    registers: int | None = None
    shared_memory_bytes: int | None = None
    name: str


@frozen
class PhaseTimes:
    """Seconds of each phase over some steps, and their share; a profile also has `idle`, which no phase claims."""

    steps: int
    seconds: dict[str, float] = field(default_factory=dict)
    share: dict[str, float] = field(default_factory=dict)
    note: str | None = omitted()


@frozen
class ProfilingOverhead:
    """How much longer a profiled step took than the steady ones around it."""

    ratio: float
    profiled_step_s_median: float
    other_step_s_median: float
    n_profiled: int
    n_others: int


@frozen
class Noise:
    """What disturbed a stretch of time: other programs, the hypervisor, throttling, clock drift. None: not measured."""

    samples: int = 0
    others_cores: float | None = None
    steal_pct: float | None = None
    throttled: tuple[str, ...] | None = None
    clock_drift_pct: float | None = None
    temperature_c_max: float | None = None

    def sentences(self) -> list[str]:
        """Sentences for a reader; empty when the machine was quiet as far as its sensors tell."""
        sentences = []
        if (self.others_cores or 0) > _OTHERS_CORES_LIMIT:
            sentences.append(f"other programs used {self.others_cores:.2f} cores")
        if (self.steal_pct or 0) > _STEAL_LIMIT_PCT:
            sentences.append(f"the hypervisor took {self.steal_pct:.1f} % of the CPU")
        if self.throttled:
            sentences.append(f"throttled: {', '.join(self.throttled)}")
        if abs(self.clock_drift_pct or 0) > _DRIFT_LIMIT_PCT:
            sentences.append(f"the clock drifted by {self.clock_drift_pct:+.1f} %")
        return sentences


@frozen
class ProfileSummary:
    """The profiled steps of one process, first and last included. `overhead` is None with too few others to compare.

    Communication that overlaps the backward pass is in `communication_busy_ms` and not a phase of its own. `noise` is
    what disturbed the profiled steps.
    """

    method: str
    steps: tuple[int, int]
    where_the_time_goes: PhaseTimes
    rank: int = 0
    communication_busy_ms: float = 0.0
    overhead: ProfilingOverhead | None = None
    top: tuple[KernelTime, ...] = ()
    files: tuple[str, ...] = ()
    noise: Noise | None = omitted()
    ran: WhatRan | None = omitted()

    def lines(self) -> list[str]:
        """Lines for the terminal: what disturbed it, where the time goes, and what profiling cost."""
        split = ", ".join(f"{name} {100 * s:.1f} %" for name, s in self.where_the_time_goes.share.items())
        cost = self.overhead
        overhead = (
            "unknown, fewer than three steady steps around the range"
            if cost is None
            else f"a step took {cost.ratio:.2f} times as long ({1000 * cost.profiled_step_s_median:.1f} ms, "
            f"n = {cost.n_profiled}, against {1000 * cost.other_step_s_median:.1f} ms, n = {cost.n_others}; medians)"
        )
        noise = self.noise.sentences() if self.noise else []
        return [
            *([f"NOISY while profiling: {'; '.join(noise)}"] if noise else []),
            f"where the time goes (steps {self.steps[0]} to {self.steps[1]}): {split}",
            f"overhead of profiling: {overhead}",
        ]
