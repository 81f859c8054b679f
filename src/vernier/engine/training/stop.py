"""Stopping on request: a signal or a time limit, on which the loop acts at the next step. A second Ctrl-C ends at once.

Before the first step `vernier.signals` has the signals; after the last one they are caught and change nothing.
"""

import signal
from collections.abc import Iterable
from types import FrameType

from vernier import signals
from vernier.clock import now_s
from vernier.records.events import CheckpointEvent, Event, StepEvent
from vernier.references import given
from vernier.signals import StopRequested


class TimeLimit:
    """The end of the time that a command has: limits.max_time.

    An observer, which learns from the events how long a step and a checkpoint take: the limit is reached while there is
    still time for both. Before the first step it is not reached, so that every session gets on.
    """

    def __init__(self, text: str, left_s: float, processes: int = 1) -> None:
        self.text, self._end_s = text, now_s() + left_s
        self._steps_ahead = 1 if processes == 1 else 2  # several processes agree on stopping one step later
        self._step_s: float | None = None
        self._checkpoint_s = 0.0

    def emit(self, event: Event) -> None:
        match event:
            case StepEvent():
                self._step_s = max(event.step_s)  # of the newest window: an earlier slow step may never come again
            case CheckpointEvent():
                self._checkpoint_s = max(self._checkpoint_s, event.seconds)

    def learn(self, history: Iterable[Event]) -> None:
        """Take the checkpoints of earlier sessions into account."""
        for event in history:
            if isinstance(event, CheckpointEvent):
                self.emit(event)

    def progress(self, phase: str, done: int, total: int) -> None:
        pass

    @property
    def reached(self) -> bool:
        if self._step_s is None:
            return False
        return now_s() + self._steps_ahead * self._step_s + self._checkpoint_s >= self._end_s


class StopFlag:
    """Catches SIGTERM, SIGINT, SIGUSR1 and SIGHUP while entered; in a process of `vernier train`, from then on.

    `one_of_many`: after an error SIGTERM stays caught, because a launcher sends it to all processes as soon as one has
    ended, and this one still has to report which.
    """

    def __init__(self, *, one_of_many: bool = False, limit: TimeLimit | None = None) -> None:
        self._one_of_many, self._limit = one_of_many, limit
        self._to_the_end = False
        self.signal_name: str | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopFlag":
        # First: it raises for a signal that a library swallowed. Until the next line, handlers of the start raise, too.
        self._to_the_end = signals.end_of_start()
        for number in signals.caught():
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._to_the_end:
            return
        for number, handler in self._before.items():
            if number != signal.SIGTERM or error is None or not self._one_of_many:
                signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Otherwise only a flag is set: in the middle of a step there is no state that could be saved.
        if self.signal_name is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_name = signal.Signals(number).name

    @property
    def requested(self) -> bool:
        return self.signal_name is not None or (self._limit is not None and self._limit.reached)

    def obey(self) -> None:
        """Raise StopRequested; called in all processes, whichever of them got the signal."""
        reached = self._limit is not None and self._limit.reached
        limit = given("limits.max_time", self._limit.text) if self._limit is not None and reached else None
        raise StopRequested(self.signal_name or limit or "a signal to another process")
