"""The result of an audit, as `vernier audit --json` prints it."""

from typing import Literal

from vernier.frozen import frozen
from vernier.records.events import ProcessInfo

Verdict = Literal["agrees", "differs", "cannot tell"]


@frozen
class Difference:
    """Where a run and its replay part: fingerprints agree up to step `after`, and something differs by `step`."""

    step: int
    after: int
    kinds: tuple[str, ...]
    """gradients, weights, statistics, optimizer."""
    tensors: tuple[str, ...] = ()
    """The gradients and weights that differ, in the order of the model."""
    shards: tuple[int, ...] = ()
    """The virtual shards whose gradients differ, if others do not."""
    suspects: tuple[ProcessInfo, ...] = ()
    """The processes that computed `shards`, or the only one."""


@frozen
class Interval:
    """A part of the run between two checkpoints that were kept; 0 is the start of training."""

    start: int
    stop: int
    compared: int = 0
    """Fingerprints that the run recorded in it."""
    seconds: float = 0.0
    difference: Difference | None = None


@frozen
class AuditResult:
    """What was computed again, and what it shows."""

    run: str
    verdict: Verdict
    intervals: tuple[Interval, ...]
    of_intervals: int
    """So many parts of the run can be replayed."""
    missed: float
    """The probability that a fault in one interval, chosen at random, is in none of those that were replayed."""
    damaged: tuple[int, ...] = ()
    """Checkpoints whose files do not have what training had at their step."""
    doubts: tuple[str, ...] = ()
    """Why a difference might not be a fault: another processor, another PyTorch."""

    @property
    def steps(self) -> int:
        return sum(each.stop - each.start for each in self.intervals)


@frozen
class Verification:
    """Whether a run is as it was certified. `signed`: by the key that was given; `audit`: what was replayed."""

    run: str
    verdict: Verdict
    files: int
    problems: tuple[str, ...] = ()
    signed: bool = False
    audit: AuditResult | None = None
