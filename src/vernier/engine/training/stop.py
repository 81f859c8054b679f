"""Stopping on request: a signal sets a flag, the loop acts on it at the next step. A second Ctrl-C does not wait."""

import signal
from types import FrameType, TracebackType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class StopRequested(Exception):
    """Raised between steps or evaluation batches once a signal has come in."""


class StopFlag:
    """Catches SIGTERM, SIGINT and SIGUSR1 while entered.

    `one_of_many`: after an error SIGTERM stays caught, because a launcher sends it to all processes as soon as one is gone,
    and this one still has to say which.
    """

    def __init__(self, *, one_of_many: bool = False) -> None:
        self._one_of_many = one_of_many
        self.signal_name: str | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopFlag":
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Stop as all processes have agreed, whichever of them the signal came to."""
        raise StopRequested(self.signal_name or "a signal to another process")
