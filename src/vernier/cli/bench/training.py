"""`vernier bench train` and `vernier bench scaling`."""

from dataclasses import asdict
from typing import Annotated

from tyro.conf import arg

from vernier.api.benchmarks import as_scaling
from vernier.cli.flags import DataFlag, JsonFlag, OptionalInt, OptionalText, QuietFlag, Switch
from vernier.cli.output import set_quiet
from vernier.errors import ConfigError

from .options import (
    BatchList,
    Comparing,
    Measuring,
    ModeList,
    NumberList,
    PrecisionList,
    Target,
    TargetFlags,
    build_request,
)
from .running import measure_and_print


def train(
    *,
    target: TargetFlags = Target(),  # noqa: B008
    data: DataFlag = None,
    batches: BatchList = None,
    precisions: PrecisionList = None,
    modes: ModeList = None,
    procs: NumberList = None,
    measuring: Comparing = Comparing(),  # noqa: B008
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Measure training throughput: images per second, data loading included, with a 95 % interval, and step phases.

    Several values give several arms. Every repeat is a fresh process; arms take turns in random order. Where a recipe's
    images grow during training, the last size is measured.

    Args:
        data: A data set, a folder, synthetic (random pixels) or static (the same batch in every step). Default: the
            recipe's own set, or synthetic where it names none, with 2 loader threads (--set machine.workers=N). The
            first line of the result says what it was.
        batches: Batch sizes per device. Default: the recipe's global batch, at most 32 on a CPU, 256 on an accelerator.
        precisions: Arithmetic: fp32, tf32, bf16, fp16. Default: fp32.
        modes: How the network is executed: eager, compile, trace. Default: eager.
        procs: Numbers of processes, one per device. Default: 1.
        measuring: How long and how often to measure.

    Examples:
        vernier bench train resnet50 --batch 1,2,4,8,16,32,64,128,256
        vernier bench train --batch 32 --precision fp32,bf16 --mode eager,compile
        vernier bench train --batch 32 --against HEAD~1
    """
    set_quiet(quiet)
    request = build_request(
        "train", target, data=data, precisions=precisions, modes=modes, batches=batches, procs=procs
    )
    return measure_and_print(request, measuring, json)


def scaling(
    *,
    target: TargetFlags = Target(),  # noqa: B008
    procs: Annotated[str, arg(metavar="N,N,...")],
    data: DataFlag = None,
    batch: OptionalInt = None,
    strong: Switch = False,
    apart: Switch = False,
    precision: OptionalText = None,
    mode: OptionalText = None,
    measuring: Measuring = Measuring(),  # noqa: B008
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Measure how training scales with processes: same batch per device (weak), or same total batch (strong).

    Args:
        procs: Numbers of processes, one per device; 2x4: two with four threads each. The smallest is the base.
        data: A data set, a folder, synthetic (random pixels) or static (the same batch in every step). Default: the
            recipe's own set, or synthetic where it names none, with 2 loader threads (--set machine.workers=N). The
            first line of the result says what it was.
        batch: Batch size per device; with --strong: in total. Default: the recipe's global batch, at most 32 per CPU
            process, 256 per accelerator.
        strong: Keep the total batch the same, instead of the batch per device.
        apart: Also measure without gradient exchange, to separate network cost from CPU contention.
        precision: Arithmetic: fp32, tf32, bf16, fp16. Default: fp32.
        mode: How the network is executed: eager, compile, trace. Default: eager.
        measuring: How long and how often to measure.

    Examples:
        vernier bench scaling resnet50 --procs 1,4,8
        vernier bench scaling --procs 1x1,2x1 --batch 32
        vernier bench scaling --procs 1,2 --strong
    """
    set_quiet(quiet)
    if batch is not None and batch < 1:
        raise ConfigError(f"--batch {batch} is out of range: it must be 1 or more.")
    request = build_request(
        "train", target, data=data, precisions=precision, modes=mode, procs=procs, global_batch=batch, strong=strong
    )
    request = as_scaling(request, strong=strong, apart=apart)
    return measure_and_print(request, Comparing(**asdict(measuring)), json)
