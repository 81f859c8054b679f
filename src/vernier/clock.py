"""The only clocks in Vernier: a monotonic one for durations, the wall clock for labels, and a stopwatch by purpose."""

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import contextmanager

now_s = time.perf_counter
thread_cpu_s = time.thread_time
process_cpu_s = time.process_time
wall_s = time.time
"""Seconds since 1970, for a stamp that another program compares or has set; never used to measure a duration."""


def utc_stamp() -> str:
    """Wall-clock time for people and file names; never used to compute a duration."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")


def parse_stamp_s(stamp: str | None) -> float | None:
    """The seconds since 1970 of a `utc_stamp`; None where there is none, or it is no time."""
    try:
        return dt.datetime.fromisoformat(stamp).timestamp() if stamp else None
    except (ValueError, OverflowError, OSError):
        return None


def file_stamp() -> str:
    """Local time as a sortable part of a directory name."""
    return dt.datetime.now().strftime("%Y%m%d-%H%M%S")


class Stopwatch:
    """Seconds spent by purpose; what no purpose claims is visible as the rest of the total. Survives restarts."""

    def __init__(self, earlier: dict[str, float] | None = None) -> None:
        self._spent = dict(earlier or {})
        self._before_s = self._spent.pop("total", 0.0)
        self._start_s = now_s()

    def add(self, purpose: str, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"a duration cannot be negative: {purpose} took {seconds} s")
        self._spent[purpose] = self._spent.get(purpose, 0.0) + seconds

    @contextmanager
    def spending(self, purpose: str) -> Iterator[None]:
        start = now_s()
        try:
            yield
        finally:
            self.add(purpose, now_s() - start)

    @property
    def session_s(self) -> float:
        """Since this process started counting."""
        return now_s() - self._start_s

    def spent(self) -> dict[str, float]:
        """Seconds by purpose over all sessions of the run, with `total` and the unclaimed `other`."""
        total = self._before_s + self.session_s
        return {
            "total": total,
            **self._spent,
            "other": max(0.0, total - sum(v for k, v in self._spent.items() if k != "other")),
        }
