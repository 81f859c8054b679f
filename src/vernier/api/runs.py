"""Runs as objects: their state, result, events and page, read from the run directory when they are asked for."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from vernier.config import Config, config_from_tree
from vernier.errors import ConfigError, did_you_mean
from vernier.records.codec import encode
from vernier.records.events import EVENT_KINDS, Event, encode_event
from vernier.records.run import EvalResult, RunSummary, Status
from vernier.requests.runs import ListRuns
from vernier.requests.values import StrPath
from vernier.store import RunDir

from .display import frame
from .functions import function
from .session import Session
from .wording import python_errors

if TYPE_CHECKING:
    from pandas import DataFrame

    from vernier.report.runs import RunRow

E = TypeVar("E", bound=Event)
R = TypeVar("R", bound=EvalResult)
T = TypeVar("T")
DEFAULT_FOLDER = "runs"
_REMOVING = ("clean", "rm", "remove", "delete")
"""What people type to get rid of runs."""


class Result(Generic[R]):
    """The figures of an evaluation as attributes, and the `record` with everything else.

    A classifier has `top1`, `top5` (percent) and `loss`, a detector `AP`, `AP50`, `AP75` and more (0 to 1, as COCO
    has them). A figure is NaN if the data has nothing to measure it on. `figures` has all of them by name.
    """

    top1: float
    top5: float
    loss: float
    AP: float
    AP50: float
    AP75: float

    def __init__(self, record: R) -> None:
        self.record = record

    @property
    def figures(self) -> dict[str, float]:
        """All figures by name."""
        return {name: math.nan if value is None else value for name, value in self.record.figures.items()}

    @property
    def samples(self) -> int:
        """The number of images."""
        return self.record.samples

    def __getattr__(self, name: str) -> float:
        if name.startswith("_") or name == "record":  # being copied or unpickled: there is no record yet
            raise AttributeError(name)
        if name not in (figures := self.figures):
            raise AttributeError(f"This result has no {name!r}: it has {', '.join(figures)}.")
        return figures[name]

    def __dir__(self) -> Iterable[str]:
        return [*(name for name in super().__dir__() if name not in Result.__annotations__), *self.figures]

    def __repr__(self) -> str:
        return f"Result({_format_result(self.record)})"


def _format_result(result: EvalResult) -> str:
    """The main metrics of an evaluation in one line."""
    from vernier.report.live.console import format_figures

    return format_figures(result.figures).replace("  ", ", ") + ("" if result.exact else f", {result.describe_part()}")


def data_frame(rows: Sequence[Mapping[str, Any]]) -> "DataFrame":
    """Rows as a table of pandas. Raises ConfigError if that is not installed."""
    try:
        from pandas import DataFrame
    except ImportError:
        raise ConfigError("to_pandas() needs pandas: pip install 'vernier[pandas]'") from None
    return DataFrame(list(rows))


class Records(list[T]):
    """Records in a list, such as the rows of a table."""

    def to_pandas(self) -> "DataFrame":
        """The records as a table with a row each and their fields as columns. Raises ConfigError without pandas."""
        return data_frame([encode(record) for record in self])


class Events(list[E]):
    """Events of a run in order: the records of `vernier.records.events`."""

    def to_pandas(self) -> "DataFrame":
        """The events as a table with a row each and their fields as columns. Raises ConfigError without pandas."""
        return data_frame([encode_event(event) for event in self])

    def __repr__(self) -> str:
        counts: dict[str, int] = {}
        for event in self:
            counts[event.kind] = counts.get(event.kind, 0) + 1
        return f"Events({', '.join(f'{count} {kind}' for kind, count in counts.items()) or 'none'})"


class Run:
    """A training run. Everything is read from its directory, so a run that is going on can be watched.

    `path` is the directory. `Run(path)` opens a run that exists; so does `open_run`.
    """

    @python_errors
    def __init__(self, path: "StrPath | Run") -> None:
        if not isinstance(path, str | os.PathLike):
            raise ConfigError(f"Run() takes a path, not {path!r}.")
        run = RunDir.open(Path(path).expanduser())
        if run.is_bench:
            raise ConfigError(f"{run.path} is a benchmark: vernier.Benchmark({str(run.path)!r}) opens it.")
        self.path: Path = run.path
        self._run = run

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.path.resolve() == other.path.resolve()

    def __hash__(self) -> int:
        # As __eq__: one directory by any of its paths.
        return hash(self.path.resolve())

    @property
    def status(self) -> Status:
        """`running`, `finished`, `stopped` (by a signal or a time limit), `crashed`, `failed`, or `unknown`."""
        return self._run.status().status

    @property
    def summary(self) -> RunSummary:
        """Final metrics, throughput and time of the run. Empty if it has not ended."""
        return self._run.status().summary or RunSummary()

    @property
    def result(self) -> Result[EvalResult]:
        """The last evaluation: `run.result.top1`. Raises ConfigError if there has been none."""
        record = self.summary.result
        if record is None:
            evaluations = self.events("eval")
            # A run that has not ended has no summary, but may have been evaluated.
            record = evaluations[-1] if evaluations else None
        if record is None:
            raise ConfigError(f"{self.path} ({self.status}) has no evaluation, so it has no result.")
        return Result(record)

    @property
    @python_errors
    def config(self) -> Config:
        """The settings: `run.config.recipe.optim.lr`, `run.config.machine.device`."""
        return config_from_tree(self._run.read_config())

    @overload
    def events(self, kind: None = None) -> Events[Event]: ...

    @overload
    def events(self, kind: str) -> Events[Any]: ...

    def events(self, kind: str | None = None) -> Events[Any]:
        """The events of the run in order: all, or those of one kind such as `step`, `eval` or `warning`.

        Steps that were repeated after an interruption count once.
        """
        if kind is not None and kind not in EVENT_KINDS:
            raise ConfigError(f"There are no events of the kind {kind!r}. {did_you_mean(str(kind), EVENT_KINDS)}")
        return Events(event for event in self._run.history() if kind in (None, event.kind))

    def report(self, out: StrPath | None = None) -> Path:
        """Write the page of this run as one HTML file, and return its path. Default: report.html in the run."""
        from .reports import report

        return report(self.path, out=out)

    def __repr__(self) -> str:
        status = self._run.status()
        record = status.summary.result if status.summary else None
        result = "" if record is None else f", {_format_result(record)}"
        return f"Run({self.path}, {status.status}{result})"

    def _repr_html_(self) -> str:
        return frame(repr(self), [self.path], ("training", "glance"))


def open_run(path: StrPath) -> Run:
    """Open a run that exists: finished, running, or interrupted. A folder with one run in it will do.

    Raises ConfigError if there is no run.
    """
    return Run(path)


# ----------------------------------------------------------------------------------------------------------- many runs


def table_of_runs(request: ListRuns, _: Session) -> "Records[RunRow]":
    """The runs in some folders, sorted. Raises ConfigError for a folder that does not exist."""
    from vernier.report.runs import list_runs

    keys: dict[str, Callable[[RunRow], tuple[Any, ...]]] = {
        "age": lambda row: (-row.age_s,),
        "name": lambda row: (row.name,),
        "size": lambda row: (row.bytes,),
        "state": lambda row: (row.state,),
        "result": lambda row: (row.metric or "", row.result or 0.0),
    }
    return Records(sorted(list_runs(_existing(request.folders)), key=keys[request.sort]))


def _existing(folders: Sequence[str]) -> list[Path]:
    """The folders as paths. Raises ConfigError for one that does not exist; `runs` may be missing."""
    if not folders and not Path(DEFAULT_FOLDER).exists():
        return []
    paths = [Path(folder) for folder in folders or (DEFAULT_FOLDER,)]
    for path in paths:
        if not path.is_dir():
            why = "is a file" if path.exists() else "does not exist"
            hint = " A run is a folder: rm -r RUN removes it." if str(path) in _REMOVING else ""
            raise ConfigError(f"{path} {why}. Give a folder of runs.{hint}")
    return paths


list_runs = function(ListRuns, table_of_runs, "list_runs")
