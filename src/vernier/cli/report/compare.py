"""`vernier compare`: the flags; the comparison is `vernier.report.compare`."""

from typing import Annotated

from tyro.conf import Positional, arg

from vernier.cli.flags import JsonFlag, Switch
from vernier.cli.output import print_result
from vernier.config import parse_share
from vernier.errors import EXIT_DONE, EXIT_FAILED

Side = Annotated[Positional[str], arg(metavar="RUN,...")]


def compare(
    a: Side,
    b: Side,
    /,
    *,
    tolerance: Annotated[str, arg(metavar="SHARE")] = "1%",
    different_work: Switch = False,
    single_runs: Switch = False,
    json: JsonFlag = False,
) -> int:
    """Compare the speed of two runs: is B faster or slower than A, how certain is that, and what else differs?

    A side is one run or several: comma-separated paths, a quoted pattern ('runs/base-*'), or a folder of runs. A run
    is a run directory, a benchmark (RUN, or RUN#ARM where it has several arms), a raport.json, DLLogger lines, an
    MLPerf log (aborted runs are left out), or a training script's console output. Both sides must have done the same
    work: kind, network, image size, classes where they matter, and batch per device; copies of one run count once.
    Give several runs per side: one run each shows how noisy these two runs were, not how runs of the same thing
    differ, so there is no verdict. Beside the verdict stands the smallest difference that such runs show in 80 % of
    cases. The exit code is 1 when B is certainly slower.

    Args:
        a: Run or runs to compare with.
        b: Run or runs that are compared with A.
        tolerance: Differences smaller than this count as equal: 1% or 0.01.
        different_work: Compare speeds of different work all the same; the output says that it is different.
        single_runs: Give a verdict on one run per side, as if runs of the same thing did not differ.

    Examples:
        vernier compare runs/before runs/after
        vernier compare 'runs/before-*' 'runs/after-*' --tolerance 2%
        vernier compare runs/training runs/benchmark#batch=32
    """
    from vernier.report.compare import compare_runs, comparison_lines
    from vernier.report.logs.reading import open_side

    share = parse_share("--tolerance", tolerance, allow_zero=True)
    result = compare_runs(
        open_side(a), open_side(b), share, allow_different_work=different_work, single_runs=single_runs
    )
    print_result(result, json, comparison_lines)
    return EXIT_FAILED if result.regressed else EXIT_DONE
