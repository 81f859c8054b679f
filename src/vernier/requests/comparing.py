"""Requests of `compare`, `report` and `convert`: what is made from runs that exist."""

from typing import Literal

from .common import Json
from .declaring import argument, option, request
from .values import FilePath, Fraction


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


@request("report")
class Report(Json):
    """Write one self-contained HTML report about runs, which needs no network and can be sent to others.

    Reads run directories (also running and crashed ones, benchmarks, profiles), studies and their CSV files, NVIDIA's
    raport.json and DLLogger lines, MLPerf logs (with their time to train), and the console output of torchvision's,
    Habana's and TensorFlow's training scripts. Several runs share the charts, and their differences are marked.

    Examples:
        vernier report runs/RUN
        vernier report runs/before runs/after --out page.html
        vernier report runs/RUN --watch
    """

    runs: tuple[FilePath, ...] = argument(
        help="Runs, studies or logs; a folder of runs means all of them but smoke runs.",
        metavar="RUN...",
        completes=("run",),
        repeats=True,
    )
    out: FilePath | None = option(
        None,
        help="File to write.",
        default="report.html in the run directory, or in this folder if several are given",
        metavar="FILE",
        names=("-o", "--output"),
        completes=("file",),
    )
    watch: bool = option(
        False,
        help="Serve the report on this machine instead, and update it while the runs continue. Ctrl-C ends it.",
        edge="shell",
    )
    port: int | None = option(
        None, help="Port of the live report.", default="a free one", low=1, high=65535, edge="shell"
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
        "lines, an MLPerf log, or the console output of a training script.",
        metavar="RUN|FILE",
        completes=("run", "file"),
    )
    to: Literal["raport", "dllogger", "mllog", "study", "tensorboard"] = option(
        help="Format to write: raport (NVIDIA, 2019), dllogger (NVIDIA, since 2020), mllog (MLPerf), study (files of "
        "the SC22 variability study), tensorboard."
    )
    out: FilePath = option(
        help="File to write; for study and tensorboard a directory. Several configurations of a benchmark get one "
        "each, named after the configuration.",
        names=("-o", "--output"),
        completes=("file",),
    )
