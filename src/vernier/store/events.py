"""Files of one JSON object per line: events.jsonl and telemetry.jsonl, appended and flushed as things happen."""

import json
import os
from pathlib import Path
from typing import Any, TextIO

from vernier.clock import utc_stamp
from vernier.config.migrations import SCHEMAS
from vernier.records.codec import DamagedRecord
from vernier.records.events import Event, StartEvent, decode_event, encode_event


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The JSON objects of a file that have a `kind`, and the number of broken lines; none where there is no file."""
    objects: list[dict[str, Any]] = []
    broken = 0
    if not path.exists():
        return objects, broken
    with path.open(encoding="utf-8", errors="replace") as f:
        for line in f:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                broken += bool(line.strip())
                continue
            if isinstance(value, dict) and "kind" in value:
                objects.append(value)
    return objects, broken


def read_history(path: Path) -> tuple[list[Event], int]:
    """The events of a run as one history, and how many lines or events are damaged.

    Steps that a resumed session repeated count once: the events after the step it resumed from are dropped. Kinds of a
    newer version are skipped.
    """
    objects, damaged = read_lines(path)
    events: list[Event] = []
    for tree in objects:
        try:
            event = decode_event(tree)
        except DamagedRecord:
            damaged += 1
            continue
        if isinstance(event, StartEvent) and event.resumed_from is not None:
            last = event.resumed_from
            events = [e for e in events if isinstance(e, StartEvent) or (e.step or 0) <= last]
        if event is not None:
            events.append(event)
    return events, damaged


class EventLog:
    """Appends one JSON object per line, flushed at once; time and schema are added to each."""

    def __init__(self, path: Path) -> None:
        torn = path.exists() and path.stat().st_size > 0 and not _ends_with_newline(path)
        self._file: TextIO = path.open("a", encoding="utf-8")
        if torn:
            self._file.write("\n")

    def emit(self, event: Event | dict[str, Any]) -> None:
        tree = event if isinstance(event, dict) else encode_event(event)
        self._file.write(json.dumps({"schema": SCHEMAS["events"], "time": utc_stamp(), **tree}) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as f:
        f.seek(-1, os.SEEK_END)
        return f.read(1) == b"\n"
