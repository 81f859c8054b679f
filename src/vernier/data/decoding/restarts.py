"""Adds restart markers to baseline JPEGs without loss, so that a crop can be cut out of them (`jpeg_slicing`).

The new files are, to the bit, those of `jpegtran -copy none -optimize -restart NB`. They are made by `transcoder`, a
program of our own that runs beside this process: one per thread that asks at the same time.
"""

import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

from vernier.errors import ConfigError
from vernier.references import use

from . import transcoder
from .decode import BadImage, refuse_bomb
from .jpeg_slicing import NotSliceable, Segments, find_segments, parse_header
from .transcoder import ANSWER, DONE, ENDED, REQUEST

TARGET_INTERVAL = 4  # MCUs between restart markers: shorter ones cost bytes, longer ones make crops coarser
MIN_INTERVAL = 3


def choose_restart_interval(mcus_per_row: int) -> int:
    """The divisor of the row's length nearest to 4 in ratio, not below 3; the whole row if there is none."""
    divisors = [n for n in range(MIN_INTERVAL, mcus_per_row + 1) if mcus_per_row % n == 0] or [mcus_per_row]
    return min(divisors, key=lambda n: (max(n / TARGET_INTERVAL, TARGET_INTERVAL / n), n))


class _Process:
    """A running transcoder."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", str(Path(transcoder.__file__))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        state, content = self._receive()
        if state != DONE:
            self.close()
            raise ConfigError(
                "Restart-indexed shards need libjpeg-turbo through Pillow, and this Pillow cannot give it: "
                f"{_text(content)}. Pillow's wheels for Linux and macOS can (pip uninstall pillow, then pip install "
                f"pillow). {use('restarts', False)} stores the files as they are."
            )

    def ask(self, encoded: bytes, interval: int) -> tuple[int, bytes]:
        """State and content of the answer."""
        stdin = _pipe(self._process.stdin)
        with suppress(BrokenPipeError):  # then it has ended, and the answer says so
            stdin.write(REQUEST.pack(len(encoded), interval))
            stdin.write(encoded)
            stdin.flush()
        return self._receive()

    def _receive(self) -> tuple[int, bytes]:
        stdout = _pipe(self._process.stdout)
        head = stdout.read(ANSWER.size)
        if len(head) < ANSWER.size:
            return ENDED, b"the program that rewrites JPEGs ended with exit code %d" % self._process.wait()
        state, size = ANSWER.unpack(head)
        content = stdout.read(size)
        if len(content) < size:
            return ENDED, b"the program that rewrites JPEGs ended within an answer"
        return state, content

    def close(self) -> None:
        """End the program, which keeps nothing that could be lost."""
        self._process.kill()
        with suppress(BrokenPipeError):
            _pipe(self._process.stdin).close()
        _pipe(self._process.stdout).close()
        self._process.wait()


def _text(message: bytes) -> str:
    return message.decode(errors="replace")


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


class RestartMarkers:
    """Adds restart markers; from any number of threads, which share the running transcoders.

    Raises ConfigError at once where there can be none.
    """

    def __init__(self) -> None:
        self._lock, self._idle = threading.Lock(), [_Process()]
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            self._closed, idle, self._idle = True, self._idle, []
        for process in idle:
            process.close()

    def add(self, encoded: bytes) -> tuple[bytes, Segments]:
        """The image with restart markers, without loss, and its segments. Raises NotSliceable where it cannot be."""
        header = parse_header(encoded)
        if not header.sequential:
            raise NotSliceable("not a baseline JPEG")
        if header.components not in (1, 3):
            raise NotSliceable(f"{header.components} colour components")
        if not header.common_sampling:
            raise NotSliceable("an unusual sampling of chroma")
        try:
            refuse_bomb(header.width, header.height, len(encoded))
        except BadImage as error:
            raise NotSliceable(str(error)) from None
        rewritten = self._rewrite(encoded, choose_restart_interval(header.mcus_per_row))
        return rewritten, find_segments(rewritten)

    def _rewrite(self, encoded: bytes, interval: int) -> bytes:
        with self._lock:
            process = self._idle.pop() if self._idle else None
        process = process or _Process()
        state, content = ENDED, b""
        try:
            state, content = process.ask(encoded, interval)
        finally:
            with self._lock:
                reusable = state != ENDED and not self._closed
                self._idle += [process] if reusable else []
            if not reusable:
                process.close()
        if state == DONE:
            return content
        raise NotSliceable(_text(content))
