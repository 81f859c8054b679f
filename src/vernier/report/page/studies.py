"""Reads a variability study for the page: its analysis, its runs, and where each device is."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.measure.study.analysis import DEFAULT_MATTER, Measurement, analyze
from vernier.measure.study.csv_tables import CsvRow, read_csv
from vernier.measure.study.files import StudyDir, split_host
from vernier.records.codec import DamagedRecord, decode
from vernier.records.study import StudyAnalysis
from vernier.references import command
from vernier.report.study.columns import ColumnOptions, with_known_names
from vernier.report.study.tables import read_table


@frozen
class Study:
    """What the page shows of a study. `median` is the median device's value, `locations` cabinet and node by device.

    `telemetry` has the first repeat of every device, by device.
    """

    result: StudyAnalysis
    runs: tuple[Measurement, ...] = ()
    median: float = 1.0
    locations: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    telemetry: tuple[tuple[str, CsvRow], ...] = ()


def open_study(paths: Sequence[Path], options: ColumnOptions | None = None, matter: float = DEFAULT_MATTER) -> Study:
    """A study from study directories, or from CSV files as `study analyze` reads them with the same options."""
    table = read_table(paths, options)
    studies = [StudyDir.open(path) for path in paths if StudyDir.is_study(path)]
    return Study(
        result=analyze(table, matter),
        runs=table.rows,
        median=statistics.median(table.medians().values()),
        locations={k: v for path in paths for k, v in _locations(path).items()},
        settings={k: v for study in studies for k, v in study.meta().settings.items()},
        telemetry=tuple(_telemetry(studies)),
    )


def open_study_result(tree: Any) -> Study:
    """A study from what `study analyze --json` printed: devices without their single runs."""
    try:
        return Study(result=decode(StudyAnalysis, tree))
    except DamagedRecord as error:
        raise ConfigError(
            f"The result of a study is damaged: {error}. Make it again: {command('study analyze', json=True)}."
        ) from None


def _locations(path: Path) -> dict[str, tuple[str, str]]:
    """Cabinet and node of each device whose location the study records."""
    if StudyDir.is_study(path):
        return {d.id: (split_host(d.host)[0], d.host) for d in StudyDir.open(path).meta().devices}
    locations = {}
    rows = read_csv(path) if path.suffix == ".csv" else ()
    for row in with_known_names(rows) if rows else ():
        cabinet, node, device = row.get("cabinet"), row.get("node"), row.get("uuid")
        if device is not None and cabinet not in (None, -1, "") and node not in (None, -1, ""):
            locations[str(device)] = (str(cabinet), f"{cabinet}-{node}")
    return locations


def _telemetry(studies: Sequence[StudyDir]) -> Iterator[tuple[str, CsvRow]]:
    for study in studies:
        for repeat in study.repeats():
            if repeat.repeat == 0:
                step = -(-len(repeat.telemetry) // 200) or 1
                yield from ((repeat.device, row) for row in repeat.telemetry[::step])
