"""The requests of `compare` and `convert`."""

from typing import Literal

from vernier.requests.common import Json
from vernier.requests.declaring import argument, option, request
from vernier.requests.values import FilePath, Fraction


@request("compare")
class Compare(Json):
    """Compare the speed of two runs: is B faster or slower than A, how certain is that, and what else differs?

    A side is one run or several: comma-separated paths, a quoted pattern ('runs/base-*'), or a folder of runs. A run
    is a run directory, a benchmark (RUN, or RUN#NAME for one of its configurations), a raport.json, DLLogger lines, or
    an MLPerf log (aborted runs are omitted). Both sides must have done the same work: kind, model, image size, classes
    if they matter, and batch per device; copies of one run count once.

    Give several runs per side: one run each shows how noisy these two runs were, not how runs of the same thing
    differ, so there is no verdict. The output also contains the smallest difference that such runs show in 80 % of
    cases. The exit code is 1 if B is significantly slower and the sides were measured in turn: if all runs of one side
    are older, a machine that became slower would look the same.

    Examples:
        vernier compare runs/before runs/after
        vernier compare 'runs/before-*' 'runs/after-*' --tolerance 2%
        vernier compare runs/training runs/benchmark#batch=32
    """

    a: tuple[FilePath, ...] = argument(help="Run or runs to compare with.", metavar="RUN,...")
    b: tuple[FilePath, ...] = argument(help="Run or runs that are compared with A.", metavar="RUN,...")
    tolerance: Fraction = option("1%", help="Smaller differences count as equal.")
    different_work: bool = option(
        False, help="Compare speeds of different work, too; the output notes that it is different."
    )
    single_runs: bool = option(
        False, help="Give a verdict on one run per side, as if runs of the same thing did not differ."
    )
    other_times: bool = option(
        False, help="The exit code is 1 also if all runs of one side are older, as if the machine never changed."
    )


@request("convert")
class Convert(Json):
    """Convert a run's log to the format of another tool; nothing is overwritten.

    Examples:
        vernier convert runs/RUN --to mllog --out result_0.txt
        vernier convert raport.json --to dllogger --out dllogger.json
        vernier convert 'runs/BENCH#batch=32' --to raport --out benchmark.json
    """

    run: FilePath = argument(
        help="A run directory, a benchmark (RUN, or RUN#NAME for one of its configurations), a raport.json, DLLogger "
        "lines, or an MLPerf log.",
        metavar="RUN|FILE",
    )
    to: Literal["raport", "dllogger", "mllog", "study", "tensorboard"] = option(
        help="Format to write: raport (NVIDIA, 2019), dllogger (NVIDIA, since 2020), mllog (MLPerf), study (files of "
        "the SC22 variability study), tensorboard."
    )
    out: FilePath = option(
        help="File to write; for study and tensorboard a directory. Several configurations of a benchmark get one "
        "each, named after the configuration.",
        names=("-o", "--output"),
    )
