"""Comparisons of runs, and studies of many devices, as objects.

The comparison is `report.compare`'s, the analysis of a study `measure.study`'s.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vernier.config import parse_share
from vernier.errors import ConfigError
from vernier.records.statistics import SpeedVerdict
from vernier.records.study import DeviceVerdict, StudyAnalysis

from .display import frame, frame_of_paths
from .options import StrPath, to_path
from .runs import data_frame
from .words import errors_in_python_words, python_words

if TYPE_CHECKING:
    from pandas import DataFrame

    from vernier.report.compare import RunComparison
    from vernier.report.logs.model import RunLog
    from vernier.report.page.studies import Study as StudyContent

Pairs = Mapping[str, str] | str


class Comparison:
    """The speed of B against that of A. `str` of it explains it in sentences; `record` has everything."""

    def __init__(self, record: "RunComparison") -> None:
        self.record = record

    @property
    def verdict(self) -> SpeedVerdict:
        """`faster`, `slower` or `cannot tell`: of B, beyond the tolerance, at a confidence of 95 %."""
        return self.record.comparison.verdict

    @property
    def ratio(self) -> float:
        """Images per second of B over those of A."""
        return self.record.comparison.ratio

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of `ratio`; None where the runs cannot tell."""
        low, high = self.record.comparison.low, self.record.comparison.high
        return None if low is None or high is None else (low, high)

    def __str__(self) -> str:
        from vernier.report.compare import comparison_lines

        return "\n".join(python_words(line) for line in comparison_lines(self.record))

    def __repr__(self) -> str:
        ends = "no interval" if self.interval is None else "95 % interval {:.3f} to {:.3f}".format(*self.interval)
        return f"Comparison({self.verdict}: B runs at {self.ratio:.3f} times the speed of A, {ends})"

    def _repr_html_(self) -> str:
        sides = (self.record.a, self.record.b)
        paths = [Path(path) for path in dict.fromkeys(path for side in sides for path in side.runs)]
        return frame_of_paths(str(self), paths, ("training", "benchmarks", "glance"))


@errors_in_python_words
def compare(
    a: StrPath | Sequence[StrPath],
    b: StrPath | Sequence[StrPath],
    *,
    tolerance: float | str = "1%",
    different_work: bool = False,
    single_runs: bool = False,
) -> Comparison:
    """Compare the speed of two runs, or of two sets of runs, as `vernier compare` does.

    A side is one run or a list of them: run directories, benchmarks (`RUN#ARM` for one of several arms), patterns such
    as `runs/base-*`, or logs of other tools. Several runs per side are needed for a verdict: one each shows how noisy
    these two were. Differences below `tolerance` count as equal. Raises ConfigError for different work, which
    `different_work` allows, and where there is nothing to measure.
    """
    from vernier.report.compare import compare_runs

    share = parse_share("--tolerance", str(tolerance), allow_zero=True)
    sides = _logs(a, "A"), _logs(b, "B")
    return Comparison(compare_runs(*sides, share, allow_different_work=different_work, single_runs=single_runs))


def _logs(side: StrPath | Sequence[StrPath], name: str) -> "list[RunLog]":
    """The runs of one side; a text may be a pattern or name an arm, a path is what it is."""
    from vernier.report.logs.reading import open_logs, open_side

    paths = [side] if isinstance(side, str | os.PathLike) else list(side)
    if not paths:
        raise ConfigError(f"{name} names no run.")
    return [
        log
        for path in paths
        for log in (open_side(path) if isinstance(path, str) else open_logs(to_path(path, "compare()")))
    ]


class Study:
    """Whether devices are equal: which are slow, by how much, and whether it is the device or noise.

    `str` of it explains it in sentences; `analysis` has everything.
    """

    def __init__(self, content: "StudyContent", paths: Sequence[Path]) -> None:
        self._content, self._paths = content, tuple(paths)
        self.analysis: StudyAnalysis = content.result

    @property
    def devices(self) -> tuple[DeviceVerdict, ...]:
        """One record per device, the slowest first: its median, how much slower it is, and the verdict."""
        return self.analysis.devices

    @property
    def slow(self) -> tuple[str, ...]:
        """The devices that should be removed: certainly slow, and by enough to matter."""
        return self.analysis.pull

    def table(self) -> list[dict[str, object]]:
        """The devices as people read them: one mapping of column to value each, the slowest first."""
        from vernier.report.study.text import study_rows

        return study_rows(self.analysis, None)

    def to_pandas(self) -> "DataFrame":
        """`table()` as a table of pandas. Raises ConfigError without pandas."""
        return data_frame(self.table())

    def __str__(self) -> str:
        from vernier.report.study.text import study_lines

        return "\n".join(python_words(line) for line in study_lines(self.analysis))

    def __repr__(self) -> str:
        analysis = self.analysis
        slow = f"{len(self.slow)} to remove: {', '.join(self.slow[:3])}" if self.slow else "none to remove"
        more = ", ..." if len(self.slow) > 3 else ""
        return f"Study({analysis.devices_measured} devices, {analysis.runs:,} runs, {slow}{more})"

    def _repr_html_(self) -> str:
        from vernier.report.page.collect import subject_of_study

        return frame(repr(self), [subject_of_study(self._paths[0], self._content)], ("devices",))


@errors_in_python_words
def study(
    sources: StrPath | Sequence[StrPath],
    *,
    columns: Pairs | None = None,
    units: Pairs | None = None,
    drop_duplicates: bool = False,
    matter: float | str = "1%",
) -> Study:
    """Analyse a study of many devices, as `vernier study analyze` does.

    `sources` are study directories, CSV files, or logs; one or several. `columns` names the columns of a CSV:
    `{"step_time": "time_ms", "device": "serial"}`. `units` is the unit of the step time, or a mapping for sensors too.
    A device that is slower by less than `matter` is not worth removing. Raises ConfigError that says what is missing.
    """
    from vernier.report.page.studies import open_study
    from vernier.report.study.columns import FIELDS, UNIT_NAMES, ColumnOptions, parse_pairs, parse_units, with_own_names

    given = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    paths = [to_path(source, "study()") for source in given]
    if not paths:
        raise ConfigError("Name what to read: study directories, CSV files, logs, or folders of them.")
    options = ColumnOptions(
        columns=with_own_names(columns, "--columns", FIELDS)
        if isinstance(columns, Mapping)
        else parse_pairs(columns, "--columns", FIELDS),
        units=with_own_names(units, "--units", UNIT_NAMES) if isinstance(units, Mapping) else parse_units(units),
        drop_duplicates=drop_duplicates,
    )
    share = parse_share("--matter", str(matter), allow_zero=True)
    return Study(open_study(paths, options, share), paths)
