"""Stopping on request: a signal sets a flag and the loop acts on it at the next step. A second Ctrl-C stops at once."""

import signal
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class StopRequested(Exception):
    """Raised between steps or evaluation batches after a signal."""


class StopFlag:
    """Catches SIGTERM, SIGINT and SIGUSR1 while entered.

    `one_of_many`: after an error SIGTERM stays caught, because a launcher sends it to all processes as soon as one has
    ended, and this one still has to report which.
    """

    def __init__(self, *, one_of_many: bool = False) -> None:
        self._one_of_many = one_of_many
        self.signal_name: str | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopFlag":
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for number, handler in self._before.items():
            if number != signal.SIGTERM or error is None or not self._one_of_many:
                signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.signal_name is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_name = signal.Signals(number).name

    @property
    def requested(self) -> bool:
        return self.signal_name is not None

    def obey(self) -> None:
        """Raise StopRequested; called in all processes, whichever of them got the signal."""
        raise StopRequested(self.signal_name or "a signal to another process")
