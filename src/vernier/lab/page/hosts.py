"""The section about several processes: which one is slow, on which host, and how long the others and the network take.

A step of a process has four parts: waiting for data and computing, both its own, then waiting for the slowest process,
then what is left when that one is ready: the exchange of gradients and the update. Own times of all processes are in
the run's events; waiting for data is in the events of each process.
"""

from collections.abc import Sequence
from typing import Any

from vernier.frozen import frozen
from vernier.records.events import ProcessInfo
from vernier.report.page.figures import Content, Figure, Section, stacks
from vernier.report.page.html import note
from vernier.report.page.runs import MANY_RANKS, Run
from vernier.report.page.sections.training import moment, x_ranges
from vernier.report.page.training import Point
from vernier.wording import plural

from .drawing import draw

SLOW = 1.1
"""A process that takes so many times the median is named as a straggler."""
MOST_LINES = 16
"""Of more processes, the slowest of each host is drawn."""
PARTS = {
    "waiting for data": 4,
    "computing": 0,
    "computing and waiting for data": 1,
    "waiting for the slowest process": 5,
    "exchange and update": 3,
}
"""Parts of a step, and the numbers of their colours."""


@frozen
class RankTime:
    """One process in the last session: seconds per step by part, on average."""

    process: ProcessInfo
    own_s: float
    data_wait_s: float | None
    """None where the events of the process are not here."""
    slowest_s: float
    exchange_s: float

    def parts(self) -> dict[str, float]:
        """Seconds per step of PARTS."""
        waits = {"waiting for the slowest process": self.slowest_s, "exchange and update": self.exchange_s}
        if self.data_wait_s is None:
            return {"computing and waiting for data": self.own_s, **waits}
        wait_s = min(self.data_wait_s, self.own_s)  # timed apart: computing must not become negative
        return {"waiting for data": wait_s, "computing": self.own_s - wait_s, **waits}


def hosts(subjects: list[Run]) -> Content | None:
    """None where no run has several processes whose times are known."""
    lead = "Of each process of the last session. Own time is that until its last gradients were sent."
    runs = [
        (s.name, (), [_timeline(s), _stack(times)], [note(describe(times)), note(_missing(s))])
        for s in subjects
        if (times := rank_times(s))
    ]
    return stacks(lead, runs)


def rank_times(s: Run) -> list[RankTime]:
    """By rank; empty for a single process, and where own times were not recorded."""
    processes, points = _processes(s), _last_session(s)
    if len(processes) < 2 or not points:
        return []
    steps = sum(p.steps for p in points)
    # A window has only the mean per process, so its slowest process stands for all of its steps. Seconds in total.
    slowest = sum(p.steps * max(p.own_s or ()) for p in points)
    # Wall and own times are measured apart, so the rest can be slightly negative.
    exchange_s = max(0.0, sum(p.window.wall_s for p in points) - slowest) / steps
    # The run's own events are those of rank 0.
    waits = {0: _data_wait_s(points), **{peer.rank: _data_wait_s(peer.points) for peer in s.peers if peer.points}}
    # own_s is a mean per step, so windows are weighted by their steps. [processes]
    own = [sum(p.steps * p.own_s[rank] for p in points if p.own_s) / steps for rank in range(len(processes))]
    return [
        RankTime(
            process=process,
            own_s=own[process.rank],
            data_wait_s=waits.get(process.rank),
            slowest_s=slowest / steps - own[process.rank],
            exchange_s=exchange_s,
        )
        for process in processes
    ]


def describe(times: Sequence[RankTime]) -> str:
    """Which process or host is slow, and what share of a step the others and the network take."""
    ordered = sorted(times, key=lambda t: t.own_s)
    # The lower median: of two processes, the slower one is compared with the faster one, not with their mean.
    median_s, worst = ordered[(len(ordered) - 1) // 2].own_s, ordered[-1]
    step_s = worst.own_s + worst.slowest_s + worst.exchange_s
    waiting = sum(t.slowest_s for t in times) / len(times)
    shares = (
        f"Of a step of {1000 * step_s:.3g} ms, a process waits {_share(waiting, step_s)} for the slowest one on "
        f"average; exchange and update take {_share(worst.exchange_s, step_s)}."
    )
    slow = [t for t in times if t.own_s > SLOW * median_s]
    if not slow:
        return (
            f"No straggler: the slowest process, rank {worst.process.rank} on {worst.process.host}, takes "
            f"{1000 * worst.own_s:.3g} ms per step, within "
            f"{100 * (SLOW - 1):.0f} % of the median. {shares}"
        )
    more = f"{100 * (worst.own_s / median_s - 1):.0f} % more than the median of {1000 * median_s:.3g} ms"
    most = "up to " if len(slow) > 1 else ""
    return f"Straggler: {_who(slow, times)}, {most}{1000 * worst.own_s:.3g} ms per step, {more}. {shares}"


def _who(slow: Sequence[RankTime], times: Sequence[RankTime]) -> str:
    """The slow processes; a host whose processes are all slow by its name."""
    names = []
    for host in dict.fromkeys(t.process.host for t in slow):
        ranks = [t.process.rank for t in slow if t.process.host == host]
        count = sum(t.process.host == host for t in times)
        if len(ranks) == count < len(times):  # the only host of a run explains nothing
            names.append(f"host {host} ({'its process' if count == 1 else f'all of its {count} processes'})")
        else:
            names.append(f"rank {', '.join(map(str, ranks))} on {host}")
    return "; ".join(names)


def _share(part_s: float, step_s: float) -> str:
    return f"{100 * part_s / step_s:.0f} %" if step_s > 0 else "0 %"


def _processes(s: Run) -> list[ProcessInfo]:
    """By rank; empty where a rank is missing or there twice, as in a damaged file."""
    processes = sorted(s.start.processes, key=lambda process: process.rank) if s.start else []
    return processes if [p.rank for p in processes] == list(range(len(processes))) else []


def _last_session(s: Run) -> list[Point]:
    """Windows of the last session in which the own times of all its processes are known."""
    session = s.points[-1].session if s.points else 0  # another session may have had other processes
    return [p for p in s.points if p.session == session and p.own_s and len(p.own_s) == len(_processes(s))]


def _data_wait_s(points: Sequence[Point]) -> float:
    return sum(p.window.data_wait_s for p in points) / max(1, sum(p.steps for p in points))


def _timeline(s: Run) -> Figure:
    """Own time per step over the run: one line per process, or per host the slowest of its processes."""
    processes, points = _processes(s), _last_session(s)
    by_host = len(processes) > MOST_LINES
    groups: dict[str, list[int]] = {}
    for process in processes:
        groups.setdefault(process.host if by_host else f"rank {process.rank} on {process.host}", []).append(
            process.rank
        )
    rows: list[list[Any]] = [
        [name, *moment(p), 1000 * max(p.own_s[rank] for rank in ranks)]  # the slowest one sets the pace of its host
        for name, ranks in groups.items()
        for p in points
        if p.own_s
    ]
    which = "the slowest process of each host" if by_host else "each process"
    return draw("ranks", rows, {"which": which}, x_ranges=x_ranges([s]))


def _stack(times: Sequence[RankTime]) -> Figure:
    data = [
        [f"rank {t.process.rank} on {t.process.host}", part, value]
        for t in times
        for part, value in t.parts().items()
        if value > 0
    ]
    return draw("rank-parts", data, part_colours=PARTS)


def _missing(s: Run) -> str:
    """Which hosts' files are not in the run directory."""
    present = {0, *(peer.rank for peer in s.peers if peer.points)}
    processes = _processes(s)
    # Beyond MANY_RANKS, `runs` reads one process per host on purpose: the others are not missing.
    missing = [p for p in processes if p.rank not in present] if len(processes) <= MANY_RANKS else []
    if not missing:
        return ""
    names = ", ".join(dict.fromkeys(p.host for p in missing))
    return (
        f"Not here: the events of {plural(len(missing), 'process')} on {names}. Copy "
        f"events.rank{missing[0].rank}.jsonl and the like, and telemetry files, into the run directory, and make the "
        "page again."
    )


SECTION = Section(title="Processes and hosts", order=30, of=Run, build=hosts)
