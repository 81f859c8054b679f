"""Runs as objects: their state, result, events and page, read from the run directory when they are asked for."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from vernier.config import Config, config_from_tree
from vernier.errors import ConfigError, did_you_mean
from vernier.records.events import EVENT_KINDS, Event, encode_event
from vernier.records.run import EvalResult, RunSummary, Status
from vernier.store import RunDir

from .display import format_result, frame_of_paths, report
from .options import StrPath, to_path
from .words import errors_in_python_words

if TYPE_CHECKING:
    from pandas import DataFrame

E = TypeVar("E", bound=Event)
R = TypeVar("R", bound=EvalResult)


class Result(Generic[R]):
    """The figures of an evaluation as attributes, and the `record` with everything else.

    A classifier has `top1`, `top5` (percent) and `loss`, a detector `AP`, `AP50`, `AP75` and more (0 to 1, as COCO
    has them). A figure is NaN where the data has nothing to measure it on. `figures` has all of them by name.
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
        return f"Result({format_result(self.record)})"


def data_frame(rows: Sequence[Mapping[str, Any]]) -> "DataFrame":
    """Rows as a table of pandas. Raises ConfigError where that is not installed."""
    try:
        from pandas import DataFrame
    except ImportError:
        raise ConfigError("to_pandas() needs pandas: pip install 'vernier[pandas]'") from None
    return DataFrame(list(rows))


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

    @errors_in_python_words
    def __init__(self, path: "StrPath | Run") -> None:
        run = RunDir.open(to_path(path, "Run()"))
        if run.is_bench:
            raise ConfigError(f"{run.path} is a benchmark: vernier.Benchmark({str(run.path)!r}) opens it.")
        self.path: Path = run.path
        self._run = run

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.path.resolve() == other.path.resolve()

    def __hash__(self) -> int:
        return hash(self.path.resolve())

    @property
    def status(self) -> Status:
        """`running`, `finished`, `stopped` (by a signal or a time limit), `crashed`, `failed`, or `unknown`."""
        return self._run.status().status

    @property
    def summary(self) -> RunSummary:
        """What the run came to: steps, result, best result, speed, time spent. Empty where it has not ended."""
        return self._run.status().summary or RunSummary()

    @property
    def result(self) -> Result[EvalResult]:
        """The last evaluation: `run.result.top1`. Raises ConfigError where there has been none."""
        record = self.summary.result
        if record is None:
            evaluations = self.events("eval")
            record = evaluations[-1] if evaluations else None
        if record is None:
            raise ConfigError(f"{self.path} ({self.status}) has no evaluation, so it has no result.")
        return Result(record)

    @property
    @errors_in_python_words
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
        return report(self.path, out)

    def __repr__(self) -> str:
        status = self._run.status()
        record = status.summary.result if status.summary else None
        result = "" if record is None else f", {format_result(record)}"
        return f"Run({self.path}, {status.status}{result})"

    def _repr_html_(self) -> str:
        return frame_of_paths(repr(self), [self.path], ("training", "glance"))


def open_run(path: StrPath) -> Run:
    """Open a run that exists: finished, running, or interrupted. A folder with one run in it will do.

    Raises ConfigError where there is no run.
    """
    return Run(path)
