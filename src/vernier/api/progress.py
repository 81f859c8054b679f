"""Progress on the terminal or in a notebook while a function runs, in the words of Python.

What is shown is `report.live`'s business; this module says where it goes.
"""

import sys

from rich.console import Console

from vernier.report.live.console import ConsoleObserver

from .starting import in_notebook
from .words import python_words


def session_console(*, quiet: bool = False) -> Console:
    """Standard error, as for commands; in a notebook plain lines in the output of the cell.

    A notebook says that it is a terminal, but shows every state of a moving line, and standard error in red.
    """
    if in_notebook():
        return Console(file=sys.stdout, highlight=False, force_jupyter=False, force_terminal=False, quiet=quiet)
    return Console(stderr=True, highlight=False, quiet=quiet)


class SessionConsole(ConsoleObserver):
    """The events of a training, or the progress of an evaluation. `quiet`: warnings only."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(session_console(), quiet=quiet)

    def say(self, text: str, style: str | None = None) -> None:
        super().say(python_words(text), style)

    def warn(self, text: str) -> None:
        super().warn(python_words(text))
