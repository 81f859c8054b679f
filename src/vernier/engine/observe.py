"""Who watches a run. The loop tells all observers what happened; none of them can change it."""

from typing import Any, Protocol


class Observer(Protocol):
    def emit(self, event: dict[str, Any]) -> None:
        """Something happened: `kind` is start, step, epoch, eval, checkpoint, warning or end."""
        ...

    def progress(self, phase: str, done: int, total: int) -> None:
        """Something long is under way; never recorded."""
        ...


class Observers:
    """All observers of a run as one."""

    def __init__(self, *watchers: Observer) -> None:
        self._watchers = list(watchers)

    def add(self, watcher: Observer) -> None:
        self._watchers.append(watcher)

    def emit(self, kind: str, **fields: Any) -> None:
        event = {"kind": kind, **fields}
        for watcher in self._watchers:
            watcher.emit(event)

    def progress(self, phase: str, done: int, total: int) -> None:
        for watcher in self._watchers:
            watcher.progress(phase, done, total)
