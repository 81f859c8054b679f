"""Requests that cross to other processes: one that runs in several local processes is given to each as a JSON file.

The children carry the same request out and word their messages as the parent would: for the command line, with the
flags that were typed, or for Python.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from vernier.engine.processes.launch import LocalRun, run_local
from vernier.errors import ConfigError
from vernier.requests.declaring import Request
from vernier.store import read_json, write_json

from .session import Session, in_notebook
from .wording import PythonWords

R = TypeVar("R", bound=Request)
WARNING = "warning: "
"""How the line of a warning begins."""
FLAG = "--request"
"""Of the command line, before the file."""


@contextmanager
def _request_file(request: Request, session: Session, **changes: Any) -> Iterator[list[str]]:
    """The words of a command line that carries this request out, with some options changed; the file is removed."""
    with tempfile.TemporaryDirectory(prefix="vernier-request-") as folder:
        path = Path(folder) / "request.json"
        tree = {
            "request": replace(request, **changes).to_json(),  # type: ignore[type-var]
            "python": isinstance(session.words, PythonWords),
            "typed": getattr(session.words, "typed", {}),
        }
        # Without sync: it is read by processes that start now, and by nobody after a crash.
        write_json(path, tree, sync=False)
        yield [*request.command.split(), FLAG, str(path)]


def run_in_processes(request: Request, session: Session, procs: int) -> LocalRun:
    """Carry a request out in local processes, and return how they ended.

    On the command line the first process has the terminal and prints the result. For Python the result is captured, as
    JSON in `output`, and the messages of the first process are shown here.
    """
    from_python = isinstance(session.words, PythonWords)
    # The result comes back as JSON, which is read into a record.
    with _request_file(request, session, **({"json": True} if from_python else {})) as words:
        return run_local(procs, words, capture=from_python, on_line=_line_printer(session) if from_python else None)


def _line_printer(session: Session) -> Callable[[str], None] | None:
    """What shows the lines of the first process here; None if it writes to the terminal itself."""
    if not session.quiet and not in_notebook():
        return None
    return lambda line: session.warn(line) if line.startswith(WARNING) else session.say(line)


def read_request(cls: type[R], path: Path) -> tuple[R, bool, dict[str, str]]:
    """The request of a file, whether it came from Python, and the flags that were typed. Raises ConfigError."""
    try:
        tree = read_json(path)
        return cls.from_json(tree["request"]), bool(tree["python"]), dict(tree["typed"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"Cannot read the request {path}: {error}.") from None
