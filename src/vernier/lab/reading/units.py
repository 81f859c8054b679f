"""The unit of a measured column: from its name, or inferred from what else its rows hold. Never assumed.

A wrong unit leaves every ratio right and every absolute value wrong by a thousand, so a unit is inferred only where
exactly one fits, and with a note that says from what.
"""

import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from vernier.lab.study.analysis import TIMES
from vernier.wording import two_digits

from .csv_tables import CsvRow

SENSOR_UNITS = {"freq": {"MHz": 1.0, "GHz": 1000.0, "kHz": 1e-3}, "power": {"W": 1.0, "mW": 1e-3}, "temp": {"C": 1.0}}
_UNIT = re.compile(r"(?:_|\(|\[|\s)(s|ms|us|ns|min|[A-Za-z]+/s)[)\]]?$")
# No minutes: nobody writes iterations in them, and with one more unit fewer answers are the only one.
_CANDIDATES = ("s", "ms", "us", "ns")
_ONE_ITERATION = re.compile(r"iter|step|kern|dur|latency", re.IGNORECASE)
_SAME_SIZE = (1 / 5, 5.0)
"""A mean and a median of the same times differ by less than this."""
_ITERATIONS = (2.0, 50_000.0)
"""As many iterations a training that is timed as a whole has: fewer or more make a unit impossible."""
_WHOLE_RUN = ("train_time", "train_time_mean", "train_time_median")
_GAPS = (0.2, 1.05)
"""Duration of a kernel over the time from one to the next: the rest is launches and copies."""


def unit_in_name(name: str) -> str | None:
    """`time_ms`, `duration (ms)`, `time [s]`."""
    match = _UNIT.search(name.strip())
    return match[1] if match else None


def name_without_unit(name: str) -> str:
    """`time` of `time_ms` and of `time (ms)`."""
    return _UNIT.sub("", name.strip()).rstrip(" _")


def infer_unit(rows: Sequence[CsvRow], column: str) -> tuple[str, str] | None:
    """The unit of a column of times, and from what it follows; None where nothing else in the rows tells it."""
    for rule in (_from_named_column, _from_kernels, _from_train_time):
        if inferred := rule(rows, column):
            return inferred
    return None


def outlasts_training(rows: Sequence[CsvRow], column: str) -> bool:
    """Whether one iteration would be longer than the whole training, if the column were in seconds."""
    shares = [one / total for one, total in _numbers(rows, column, "train_time")]
    # The median: single rows of such tables can have a train_time that was cut off.
    return bool(shares) and statistics.median(shares) > 1


def _from_named_column(rows: Sequence[CsvRow], column: str) -> tuple[str, str] | None:
    """Another time of the same iterations, whose name has its unit."""
    for other in rows[0]:
        named = unit_in_name(other)
        alike = name_without_unit(other).casefold() == column.casefold() or _ONE_ITERATION.search(other)
        if other == column or named not in TIMES or not alike:
            continue
        shares = [value / same for value, same in _numbers(rows, column, other)]
        if unit := _only_unit(shares, partial(_is_same_size, TIMES[named])):
            return unit, f"{other!r} of the same rows is as long in {named}"
    return None


def _is_same_size(seconds: float, share: float) -> bool:
    return _SAME_SIZE[0] <= share / seconds <= _SAME_SIZE[1]


def _from_kernels(rows: Sequence[CsvRow], column: str) -> tuple[str, str] | None:
    """The first and last start of a kernel, in seconds as nvprof writes them, and how many there were."""
    kernels = _numbers(rows, column, "kern_min_start", "kern_max_start", "num_kerns")
    shares = [value * (count - 1) / (last - first) for value, first, last, count in kernels if last > first]
    unit = _only_unit(shares, lambda share: _GAPS[0] <= share <= _GAPS[1])
    if unit is None:
        return None
    # An example for the note, so that a reader can check the conclusion by hand.
    _, first, last, count = kernels[0]
    return unit, f"{count:,.0f} kernels started {two_digits((last - first) / (count - 1))} s apart"


def _from_train_time(rows: Sequence[CsvRow], column: str) -> tuple[str, str] | None:
    """The duration of the whole run, in seconds, over that of an iteration is a number of iterations."""
    # The column itself, not another time of the same rows: the two can have different units.
    totals = next((t for name in _WHOLE_RUN if (t := _numbers(rows, column, name))), [])
    shares = [one / total for one, total in totals]
    unit = _only_unit(shares, lambda share: _ITERATIONS[0] <= 1 / share <= _ITERATIONS[1])
    if unit is None:
        return None
    total, count = statistics.median(t for *_, t in totals), 1 / (statistics.median(shares) * TIMES[unit])
    return unit, f"a train_time of {two_digits(total)} s is then {two_digits(count)} iterations"


def _only_unit(shares: Sequence[float], fits: Callable[[float], bool]) -> str | None:
    """The one unit in which the typical share fits; None where none does, or several do."""
    if not shares:
        return None
    share = statistics.median(shares)
    # Two units that fit are no answer: a wrong one would be off by a thousand without a trace.
    units = [unit for unit in _CANDIDATES if fits(share * TIMES[unit])]
    return units[0] if len(units) == 1 else None


def _numbers(rows: Iterable[CsvRow], *columns: str) -> list[tuple[float, ...]]:
    """These columns of the rows that have positive numbers in all of them."""
    cells = (tuple(row.get(c) for c in columns) for row in rows)
    numbers = (tuple(c for c in row if isinstance(c, int | float) and 0 < c < math.inf) for row in cells)
    return [row for row in numbers if len(row) == len(columns)]
