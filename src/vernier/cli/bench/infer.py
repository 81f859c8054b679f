"""`vernier bench infer`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from vernier.api.benchmarks import SCENARIOS, as_serving, is_model_file
from vernier.cli.flags import DataFlag, JsonFlag, OptionalFloat, QuietFlag, Switch, optional
from vernier.cli.output import set_quiet
from vernier.errors import ConfigError

from .options import (
    BatchList,
    Comparing,
    EngineList,
    ModeList,
    PrecisionList,
    Target,
    TargetFlags,
    build_request,
    parse_choices,
    parse_list,
)
from .running import measure_and_print


def infer(
    *,
    target: TargetFlags = Target(),  # noqa: B008
    data: DataFlag = None,
    run: Annotated[str | None, optional("RUN")] = None,
    batches: BatchList = None,
    precisions: PrecisionList = None,
    modes: ModeList = None,
    engines: EngineList = None,
    int8: Switch = False,
    scenarios: Annotated[str, arg(metavar="offline,single-stream,server")] = "offline",
    loads: Annotated[str, arg(metavar="SHARE,...")] = "0.5,0.8",
    rate: OptionalFloat = None,
    measuring: Comparing = Comparing(),  # noqa: B008
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Measure inference: throughput by batch, latency percentiles, or latency under random arrivals.

    offline: batches from the loader, as fast as possible. single-stream: one batch at a time, already in memory; its
    time is the latency. server: single images arrive at random (Poisson); latency counts from the planned arrival.

    Args:
        data: A data set, a folder, synthetic (random pixels) or static (the same batch in every step). Default: the
            recipe's own set, or synthetic where it names none, with 2 loader threads (--set machine.workers=N). The
            first line of the result says what it was.
        run: Use the weights and settings of this run, or of a file that `vernier export` wrote. An ONNX file is run by
            onnxruntime, a .pt2 file by torch.export; images are random pixels unless --data is given.
        batches: Batch sizes; server: the most images that run together. Default: 32 on a CPU, 256 on an accelerator.
        precisions: Arithmetic: fp32, tf32, bf16, fp16. Default: fp32.
        modes: How the network is executed: eager, compile, trace. Default: eager.
        engines: What runs the network, on the CPU: torch, onnxruntime, openvino, auto. Every one is first checked
            against torch on the images; auto takes the fastest that is installed. Default: torch.
        int8: Also measure the engines in INT8, calibrated on images of --data, with the loss of accuracy beside the
            speed; torch is measured in fp32 only.
        scenarios: One or more of the three.
        loads: server: arrivals as shares of the highest possible rate, which is measured first.
        rate: server: arrivals per second, instead of --loads.
        measuring: How long and how often to measure.

    Examples:
        vernier bench infer resnet50 --batch 1,8,32
        vernier bench infer resnet50 --batch 1,32 --engine torch,onnxruntime,openvino,auto
        vernier bench infer --run runs/RUN --batch 1 --scenarios single-stream
        vernier bench infer --run runs/RUN --batch 8 --scenarios server --loads 0.5,0.8
    """
    set_quiet(quiet)
    if run is None and target.recipe is not None and is_model_file(Path(target.recipe).expanduser()):
        run, target = target.recipe, replace(target, recipe=None)
    if run is not None and (target.recipe is not None or target.model is not None):
        raise ConfigError("A run or an exported file has its own recipe and model: leave RECIPE and --model out.")
    request = build_request(
        "infer",
        target,
        data=data,
        precisions=precisions,
        modes=modes,
        batches=batches,
        run=run,
        engines=engines,
        int8=int8,
    )
    kinds = parse_choices("--scenarios", scenarios, SCENARIOS)
    return measure_and_print(as_serving(request, kinds, parse_list("--loads", loads, float), rate), measuring, json)
