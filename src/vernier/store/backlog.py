"""Appending to a file that may refuse: what a full or failing disk does not take waits in memory, and is written later.

A log must never end the work that it is about. Files that a run depends on are written through `durable` and
`checkpoints`, which raise.
"""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from io import FileIO

WAITING_CHUNKS = 10_000
WAITING_BYTES = 4 << 20
FIRST_CHUNKS = 100
"""When too much waits, what came after the first ones is given up, so that the start of a log and its end remain."""


class Backlog:
    """Chunks of bytes on their way to a file, in order. Opened by `open_file`, at once or when that works again.

    `sole_writer`: nobody else writes to this file, so a chunk that it took in part is taken out again.
    """

    def __init__(self, open_file: Callable[[], FileIO], *, sole_writer: bool = False) -> None:
        self._open_file, self._sole_writer = open_file, sole_writer
        self._file: FileIO | None = None
        self._lock = threading.RLock()  # a signal handler may write while this thread is writing
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._written_of_first = 0
        self._closed = False
        self.lost = 0
        """Chunks given up."""
        self.problem: str | None = None
        """Why the file refused, the first time that it did."""
        self._write_waiting()

    def append(self, chunk: bytes) -> None:
        """Write a chunk, or keep it until it can be written."""
        with self._lock:
            if self._closed:
                return
            self._waiting.append(chunk)
            self._waiting_bytes += len(chunk)
            self._write_waiting()
            while len(self._waiting) > WAITING_CHUNKS or self._waiting_bytes > WAITING_BYTES:
                # From the middle: how a run began and how it ended tell more than what came between.
                index = min(FIRST_CHUNKS, len(self._waiting) - 1)
                self._waiting_bytes -= len(self._waiting[index])
                del self._waiting[index]
                self.lost += 1

    def close(self) -> None:
        """Write what waits, or give it up."""
        with self._lock:
            if self._closed:
                return
            self._write_waiting()
            self.lost += len(self._waiting)
            self._waiting.clear()
            self._closed = True
            if self._file is not None:
                with contextlib.suppress(OSError):
                    self._file.close()

    def _write_waiting(self) -> None:
        try:
            if self._file is None:
                self._file = self._open_file()
            while self._waiting:
                # A full disk may take a part of a chunk: the rest continues where it stopped.
                self._written_of_first += self._file.write(self._waiting[0][self._written_of_first :]) or 0
                if self._written_of_first == len(self._waiting[0]):
                    self._waiting_bytes -= len(self._waiting.popleft())
                    self._written_of_first = 0
        except OSError as error:
            self.problem = self.problem or error.strerror or str(error)
            self._take_back_part()

    def _take_back_part(self) -> None:
        """Leave no torn line behind, in case this process ends before it can write the rest."""
        if self._file is None or not (self._sole_writer and self._written_of_first):
            return
        try:
            handle = self._file.fileno()
            os.ftruncate(handle, os.fstat(handle).st_size - self._written_of_first)
            self._written_of_first = 0
        except OSError:
            return  # the rest of the line is written when that works
