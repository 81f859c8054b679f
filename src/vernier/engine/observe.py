"""Who watches a run. The loop tells all observers what happened; none of them can change it."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable


class Observer(Protocol):
    def emit(self, event: dict[str, Any]) -> None:
        """Something happened: `kind` is start, step, epoch, eval, checkpoint, warning or end."""
        ...

    def progress(self, phase: str, done: int, total: int) -> None:
        """Something long is under way; never recorded."""
        ...


@runtime_checkable
class Gallery(Protocol):
    """An observer that also keeps pictures."""

    def pictures(self, tag: str, images: Any) -> None:
        """uint8 [images, height, width, channels]."""
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

    def pictures(self, tag: str, make: Callable[[], Any]) -> None:
        """Pictures, made only where somebody keeps them."""
        keepers = [watcher for watcher in self._watchers if isinstance(watcher, Gallery)]
        if keepers:
            images = make()
            for keeper in keepers:
                keeper.pictures(tag, images)
