"""Requests of `tune`: the fastest settings of this machine for training or inference."""

from vernier.requests.common import InProcesses, Json, Quiet, WithPrecision
from vernier.requests.declaring import option, request, shared
from vernier.requests.values import Duration, FilePath

from .benchmarks import BATCH_NAMES, Target


@shared
class Tune(Target, WithPrecision, Quiet, Json):
    """Both searches."""

    time: Duration = option(
        "10m",
        help="About how long it may take in total; settings for which no time is left are not tried.",
        above=0,
        names=("--minutes",),
        bare="m",
        group="measuring",
    )
    out: FilePath = option(
        "machine.toml",
        help="The machine file to write.",
        metavar="FILE",
        names=("-o", "--output"),
        completes=("file",),
        group="run",
    )
    overwrite: bool = option(False, help="Replace the file if it exists.", group="run")
    seed: int = option(0, help="Seed of the order of turns.", group="measuring", advanced=True)


@request("tune train")
class TuneTrain(Tune, InProcesses):
    """Find the fastest settings of this machine for training a recipe, and write them to a machine file.

    Tries threads, memory layout, loader threads, allocator and execution mode. One setting after the other: its values
    take turns in processes that run side by side, and slower ones are dropped early. A value is chosen only if it is
    certainly faster, by 1 % or more. At the end the chosen settings are measured against the defaults in new processes;
    unless that confirms them, the defaults stay. Global batch, precision and everything else that a recipe says are
    never changed. With real data, loader threads are tried, too.

    Examples:
        vernier tune train resnet50 --data photos
        vernier tune train mine.toml --set machine.workers=2 --time 5m --overwrite
    """

    batch: int | None = option(
        None,
        help="Batch to measure with.",
        default="the recipe's global batch, at most 32 on a CPU, 256 on an accelerator",
        low=1,
        sets="global_batch",
        names=BATCH_NAMES,
        group="measuring",
    )
    allow_split: bool = option(
        False,
        help="Also try several processes, and parts of the batch. This changes training: statistics of batch norm are "
        "then those of a part of the batch.",
        group="measuring",
        advanced=True,
    )


@request("tune infer")
class TuneInfer(Tune):
    """Find the fastest settings of this machine for inference, and write them to a machine file.

    As for training, and engine and batch are tried, too. eval, predict and bench infer take the file.

    Examples:
        vernier tune infer resnet50 --time 15m --out fast-infer.toml
        vernier tune infer mine.toml --batch 1 --overwrite
    """

    batch: int | None = option(
        None,
        help="Batch to use.",
        default="32 on a CPU and 256 on an accelerator, and others are tried",
        low=1,
        sets="machine.eval_batch",
        names=BATCH_NAMES,
        group="measuring",
    )
