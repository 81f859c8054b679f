"""Requests of `bench`: what is measured, how long and how often."""

from typing import Literal

from vernier.config.settings import Engine, Mode, Precision
from vernier.requests.common import (
    PROCS_NAMES,
    Assigned,
    InProcesses,
    Json,
    OnDevice,
    Quiet,
    Settings,
    WithMode,
    WithPrecision,
)
from vernier.requests.declaring import Request, argument, option, request, shared
from vernier.requests.values import Code, DataPath, Duration, FilePath, Fraction

from .common import (
    BATCH,
    data_option,
    file_option,
    measuring,
    measuring_advanced,
    model_option,
    out_file,
    out_folder,
    recipe_argument,
)

LAYOUTS = "Numbers of processes, one per device; 2x4: two with four threads each."


@shared
class Target(OnDevice, Assigned):
    """Commands that measure a recipe or a model."""

    recipe: FilePath | None = recipe_argument(
        None,
        help="A built-in recipe (see `vernier recipes`), a model (see `vernier models`) or a .toml file of your own.",
        default="shapes-quick",
    )
    data: DataPath | None = data_option(
        None,
        help="A data set, a folder of images, synthetic (random pixels) or static (the same batch in every step). The "
        "first line of the result says what it was.",
        default="that of the recipe, or synthetic if it names none",
        metavar="NAME|PATH",
        sets="data.source",
    )
    model: Code | None = model_option(
        None, help="Another model than the recipe's, as published (see `vernier models`).", default="that of the recipe"
    )


@shared
class Benchmarked(Target, Settings, Quiet, Json):
    """Benchmarks of a recipe: what all of them have, and how long and how often they measure."""

    # Fresh processes: the layout of memory and the cores that threads get differ between processes, not within one.
    repeats: int | None = measuring(
        None,
        help="Number of fresh processes per configuration (one combination of batch, precision, ...).",
        default="5, and up to 10 while their rates differ too much for a useful interval",
        low=1,
    )
    max_time: Duration = measuring(
        "20s",
        help="Longest measuring time per process. Start-up, warm-up and the rest take at most 0.9 times as long again, "
        "unless compiling takes longer.",
        above=0,
        names=("--max-seconds",),
        bare="s",
    )
    steps: int | None = measuring(
        None, help="Measure exactly this many steps, instead of until the rate is known well enough.", low=1
    )
    target_width: Fraction | None = measuring_advanced(
        None,
        help="Stop when the 95 % interval is within this percentage of the rate; with a single repeat not before the "
        "steps are enough for an interval.",
        default="1%",
        above=0,
        names=("--precision-target",),
    )
    seed: int = measuring_advanced(0, help="Seed for the order of the configurations.")
    out: FilePath = out_folder("runs", help="Folder in which the run directory is created.", group="run")

    def changes(self) -> dict[str, object]:
        """Lists are configurations to measure, and not settings."""
        return {name: value for name, value in super().changes().items() if not isinstance(value, tuple)}


@shared
class Varied(Benchmarked):
    """Benchmarks with a configuration per combination of batch, precision and mode."""

    batch: tuple[int, ...] = measuring(
        (),
        help="Batch sizes per device.",
        default="the recipe's global batch, at most 32 on a CPU, 256 on an accelerator",
        **BATCH,
    )
    precision: tuple[Precision, ...] = option(
        (),
        help="Number formats the model computes in.",
        default="fp32",
        sets="machine.precision",
        names=("--precisions",),
        group="machine",
    )
    mode: tuple[Mode, ...] = option(
        (),
        help="How the model is executed.",
        default="eager",
        sets="machine.mode",
        names=("--modes",),
        group="machine",
    )
    memory_limit: float | None = measuring_advanced(
        None,
        help="Largest memory per configuration.",
        default="nine tenths of the free memory on a CPU",
        above=0,
        unit="GiB",
        metavar="GIB",
    )
    raport: FilePath | None = file_option(
        None,
        help="Also write NVIDIA's raport.json (2019) to this file; of several configurations each gets one, named "
        "after the configuration.",
        group="output",
        advanced=True,
    )
    dllogger: FilePath | None = file_option(
        None,
        help="Also write NVIDIA's DLLogger lines (since 2020) to this file, in the same way.",
        group="output",
        advanced=True,
    )


@request("bench train")
class BenchTrain(Varied):
    """Measure training throughput: images per second, data loading included, with a 95 % interval, and step phases.

    Several values give several configurations. Every repeat is a fresh process; configurations are interleaved in
    random order. If a recipe's images grow during training, the last size is measured.

    Examples:
        vernier bench train resnet50 --batch 1,2,4,8,16,32,64,128,256
        vernier bench train --batch 32 --precision fp32,bf16 --mode eager,compile
    """

    procs: tuple[str, ...] = option(
        (), help=LAYOUTS, default="1", metavar="N,N,...", sets="machine.procs", names=PROCS_NAMES, group="machine"
    )


@request("bench infer")
class BenchInfer(Varied):
    """Measure inference: throughput by batch, or latency percentiles.

    offline: batches from the loader, as fast as possible. single-stream: one batch at a time, already in memory; its
    time is the latency.

    A run and an exported file are measured with their own weights and settings. An ONNX file is run by onnxruntime;
    images are random pixels unless data is given.

    Examples:
        vernier bench infer resnet50 --batch 1,8,32
        vernier bench infer resnet50 --batch 1,32 --engine torch,onnxruntime,openvino,auto
        vernier bench infer runs/RUN --batch 1 --scenarios single-stream
    """

    recipe: FilePath | None = argument(
        None,
        help="A built-in recipe (see `vernier recipes`), a model (see `vernier models`), a .toml file of your own, a "
        "run, or a file that `vernier export` wrote.",
        default="shapes-quick",
        metavar="[RECIPE|RUN|FILE]",
        names=("--run",),
    )
    batch: tuple[int, ...] = measuring(
        (),
        help="Batch sizes.",
        default="32 on a CPU, 256 on an accelerator",
        **BATCH,
    )
    engine: tuple[Engine, ...] = option(
        (),
        help="What runs the model, on the CPU. Every engine is first checked against torch on the images; auto takes "
        "the fastest that is installed.",
        default="torch",
        sets="machine.engine",
        names=("--engines",),
        group="machine",
    )
    int8: bool = option(
        False,
        help="Also measure the engines in INT8, calibrated on images of the data, with the loss of accuracy beside the "
        "speed; torch is measured in fp32 only.",
        sets="machine.int8",
        group="machine",
    )
    scenarios: tuple[Literal["offline", "single-stream"], ...] = measuring(
        ("offline",), help="One or both of the scenarios."
    )

    def changes(self) -> dict[str, object]:
        """INT8 is a configuration beside fp32, and not a setting of all."""
        return {name: value for name, value in super().changes().items() if name != "machine.int8"}


@request("bench scaling")
class BenchScaling(Benchmarked, WithPrecision, WithMode):
    """Measure how training scales with processes: same batch per device (weak), or same total batch (strong).

    Examples:
        vernier bench scaling resnet50 --procs 1,4,8
        vernier bench scaling --procs 1x1,2x1 --batch 32
        vernier bench scaling --procs 1,2 --strong
    """

    procs: tuple[str, ...] = option(
        help=f"{LAYOUTS} The smallest is the base.",
        metavar="N,N,...",
        sets="machine.procs",
        names=PROCS_NAMES,
        group="measuring",
    )
    batch: int | None = measuring(
        None,
        help="Batch size per device; of strong scaling: in total.",
        default="the recipe's global batch, at most 32 per CPU process, 256 per accelerator",
        sets="global_batch",
        **BATCH,
    )
    strong: bool = measuring(False, help="Keep the total batch the same, instead of the batch per device.")
    apart: bool = measuring(
        False, help="Also measure without gradient exchange, to separate network cost from CPU contention."
    )


@request("bench link")
class BenchLink(OnDevice, InProcesses, Settings, Quiet, Json):
    """Measure bandwidth and latency between devices by message size: all-reduce, all-gather, point-to-point.

    Within hosts and between them, with 95 % intervals. On several hosts it is started like training: by torchrun,
    Slurm or mpirun. `vernier plan --link FILE` predicts with the result.

    Examples:
        vernier bench link --procs 8 --out link.json
        torchrun --nnodes 2 --nproc-per-node 8 --no-python vernier bench link --out link.json
    """

    sizes_kib: tuple[int, ...] = measuring(
        (1, 32, 1024, 25600), help="Message sizes per process; 25,600 KiB is a gradient bucket.", low=1, unit="KiB"
    )
    repeats: int = measuring(9, help="Number of samples; an interval needs six.", low=1)
    out: FilePath | None = out_file(None, help="File for the result.", default="none")


@request("bench arm")
class BenchArm(Request):
    """Measure one configuration of a benchmark in this process. Internal: the other benchmarks start it."""

    request: FilePath = argument(help="JSON file that says what to measure.", metavar="REQUEST")
    answer: FilePath = argument(help="JSON file to write the result to.", metavar="ANSWER")
