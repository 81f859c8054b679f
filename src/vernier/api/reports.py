"""Reports and converted logs of runs that exist: `vernier report` and `convert`, and the functions of that name.

The page is `report.page`'s, logs are `report.logs`'.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.references import given, use
from vernier.requests.reports import Convert, Report

from .functions import function
from .session import Session

if TYPE_CHECKING:
    from vernier.report.page.writing import WrittenPage


@frozen
class Converted:
    """The files that a log was converted to, and notes about what it did not contain."""

    format: str
    written: tuple[Path, ...]
    notes: tuple[str, ...]


def convert_log(request: Convert, _: Session | None = None) -> Converted:
    """Convert a log. Raises ConfigError for one that cannot be read, and for files that exist."""
    from vernier.report.logs.reading import open_to_convert
    from vernier.report.logs.writing import convert_all

    logs = open_to_convert(request.run)
    written = tuple(convert_all(logs, request.to, Path(request.out)))
    return Converted(
        format=request.to, written=written, notes=tuple(dict.fromkeys(n for log in logs.values() for n in log.notes))
    )


def write_report(request: Report) -> "WrittenPage":
    """Write the report of some runs. Raises ConfigError."""
    from vernier.report.page.writing import write_page

    if request.port is not None:
        raise ConfigError(f"{given('port', request.port)} is for the live report: add {use('watch', True)}.")
    return write_page([Path(run) for run in request.runs], None if request.out is None else Path(request.out))


def check_live(request: Report) -> None:
    """Refuse a file for a report that is served."""
    if request.out is not None:
        raise ConfigError(
            f"{given('watch', True)} serves the report and {given('out', request.out)} writes it to a file. Give one."
        )


def _report(request: Report, _: Session) -> Path:
    return write_report(request).path


report = function(Report, _report, "report")
convert = function(Convert, convert_log, "convert")
