"""The request of `compare`."""

from vernier.requests.common import Json
from vernier.requests.declaring import argument, option, request
from vernier.requests.values import FilePath, Fraction


@request("compare")
class Compare(Json):
    """Compare the speed of two runs: is B faster or slower than A, how certain is that, and what else differs?

    A side is one run or several: comma-separated paths, a quoted pattern ('runs/base-*'), or a folder of runs. A run
    is a run directory, a benchmark (RUN, or RUN#NAME for one of its configurations), a raport.json, DLLogger lines, an
    MLPerf log (aborted runs are omitted), or the console output of a training script. Both sides must have done the
    same work: kind, model, image size, classes if they matter, and batch per device; copies of one run count once.

    Give several runs per side: one run each shows how noisy these two runs were, not how runs of the same thing
    differ, so there is no verdict. The output also contains the smallest difference that such runs show in 80 % of
    cases. The exit code is 1 if B is significantly slower.

    Examples:
        vernier compare runs/before runs/after
        vernier compare 'runs/before-*' 'runs/after-*' --tolerance 2%
        vernier compare runs/training runs/benchmark#batch=32
    """

    a: tuple[FilePath, ...] = argument(help="Run or runs to compare with.", metavar="RUN,...", completes=("run",))
    b: tuple[FilePath, ...] = argument(
        help="Run or runs that are compared with A.", metavar="RUN,...", completes=("run",)
    )
    tolerance: Fraction = option("1%", help="Smaller differences count as equal.")
    different_work: bool = option(
        False, help="Compare speeds of different work, too; the output notes that it is different."
    )
    single_runs: bool = option(
        False, help="Give a verdict on one run per side, as if runs of the same thing did not differ."
    )
