"""Files of one JSON object per line: events.jsonl and telemetry.jsonl, appended and flushed as things happen."""

import json
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from vernier.addresses import redact_addresses
from vernier.clock import utc_stamp
from vernier.config.migrations import SCHEMAS
from vernier.records.codec import DamagedRecord
from vernier.records.events import (
    DivergenceEvent,
    EvalEvent,
    Event,
    StartEvent,
    StepEvent,
    decode_event,
    encode_event,
)
from vernier.wording import plural

from .backlog import Backlog
from .durable import naming, parse_json

E = TypeVar("E", bound=Event)
_TAIL_BYTES = 65536
_BLOCK_BYTES = 1 << 18


def _event_of(line: bytes) -> Event | None:
    """The event of a line; None where it is damaged or cut short, or of a kind that is not known here."""
    try:
        return decode_event(parse_json(redact_addresses(line.decode("utf-8", errors="replace"))))
    except (ValueError, DamagedRecord):
        return None


def _lines_from_the_end(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, the last one first; only as much of it is read as is asked for."""
    position, rest = file.seek(0, os.SEEK_END), b""
    while position > 0:
        size = min(_BLOCK_BYTES, position)
        position = file.seek(position - size)
        first, *lines = (file.read(size) + rest).split(b"\n")
        yield from reversed(lines)
        rest = first
    yield rest


def _drop_evaluation(events: list[Event], step: int) -> None:
    """Remove the evaluation of this step, which lies behind all steps before it."""
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if isinstance(event, EvalEvent) and event.step == step:
            del events[index]
        if isinstance(event, StepEvent) and event.step < step:
            return


class EventLog:
    """Appends one JSON object per line, at once; time and schema are added to each.

    Raises no OSError: lines that cannot be written wait in memory (see `Backlog`), and `pop_warning` tells.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._warned = path, False
        # Each process of a run has a file of its own.
        self._backlog = Backlog(self._open, sole_writer=True)

    def _open(self) -> FileIO:
        # A killed session may have left half a line: a new event must not be appended to it.
        torn = self._path.exists() and self._path.stat().st_size > 0 and not _ends_with_newline(self._path)
        file = FileIO(self._path, "ab")
        if torn:
            file.write(b"\n")
        return file

    def emit(self, event: Event | dict[str, Any]) -> None:
        tree = event if isinstance(event, dict) else encode_event(event)
        line = json.dumps({"schema": SCHEMAS["events"], "time": utc_stamp(), **tree})
        self._backlog.append(f"{redact_addresses(line)}\n".encode())

    def pop_warning(self) -> str | None:
        """Once: that lines could not be written, and why."""
        if self._backlog.problem is None or self._warned:
            return None
        self._warned = True
        return (
            f"{self._path} could not be written: {self._backlog.problem}. Its lines wait in memory and are written as "
            "soon as that works; the run continues."
        )

    def close(self) -> str | None:
        """Close the file; a warning where lines are lost for good."""
        self._backlog.close()
        lost = self._backlog.lost
        return f"{self._path} lacks {plural(lost, 'line')}: {self._backlog.problem}." if lost else None

    @staticmethod
    def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
        """The JSON objects of a file that have a `kind`, and the number of broken lines; none if there is no file."""
        objects: list[dict[str, Any]] = []
        broken = 0
        if not path.exists():
            return objects, broken
        with naming(path), path.open(encoding="utf-8", errors="replace") as f:
            for line in f:
                try:
                    # Earlier versions recorded addresses with their credentials; no reader gets to see them.
                    value = parse_json(redact_addresses(line))
                except ValueError:
                    # A kill leaves at most the last line torn; the rest of the log is still true.
                    broken += bool(line.strip())
                    continue
                if isinstance(value, dict) and "kind" in value:
                    objects.append(value)
        return objects, broken

    @staticmethod
    def read_history(path: Path) -> tuple[list[Event], int]:
        """The events of a run as one history, and how many lines or events are damaged.

        Steps that were repeated, by a resumed session or after a rollback, count once: the events after the step that
        was resumed from are dropped, and so is the first of two evaluations of one step. Kinds of a newer version are
        skipped.
        """
        objects, damaged = EventLog.read_lines(path)
        events: list[Event] = []
        for tree in objects:
            try:
                event = decode_event(tree)
            except DamagedRecord:
                damaged += 1
                continue
            if isinstance(event, StartEvent | DivergenceEvent) and event.resumed_from is not None:
                last = event.resumed_from
                events = [e for e in events if isinstance(e, StartEvent | DivergenceEvent) or (e.step or 0) <= last]
            # A resumed session may have repeated it.
            if isinstance(event, EvalEvent):
                _drop_evaluation(events, event.step)
            if event is not None:
                events.append(event)
        return events, damaged

    @staticmethod
    def read_ends(path: Path, *, tail: bool) -> list[Event]:
        """The first event of a file and, with `tail`, those of its last lines; damaged ones are left out."""
        try:
            with path.open("rb") as f:
                # Limited: a damaged file may have no line break at all.
                lines = [f.readline(_TAIL_BYTES)]
                if tail:
                    size = f.seek(0, os.SEEK_END)
                    # Never before the end of the first line, which would be read twice; a cut line counts as damaged.
                    f.seek(max(len(lines[0]), size - _TAIL_BYTES))
                    lines += f.read().splitlines()
        except OSError:
            return []
        return [event for event in map(_event_of, lines) if event is not None]

    @staticmethod
    def read_newest(path: Path, kind: type[E], *, oldest: bool = False) -> E | None:
        """The newest event of a kind, or the oldest, without decoding the others; None where there is none.

        Lists of many runs use it: `read_history` decodes every event.
        """
        mark = f'"kind": "{kind.kind}"'.encode()
        if not path.is_file():
            return None
        with naming(path), path.open("rb") as f:
            for line in f if oldest else _lines_from_the_end(f):
                # Searching bytes is far cheaper than decoding; the event decides, as a text may contain the mark.
                if mark in line and isinstance(event := _event_of(line), kind):
                    return event
        return None


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as f:
        f.seek(-1, os.SEEK_END)
        return f.read(1) == b"\n"
