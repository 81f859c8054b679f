"""Requests of `tune`: the fastest settings of this machine for training or inference."""

from vernier.requests.common import InProcesses, Json, Quiet, WithPrecision
from vernier.requests.declaring import option, request, shared
from vernier.requests.values import Duration, FilePath

from .benchmarks import Target
from .common import BATCH, measuring, measuring_advanced, out_file


@shared
class Tune(Target, WithPrecision, Quiet, Json):
    """Both searches."""

    time: Duration = measuring(
        "10m",
        help="About how long it may take in total; settings for which no time is left are not tried.",
        above=0,
        names=("--minutes",),
        bare="m",
    )
    out: FilePath = out_file("machine.toml", help="The machine file to write.", group="run")
    overwrite: bool = option(False, help="Replace the file if it exists.", group="run")
    seed: int = measuring_advanced(0, help="Seed of the order of measurements.")


@request("tune train")
class TuneTrain(Tune, InProcesses):
    """Find the fastest settings of this machine for training a recipe, and write them to a machine file.

    Tries threads, memory layout, loader threads, allocator and execution mode. One setting after the other: its values
    are measured in interleaved rounds by processes that wait in between, and slower ones are dropped early. A value is
    chosen only if it is certainly faster, by 1 % or more. At the end the chosen settings are measured against the
    defaults in new processes; unless that confirms them, the defaults stay. Global batch, precision and everything else
    that a recipe says are never changed. With real data, loader threads are tried, too.

    Examples:
        vernier tune train resnet50 --data photos
        vernier tune train mine.toml --set machine.workers=2 --time 5m --overwrite
    """

    batch: int | None = measuring(
        None,
        help="Batch to measure with.",
        default="the recipe's global batch, at most 32 on a CPU, 256 on an accelerator",
        sets="global_batch",
        **BATCH,
    )
    allow_split: bool = measuring_advanced(
        False,
        help="Also try several processes, and parts of the batch. This changes training: statistics of batch norm are "
        "then those of a part of the batch.",
    )


@request("tune infer")
class TuneInfer(Tune):
    """Find the fastest settings of this machine for inference, and write them to a machine file.

    As for training, and engine and batch are tried, too. eval, predict and bench infer take the file.

    Examples:
        vernier tune infer resnet50 --time 15m --out fast-infer.toml
        vernier tune infer mine.toml --batch 1 --overwrite
    """

    batch: int | None = measuring(
        None,
        help="Batch to use.",
        default="32 on a CPU and 256 on an accelerator, and others are tried",
        sets="machine.eval_batch",
        **BATCH,
    )
