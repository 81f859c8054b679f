"""Comparisons of runs as objects, and converted logs. `lab.report.compare` compares, `lab.logs` reads and writes."""

from pathlib import Path

from vernier.api.display import frame
from vernier.api.functions import function
from vernier.api.session import Session
from vernier.api.wording import PythonWords
from vernier.frozen import frozen
from vernier.lab.logs.reading import open_side, open_to_convert
from vernier.lab.logs.writing import convert_all
from vernier.lab.report.compare import RunComparison, compare_runs, comparison_lines
from vernier.lab.requests.comparing import Compare, Convert
from vernier.quantities import fraction
from vernier.records.statistics import SpeedVerdict


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
        return "\n".join(map(PythonWords(Compare).word, comparison_lines(self.record)))

    def __repr__(self) -> str:
        ends = "no interval" if self.interval is None else "95 % interval {:.3f} to {:.3f}".format(*self.interval)
        return f"Comparison({self.verdict}: B runs at {self.ratio:.3f} times the speed of A, {ends})"

    def _repr_html_(self) -> str:
        sides = (self.record.a, self.record.b)
        paths = [Path(path) for path in dict.fromkeys(path for side in sides for path in side.runs)]
        return frame(str(self), paths, ("training", "benchmarks", "glance"))


def compare_sides(request: Compare, _: Session | None = None) -> Comparison:
    """Compare two sides. Raises ConfigError for different work, unless allowed, and if there is nothing to compare."""
    return Comparison(
        compare_runs(
            open_side(request.a),
            open_side(request.b),
            fraction(request.tolerance),
            allow_different_work=request.different_work,
            single_runs=request.single_runs,
            other_times=request.other_times,
        )
    )


compare = function(Compare, compare_sides, "compare")


@frozen
class Converted:
    """The files that a log was converted to, and notes about what it did not contain."""

    format: str
    written: tuple[Path, ...]
    notes: tuple[str, ...]


def convert_log(request: Convert, _: Session | None = None) -> Converted:
    """Convert a log. Raises ConfigError for one that cannot be read, and for files that exist."""
    logs = open_to_convert(request.run)
    written = tuple(convert_all(logs, request.to, Path(request.out)))
    return Converted(
        format=request.to, written=written, notes=tuple(dict.fromkeys(n for log in logs.values() for n in log.notes))
    )


convert = function(Convert, convert_log, "convert")
