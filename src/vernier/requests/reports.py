"""The request of `report`: what is made from runs that exist."""

from .common import Json
from .declaring import argument, option, request
from .values import FilePath


@request("report")
class Report(Json):
    """Write one self-contained HTML report about runs, which needs no network and can be sent to others.

    Reads run directories (also running and crashed ones, benchmarks, profiles), studies and their CSV files, NVIDIA's
    raport.json and DLLogger lines, and MLPerf logs (with their time to train). Several runs share the charts, and their
    differences are marked.

    Examples:
        vernier report runs/RUN
        vernier report runs/before runs/after --out page.html
    """

    runs: tuple[FilePath, ...] = argument(
        help="Runs, studies or logs; a folder of runs means all of them but smoke runs.",
        metavar="RUN...",
        repeats=True,
    )
    out: FilePath | None = option(
        None,
        "File to write.",
        default="report.html in the run directory, or in this folder if several are given",
        metavar="FILE",
        names=("-o", "--output"),
    )
