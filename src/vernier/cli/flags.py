"""What the commands share: kinds of flags, applying them to a recipe, printing."""

import json as jsonlib
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, UseAppendAction, arg

from vernier.config import Config, override, override_from_text
from vernier.errors import ConfigError

DeviceName = Literal["auto", "cpu", "cuda", "hpu", "mps", "xpu"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Mode = Literal["eager", "compile", "trace", "graph"]

COMMAND_LINE: list[str] = []
"""The arguments of this command, to run it again in other processes."""

Text = Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="")]
Whole = Annotated[int | None, arg(metavar="N", help_behavior_hint="")]
Number = Annotated[float | None, arg(metavar="X", help_behavior_hint="")]


def pathlike(metavar: str) -> Any:
    return arg(metavar=metavar, help_behavior_hint="")


DataFlag = Annotated[str | None, pathlike("NAME|PATH")]
JsonFlag = Annotated[bool, arg(name="json", help="Print one JSON document on standard output and nothing else there.")]
SetFlag = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(
        name="set",
        metavar="NAME=VALUE",
        help="Change any setting, e.g. optim.lr=0.05. Repeatable.",
        help_behavior_hint="",
    ),
]


TrackFlag = Annotated[
    UseAppendAction[tuple[Literal["wandb", "mlflow"], ...]],
    arg(
        name="track",
        metavar="wandb|mlflow",
        help="Also tell Weights & Biases or MLflow. Repeatable.",
        help_behavior_hint="",
    ),
]
EmaFlag = Annotated[FlagCreatePairsOff[bool], arg(help="Averaged weights; the default where there are any.")]
NoEmaFlag = Annotated[FlagCreatePairsOff[bool], arg(help="The raw weights, not the averaged ones.")]
FreezeFlag = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(
        name="freeze",
        metavar="PREFIX",
        help="Layers that do not learn, e.g. layer1; backbone: train the classifier only. Repeatable.",
        help_behavior_hint="",
    ),
]


def print_json(value: Any) -> None:
    """One document of plain JSON, which has no infinities and no NaN: each of them is null, and standard error says where."""
    lost: list[str] = []
    sys.stdout.write(jsonlib.dumps(_finite(value, "", lost), indent=2, allow_nan=False) + "\n")
    if lost:
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        say(f"not a finite number, null in the JSON: {', '.join(lost[:3])}{more}")


def _finite(value: Any, path: str, lost: list[str]) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v, f"{path}.{k}" if path else str(k), lost) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v, f"{path}[{i}]", lost) for i, v in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        lost.append(path or "the value")
        return None
    return value


def wants_average(ema: bool, no_ema: bool) -> bool | None:
    """What --ema and --no-ema ask for; None: averaged weights where there are any."""
    if ema and no_ema:
        raise ConfigError("Give --ema or --no-ema, not both.")
    return True if ema else False if no_ema else None


def say(text: str) -> None:
    sys.stderr.write(text + "\n")


def apply(config: Config, flags: dict[str, Any], settings: tuple[str, ...]) -> Config:
    """Named flags, then `--set`, over what the recipe says."""
    for path, value in flags.items():
        if value is not None:
            config = override(config, path, value)
    for assignment in settings:
        config = override_from_text(config, assignment)
    return config


def quiet_profiler() -> None:
    """Before torch is imported: PyTorch's profiler talks on standard error otherwise."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def print_rows(rows: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json(rows)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in rows[0]:
        numeric = all(isinstance(r[column], int | float) for r in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(
            *(f"{v:,}" if isinstance(v, int) else f"{v:g}" if isinstance(v, float) else str(v) for v in row.values())
        )
    console = Console(highlight=False, markup=False)
    console.print(table) if console.is_terminal else Console(highlight=False, markup=False, width=160).print(table)


def rough_duration(seconds: float) -> str:
    """45 s, 12 min, 3.5 h: as long as it is worth saying."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


@contextmanager
def ended_as_interrupted() -> Iterator[None]:
    """While entered, a request to end (SIGTERM) is what Ctrl-C is: processes are ended and what is finished is kept."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error where there is a person to see it."""
    from rich.progress import MofNCompleteColumn

    with _bar(MofNCompleteColumn()) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def bytes_bar(what: str) -> Iterator[Callable[[str, int, int], None]]:
    """The same for bytes, told with what is being done to them."""
    from rich.progress import DownloadColumn

    with _bar(DownloadColumn(binary_units=True)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda doing, done, total: bar.update(task, description=doing, completed=done, total=total or None)


def _bar(amount: Any) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn(), console=console, transient=True,
        disable=not console.is_terminal,
    )  # fmt: skip
