"""The one definition of throughput.

Throughput = samples through the optimiser (training) or the model (inference), summed over processes, divided by the
wall time of the window, data loading included. The compute-only rate and the data wait are separate and named so.
"""

import statistics
from collections.abc import Iterable, Sequence

from vernier.frozen import frozen
from vernier.records.events import StepEvent

LOADER_BOUND_SHARE = 0.1
"""Above this share of data wait a load is loader-bound: MLPerf Storage wants accelerators busy for 90 % of the time."""


@frozen
class Window:
    """Consecutive steps. `samples` counts all processes; durations are this process's wall time."""

    samples: float
    wall_s: float
    data_wait_s: float = 0.0
    devices: int = 1

    def __post_init__(self) -> None:
        if self.samples < 0 or self.wall_s < 0 or not 0 <= self.data_wait_s <= self.wall_s * (1 + 1e-9) + 1e-9:
            raise ValueError(f"impossible window: {self}")

    @classmethod
    def of_step(cls, event: StepEvent) -> "Window":
        """The window of a step event. Its waits and its steps are timed apart, so a wait is at most the wall time."""
        wall_s = sum(event.step_s)
        # Two clocks: the device times the steps, and the host the waits.
        return cls(samples=event.samples, wall_s=wall_s, data_wait_s=min(wall_s, sum(event.wait_s)))

    @classmethod
    def total(cls, windows: Iterable["Window"]) -> "Window":
        """Windows of the same devices, one after the other."""
        parts = list(windows)
        return cls(
            samples=sum(w.samples for w in parts),
            wall_s=sum(w.wall_s for w in parts),
            data_wait_s=sum(w.data_wait_s for w in parts),
            devices=parts[0].devices if parts else 1,
        )

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def samples_per_s_per_device(self) -> float:
        return self.samples_per_s / self.devices

    @property
    def compute_samples_per_s(self) -> float:
        """The rate without waiting for data: not throughput, and never labelled so."""
        busy = self.wall_s - self.data_wait_s
        return self.samples / busy if busy > 0 else 0.0

    @property
    def data_wait_share(self) -> float:
        return self.data_wait_s / self.wall_s if self.wall_s > 0 else 0.0


def step_samples(seconds: Sequence[float], steps: Sequence[int]) -> list[float]:
    """One sample per measured part for an interval of the mean step time; a part is a step, or a window of `steps`.

    The samples' mean is the total time per step. Windows count with their steps: each deviates from that mean by the
    time it took beyond as many average steps, over the mean number of steps (the linearised ratio of two sums).
    """
    if all(count == 1 for count in steps):
        return list(seconds)
    mean_s, mean_steps = sum(seconds) / sum(steps), sum(steps) / len(steps)
    return [mean_s + (s - mean_s * count) / mean_steps for s, count in zip(seconds, steps, strict=True)]


def warmup_steps(step_s: Sequence[float]) -> int:
    """Number of first steps that are not steady yet: until the median of three is near that of the later half."""
    # Too few to tell steady steps from the first ones: one is left out, if another remains.
    if len(step_s) < 6:
        return min(1, len(step_s) - 1) if step_s else 0
    half = len(step_s) // 2
    # 10 %: noise of single steps stays below it, compilation and cold caches do not.
    settled = statistics.median(step_s[half:]) * 1.1
    for first in range(half):
        if step_s[first] <= settled and statistics.median(step_s[first : first + 3]) <= settled:
            return first
    return half
