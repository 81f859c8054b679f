"""The live line of a terminal: label, bar and percentage, then as many figures as fit, the most important ones first.

What the figures are is up to `console`, which also prints everything that stays on the terminal.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.text import Text

from vernier.clock import duration

PERCENT_COLUMNS = 5


def fitting(parts: Sequence[str], columns: int) -> str:
    """The first parts that fit into this many columns together, two spaces between them."""
    text = ""
    for part in parts:
        longer = f"{text}  {part}" if text else part
        if len(longer) > columns:
            break
        text = longer
    return text


def live_bar(console: Console) -> Progress:
    """A progress display for tasks with the field `parts`, a sequence of texts, most important first.

    A task without parts shows how long it has been running.
    """
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        _Bar(console),
        _Percent(),
        _Parts(console),
        console=console,
        transient=True,
        redirect_stdout=False,  # results are written as they are, not wrapped to the width
        refresh_per_second=4,
    )


def _bar_columns(width: int) -> int:
    return 24 if width >= 110 else 16 if width >= 80 else 10


class _Bar(BarColumn):
    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def render(self, task: Task) -> ProgressBar:
        self.bar_width = _bar_columns(self._console.width)
        return super().render(task)


class _Percent(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.total is None else f"{task.percentage:3.0f} %".rjust(PERCENT_COLUMNS))


class _Parts(ProgressColumn):
    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def render(self, task: Task) -> Text:
        width, spinner, gaps = self._console.width, 1, 4
        label = max(len(task.description), len("evaluate"))
        room = width - spinner - label - _bar_columns(width) - PERCENT_COLUMNS - gaps
        parts = task.fields.get("parts") or (duration(task.elapsed or 0.0),)
        return Text(fitting(parts, room), no_wrap=True, overflow="crop")
