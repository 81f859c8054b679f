"""Which column of a CSV holds what: by the names of known formats, in any case, or as the user says.

The unit of the measured column is in `units`; the rows are read by `tables`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from vernier.errors import ConfigError, did_you_mean
from vernier.frozen import frozen
from vernier.lab.study.analysis import RATIO, TIMES
from vernier.lab.study.files import AGGREGATED_COLUMNS, ALL_COLUMNS
from vernier.references import given, use

from .csv_tables import SEPARATORS, CsvRow
from .superbench import unit_of_superbench
from .units import SENSOR_UNITS, infer_unit, name_without_unit, outlasts_training, unit_in_name

VALUE = "step_time"
OTHER_NAMES = {"speed": VALUE, "perf": VALUE, "performance": VALUE}
"""Names of the measured value that users of rates, of the SC22 study's tables and of version 0.1 type."""
FIELDS = (VALUE, "device", "host", "cabinet", "repeat", *SENSOR_UNITS, "workload")
UNIT_NAMES = (VALUE, *SENSOR_UNITS)
# Only for these a unit is inferred: they are known to be times, any other column can be a rate.
_TIMES_OF_SC22 = ("perf", "med_iter_dur", "mean_iter_dur_median")
_LOCATION = ("cabinet", "node", "device")
_MOST_NAMED = 30
# Columns of the SC22 study's kernel tables, from which `units` infers the unit of perf.
_KERNELS = ("kern_min_start", "kern_max_start", "num_kerns")
_KNOWN = {VALUE, *OTHER_NAMES, *ALL_COLUMNS, *AGGREGATED_COLUMNS, *_KERNELS}


@frozen
class ColumnOptions:
    """What the user says about a CSV: Vernier's name -> the file's column, and Vernier's name -> unit."""

    columns: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)


class Layout(NamedTuple):
    """Vernier's name -> column, and the unit of the measured value's column; `note` says from what it was inferred."""

    columns: Mapping[str, str]
    unit: str | None
    what: str
    note: str | None = None

    def cell(self, row: CsvRow, name: str) -> str | int | float | None:
        """What a row has for one of FIELDS; None where the file has no such column."""
        column = self.columns.get(name)
        return None if column is None else row.get(column)

    def device(self, row: CsvRow) -> str:
        """The name of the device, or its location; empty where neither is known."""
        if "device" in self.columns:
            name = self.cell(row, "device")
            return "" if name is None else str(name)
        return "-".join(str(part) for c in _LOCATION if (part := row.get(c)) is not None)


def parse_pairs(text: str | None, option: str, names: Sequence[str]) -> dict[str, str]:
    """`step_time=time,device=uuid` as a dictionary, other names of the measured value replaced.

    A value may contain commas, as columns do: a pair begins after a comma with NAME=. Raises ConfigError for a name
    that is not in `names`.
    """
    pairs = {}
    for pair in filter(None, re.split(r",(?=[^,=]*=)", text or "")):  # a comma ends a pair only if NAME= follows
        name, equals, value = (x.strip() for x in pair.partition("="))
        name = OTHER_NAMES.get(name, name)
        if not equals or not value:
            raise ConfigError(f"{given(option, text)} takes NAME=VALUE pairs with commas between them, not {pair!r}.")
        if name not in names:
            raise ConfigError(f"{given(option, text)} has the unknown name {name!r}. {did_you_mean(name, names)}")
        pairs[name] = value
    return pairs


def parse_units(text: str | None) -> dict[str, str]:
    """`ms`, which is the unit of the step time, or `step_time=ms,power=mW`."""
    if text is not None and "=" not in text and "," not in text and text.strip():
        return {VALUE: text.strip()}
    return parse_pairs(text, "units", UNIT_NAMES)


def with_known_names(rows: Sequence[CsvRow]) -> list[CsvRow]:
    """The rows with the columns of known formats in lower case: `UUID` and `Perf` are `uuid` and `perf`."""
    names = set(rows[0])
    renamed = {n: lower for n in names if (lower := n.casefold()) in _KNOWN and lower not in names}
    if len(set(renamed.values())) < len(renamed) or not renamed:  # two columns would get the same name
        return list(rows)
    return [{renamed.get(name, name): cell for name, cell in row.items()} for row in rows]


def find_layout(path: Path, rows: Sequence[CsvRow], options: ColumnOptions) -> Layout:
    """The layout of a CSV. Raises ConfigError naming what is missing."""
    names = list(rows[0])
    columns, unit, what = _known_layout(names)
    usual = columns.get(VALUE)
    columns = {k: v for k, v in columns.items() if v in names} | _given_columns(path, names, options)
    value = columns.get(VALUE)
    if value is None or ("device" not in columns and not set(_LOCATION) <= set(names)):
        raise ConfigError(_missing_column(path, names, "the step time" if value is None else "the device"))
    if value != usual:  # the user chose another column: the format's unit does not apply to it
        unit, what = None, value
    elif unit == "s" and outlasts_training(rows, value):  # an iteration longer than the run is not in seconds
        unit = None
    unit = options.units.get(VALUE) or unit or unit_in_name(value) or unit_of_superbench(value)
    if unit is None and value == usual and value in _TIMES_OF_SC22 and (inferred := infer_unit(rows, value)):
        unit, why = inferred
        note = f"{path.name}: {value} is taken to be in {unit}: {why}. If that is wrong, state it with {use('units')}"
        return Layout(columns, unit, what, note)
    return Layout(columns, unit, what)


def _known_layout(names: Sequence[str]) -> tuple[dict[str, str], str | None, str]:
    """Columns, unit and meaning of the value in a known format. The SC22 study's `perf` has no unit of its own."""
    has_device = "uuid" in names or set(_LOCATION) <= set(names)
    unit, what = None, VALUE
    if "perf" in names and has_device:
        columns, what = {VALUE: "perf"}, "median iteration or mean kernel (perf)"
    elif "med_iter_dur" in names:
        columns, unit, what = {VALUE: "med_iter_dur", "repeat": "reps"}, "s", "median iteration"
    elif "mean_iter_dur_median" in names:
        columns, unit, what = {VALUE: "mean_iter_dur_median"}, "s", "median over repeats of the mean iteration"
    elif own := next((name for name in names if name_without_unit(name).casefold() in (VALUE, *OTHER_NAMES)), None):
        columns, what = {VALUE: own}, own
    else:
        columns = {}
    columns |= {"freq": "freq", "power": "pwr", "temp": "temp", "workload": "exp"} if columns else {}
    return columns | {"device": "uuid"}, unit, what  # `find_layout` drops columns that the file lacks


def _given_columns(path: Path, names: Sequence[str], options: ColumnOptions) -> dict[str, str]:
    """The user's columns as the file writes them: in any case."""
    by_lower = {name.casefold(): name for name in names}
    columns = {}
    for name, header in options.columns.items():
        column = header if header in names else by_lower.get(header.casefold())
        if column is None:
            raise ConfigError(f"{path} has no column {header!r}. {did_you_mean(header, names)}")
        columns[name] = column
    return columns


def _missing_column(path: Path, names: Sequence[str], what: str) -> str:
    separators = ", ".join(SEPARATORS.values())
    shown = ", ".join(names[:_MOST_NAMED]) + (f" and {len(names) - _MOST_NAMED} more" if names[_MOST_NAMED:] else "")
    # A file with a single column usually has several, with a separator that was not recognized.
    alone = f" Is another separator between them? Those that are read: {separators}." if len(names) == 1 else ""
    return (
        f"Vernier does not know which column of {path} is {what}. Name it with "
        f"{use('columns', slot=f'{VALUE}=NAME,device=NAME')}; the columns are {shown}.{alone}"
    )


def missing_unit(path: Path, column: str, units_of_some: str = "") -> str:
    """What to do about a file that does not state the unit of its values."""
    some = f" in every row ({units_of_some} in some)" if units_of_some else ""
    return (
        f"{path} does not state the unit of {column!r}{some}, and nothing else in its rows tells it. "
        f"State it: {use('units', 'ms')} (or {', '.join(u for u in TIMES if u != 'ms')}; img/s or another rate; "
        f"{RATIO} if they are relative times), or in the column's name: {column}_ms."
    )
