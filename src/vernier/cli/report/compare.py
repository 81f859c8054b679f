"""`vernier compare`: the flags; the comparison is `vernier.report.compare`."""

from typing import Annotated

from tyro.conf import Positional, arg

from vernier.cli.flags import JsonFlag
from vernier.cli.output import print_result
from vernier.config import parse_share
from vernier.errors import EXIT_DONE, EXIT_FAILED

Side = Annotated[Positional[str], arg(metavar="RUN[,RUN...]")]


def compare(
    a: Side,
    b: Side,
    /,
    *,
    tolerance: Annotated[str, arg(metavar="SHARE")] = "1%",
    json: JsonFlag = False,
) -> int:
    """Compare the speed of two runs: is B faster or slower than A, how certain is that, and what else differs?

    A side is one run or several: comma-separated paths, a quoted pattern ('runs/base-*'), or a folder of runs. A run
    is a run directory, a bench result (FILE#ARM), a raport.json, DLLogger lines or an MLPerf log. With several runs per
    side the interval includes the variation from run to run. The exit code is 1 when B is slower.

    Args:
        a: Run or runs to compare with.
        b: Run or runs that are compared with A.
        tolerance: Differences smaller than this count as equal: 1% or 0.01.

    Examples:
        vernier compare runs/before runs/after
        vernier compare 'runs/before-*' 'runs/after-*' --tolerance 2%
    """
    from vernier.report.compare import compare_runs, comparison_lines
    from vernier.report.logs.reading import open_side

    share = parse_share("--tolerance", tolerance, allow_zero=True)
    result = compare_runs(open_side(a), open_side(b), share)
    print_result(result, json, comparison_lines)
    return EXIT_FAILED if result.regressed else EXIT_DONE
