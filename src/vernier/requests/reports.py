"""Requests of `report` and `convert`: what is made from runs that exist."""

from typing import Literal

from .common import Json
from .declaring import argument, option, request
from .values import FilePath


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
