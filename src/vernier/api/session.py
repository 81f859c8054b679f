"""Where the messages and the progress of one call go, for a command and for a function of Python alike.

What carries out a request gets a session and prints nothing by itself. Messages go to standard error; in a notebook, to
the output of the cell. Every text is worded for the caller on its way out.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from vernier.addresses import redact
from vernier.requests.wording import Words
from vernier.wording import printable

if TYPE_CHECKING:
    from rich.console import Console

    from vernier.engine.processes.world import World
    from vernier.report.live.console import ConsoleObserver


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook, and not a program that starts kernels and so imports the same."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class Session:
    """One call: how its messages are worded, and whether progress is shown."""

    def __init__(self, words: Words, *, quiet: bool = False) -> None:
        self.words, self.quiet = words, quiet

    def word(self, text: str) -> str:
        """A text with the names of options as the caller knows them, without credentials."""
        return redact(self.words.word(text))

    def say(self, *lines: str) -> None:
        """Print what goes on; nothing if the session is quiet."""
        if not self.quiet:
            self.warn(*lines)

    def warn(self, *lines: str) -> None:
        """Print what must be known, on one line or several."""
        # A notebook shows standard error in red, as if something had failed.
        stream = sys.stdout if in_notebook() else sys.stderr
        stream.write("".join(f"{printable(self.word(line))}\n" for line in lines))

    # ------------------------------------------------------------------------------------------------------ progress

    def rich_console(self) -> "Console":
        """Standard error; in a notebook plain lines in the output of the cell.

        A notebook says that it is a terminal, but shows every state of a moving line, and standard error in red.
        """
        from rich.console import Console

        if in_notebook():
            return Console(
                file=sys.stdout, highlight=False, force_jupyter=False, force_terminal=False, quiet=self.quiet
            )
        return Console(stderr=True, highlight=False, quiet=self.quiet)

    def observer(self) -> "ConsoleObserver":
        """Shows the events of a training run, or the progress of an evaluation."""
        from vernier.report.live.console import ConsoleObserver

        console = self.rich_console()
        console.quiet = False
        return ConsoleObserver(console, quiet=self.quiet, word=self.word)

    def observer_of(self, world: "World") -> "AbstractContextManager[ConsoleObserver | None]":
        """The observer in the first process; the others print nothing."""
        return self.observer() if world.first else nullcontext()

    @contextmanager
    def bar(self, label: str) -> Iterator[Callable[[int, int], None]]:
        """Show a progress bar on a terminal; the function it gives takes done and total."""
        from rich.progress import MofNCompleteColumn

        with self._progress(MofNCompleteColumn()) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    @contextmanager
    def bytes_bar(self, label: str) -> Iterator[Callable[[str, int, int], None]]:
        """Show a bar of bytes; the function it gives takes what is being done, bytes done and total bytes."""
        from rich.markup import escape
        from rich.progress import DownloadColumn

        with self._progress(DownloadColumn(binary_units=True)) as bar:
            task = bar.add_task(label, total=None)
            yield lambda doing, done, total: bar.update(
                task, description=escape(printable(doing)), completed=done, total=total or None
            )

    def _progress(self, amount: Any) -> Any:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = self.rich_console()
        columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
        return Progress(*columns, console=console, transient=True, disable=self.quiet or not console.is_terminal)
