"""Standard output and standard error of a command, which may be on a full disk, a closed pipe or a closed terminal.

Messages that standard error does not take never raise: they wait (`store.backlog`). Results that standard output does
not take are an error that names it. Only `vernier.__main__` replaces the streams of its process.
"""

import io
import os
import sys
import threading
from typing import Any

from vernier.errors import environment_error
from vernier.store.backlog import Backlog

OUTPUT, MESSAGES = 1, 2
OUTPUT_NAME = "standard output"


class _Messages(io.RawIOBase):
    """Standard error, which takes everything."""

    def __init__(self) -> None:
        # The descriptor stays open: libraries in C++ write to it, too.
        self._backlog = Backlog(lambda: io.FileIO(MESSAGES, "wb", closefd=False))

    def write(self, data: Any) -> int:
        self._backlog.append(bytes(data))
        return len(data)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return MESSAGES

    def isatty(self) -> bool:
        return os.isatty(MESSAGES)


class _Results(io.FileIO):
    """Standard output, named in its errors."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = OUTPUT_NAME
            raise


def protect_streams() -> None:
    """Replace the text streams of this process. Threads of libraries that a disk fails leave one line, no traceback."""
    sys.stderr = _text(_Messages(), sys.stderr, write_through=True)
    sys.stdout = _text(io.BufferedWriter(_Results(OUTPUT, "wb", closefd=False)), sys.stdout, write_through=False)
    show_traceback = threading.excepthook

    def on_error(failure: Any) -> None:
        refused = environment_error(failure.exc_value) if isinstance(failure.exc_value, OSError) else ""
        if refused:
            sys.stderr.write(f"vernier: thread {failure.thread.name}: {refused}\n")
        else:
            show_traceback(failure)

    threading.excepthook = on_error


def _text(buffer: Any, like: Any, *, write_through: bool) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        buffer,
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=like.line_buffering,
        write_through=write_through,
    )


def discard_results() -> None:
    """After standard output has refused something: Python would try again when it ends, and fail."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), OUTPUT)
    sys.stdout.flush()
