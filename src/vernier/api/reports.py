"""Reports about runs that exist: `vernier report`, and the function of that name. The page is `report.page`'s."""

from pathlib import Path
from typing import TYPE_CHECKING

from vernier.requests.reports import Report

from .functions import function
from .session import Session

if TYPE_CHECKING:
    from vernier.report.page.build import WrittenPage


def write_report(request: Report) -> "WrittenPage":
    """Write the report of some runs. Raises ConfigError."""
    from vernier.report.page.build import write_page

    return write_page([Path(run) for run in request.runs], None if request.out is None else Path(request.out))


def _report(request: Report, _: Session) -> Path:
    return write_report(request).path


report = function(Report, _report, "report")
