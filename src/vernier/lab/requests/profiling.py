"""Requests of `profile`: where the time of training or inference steps goes."""

from vernier.requests.common import Json, Quiet, Settings, WithMode, WithPrecision
from vernier.requests.declaring import request, shared
from vernier.requests.values import FilePath

from .benchmarks import Target
from .common import BATCH, measuring, out_folder


@shared
class Profiled(Target, WithPrecision, WithMode, Settings, Quiet, Json):
    """Both profiles."""

    # After the first ten steps, which warm up.
    range: str = measuring(
        "11:15",
        help="First and last step to profile, counted from 1, both included; or how many after the first ten.",
        metavar="A:B|N",
        names=("--steps",),
    )
    out: FilePath = out_folder("runs", help="Folder in which the run directory is created.", group="run")


@request("profile train")
class ProfileTrain(Profiled):
    """Profile training steps: kernel table, trace, memory, and where the time goes.

    Ten more steps run without the profiler, to measure its overhead. The files are in the run's traces/ folder; the
    trace opens in chrome://tracing or ui.perfetto.dev. If a recipe's images grow during training, steps at the last
    size are profiled.

    Examples:
        vernier profile train
        vernier profile train resnet50 --batch 8 --range 6:8
    """

    batch: int | None = measuring(
        None,
        help="Batch size per step.",
        default="the recipe's global batch, at most 32 on a CPU, 256 on an accelerator",
        sets="global_batch",
        **BATCH,
    )


@request("profile infer")
class ProfileInfer(Profiled):
    """Profile inference steps: kernel table, trace, memory, and where the time goes.

    Ten more steps run without the profiler, to measure its overhead. The files are in the run's traces/ folder; the
    trace opens in chrome://tracing or ui.perfetto.dev.

    Examples:
        vernier profile infer --batch 32
        vernier profile infer resnet50 --mode compile --range 6:8
    """

    batch: int | None = measuring(
        None,
        help="Batch size per step.",
        default="machine.eval_batch, at most 32 on a CPU, 256 on an accelerator",
        sets="machine.eval_batch",
        **BATCH,
    )
