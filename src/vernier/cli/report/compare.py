"""`vernier compare`."""

import sys
from typing import Annotated

from tyro.conf import Positional, arg

from vernier.cli.flags import JsonFlag
from vernier.cli.output import print_json
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
    """Tell whether B is faster or slower than A, how sure that is, and what else differs. Exit code 1 when B is slower.

    A side is one run or several: paths with commas between them, a quoted pattern ('runs/base-*'), or a folder of runs.
    Run directories, bench results (FILE#ARM), raport.json, DLLogger lines and MLPerf logs can be compared. With several
    runs a side, what differs from run to run is in the interval.

    Args:
        a: What to compare with.
        b: What is compared.
        tolerance: Differences up to this, as far as can be seen, are accepted.
    """
    from vernier.report.compare import compare_runs, comparison_lines, parse_tolerance, regressed
    from vernier.report.logs.reading import open_side

    accepted = parse_tolerance(tolerance)
    found = compare_runs(open_side(a), open_side(b), accepted)
    print_json(found) if json else sys.stdout.write("\n".join(comparison_lines(found)) + "\n")
    return EXIT_FAILED if regressed(found) else EXIT_DONE
