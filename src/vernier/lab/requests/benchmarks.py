"""Requests of `bench`: what is measured, how long and how often, and against what."""

from typing import Literal

from vernier.config.settings import Engine, Mode, Precision
from vernier.requests.common import Assigned, Json, OnDevice, Quiet, Settings, WithMode, WithPrecision
from vernier.requests.declaring import Request, argument, option, request, shared
from vernier.requests.values import Duration, FilePath, Fraction

BATCH_NAMES = ("--batch-size", "--batches", "--device-batch")
PROCS_NAMES = ("--gpus", "--nproc", "--nproc-per-node")
LAYOUTS = "Numbers of processes, one per device; 2x4: two with four threads each."


@shared
class Target(OnDevice, Assigned):
    """Commands that measure a recipe or a model."""

    recipe: FilePath | None = argument(
        None,
        help="A built-in recipe (see `vernier recipes`), a model (see `vernier models`) or a .toml file of your own.",
        default="shapes-quick",
        metavar="[RECIPE]",
        completes=("recipe", "model", "file"),
    )
    data: FilePath | None = option(
        None,
        help="A data set, a folder of images, synthetic (random pixels) or static (the same batch in every step). The "
        "first line of the result says what it was.",
        default="that of the recipe, or synthetic if it names none",
        metavar="NAME|PATH",
        sets="data.source",
        names=("--dataset",),
        completes=("data", "folder"),
        group="data",
    )
    model: str | None = option(
        None,
        help="Another model than the recipe's, as published (see `vernier models`).",
        default="that of the recipe",
        metavar="MODEL",
        sets="model.name",
        names=("--arch",),
        completes=("model",),
        group="model",
    )


@shared
class Benchmarked(Target, Settings, Quiet, Json):
    """Benchmarks of a recipe: what all of them have, and how long and how often they measure."""

    repeats: int = option(
        5,
        help="Number of fresh processes per configuration (one combination of batch, precision, ...).",
        low=1,
        group="measuring",
    )
    max_time: Duration = option(
        "20s",
        help="Longest measuring time per process. Start-up, warm-up and the rest take at most 0.9 times as long again, "
        "unless compiling takes longer.",
        above=0,
        names=("--max-seconds",),
        bare="s",
        group="measuring",
    )
    steps: int | None = option(
        None,
        help="Measure exactly this many steps, instead of until the rate is known well enough.",
        low=1,
        group="measuring",
    )
    target_width: Fraction | None = option(
        None,
        help="Stop when the 95 % interval is within this percentage of the rate; with a single repeat not before the "
        "steps are enough for an interval.",
        default="1%, or 0.5% for a comparison with another version",
        above=0,
        names=("--precision-target",),
        group="measuring",
        advanced=True,
    )
    seed: int = option(
        0,
        help="Seed for the order of the configurations and for the arrivals of the server scenario.",
        group="measuring",
        advanced=True,
    )
    out: FilePath = option(
        "runs",
        help="Folder in which the run directory is created.",
        metavar="DIR",
        names=("-o", "--output"),
        completes=("folder",),
        group="run",
    )

    def changes(self) -> dict[str, object]:
        """Lists are configurations to measure, and not settings."""
        return {name: value for name, value in super().changes().items() if not isinstance(value, tuple)}


@shared
class Compared(Benchmarked):
    """Benchmarks that can measure another version beside this one, with what they vary."""

    batch: tuple[int, ...] = option(
        (),
        help="Batch sizes per device.",
        default="the recipe's global batch, at most 32 on a CPU, 256 on an accelerator",
        low=1,
        names=BATCH_NAMES,
        group="measuring",
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
        values={"graph": "compile"},
        group="machine",
    )
    against: str | None = option(
        None,
        help="Also measure another version of Vernier, or the version and settings of an earlier benchmark, in turns "
        "with this one. A slowdown of 2 % is found in at least 95 % of cases with the defaults.",
        metavar="GIT_REF|RUN",
        completes=("run",),
        group="measuring",
    )
    tolerance: Fraction = option(
        "1%",
        help="Compared with another version, smaller differences count as equal. The exit code is 1 if this version is "
        "slower.",
        above=0,
        group="measuring",
        advanced=True,
    )
    memory_limit: float | None = option(
        None,
        help="Largest memory per configuration.",
        default="nine tenths of the free memory on a CPU",
        above=0,
        unit="GiB",
        metavar="GIB",
        group="measuring",
        advanced=True,
    )
    raport: FilePath | None = option(
        None,
        help="Also write NVIDIA's raport.json (2019) to this file; of several configurations each gets one, named "
        "after the configuration.",
        metavar="FILE",
        completes=("file",),
        group="output",
        advanced=True,
    )
    dllogger: FilePath | None = option(
        None,
        help="Also write NVIDIA's DLLogger lines (since 2020) to this file, in the same way.",
        metavar="FILE",
        completes=("file",),
        group="output",
        advanced=True,
    )


@request("bench train")
class BenchTrain(Compared):
    """Measure training throughput: images per second, data loading included, with a 95 % interval, and step phases.

    Several values give several configurations. Every repeat is a fresh process; configurations take turns in random
    order. If a recipe's images grow during training, the last size is measured.

    Examples:
        vernier bench train resnet50 --batch 1,2,4,8,16,32,64,128,256
        vernier bench train --batch 32 --precision fp32,bf16 --mode eager,compile
        vernier bench train --batch 32 --against HEAD~1
    """

    procs: tuple[str, ...] = option(
        (), help=LAYOUTS, default="1", metavar="N,N,...", sets="machine.procs", names=PROCS_NAMES, group="machine"
    )


@request("bench infer")
class BenchInfer(Compared):
    """Measure inference: throughput by batch, latency percentiles, or latency under random arrivals.

    offline: batches from the loader, as fast as possible. single-stream: one batch at a time, already in memory; its
    time is the latency. server: single images arrive at random (Poisson); latency counts from the planned arrival.

    A run and an exported file are measured with their own weights and settings. An ONNX file is run by onnxruntime, a
    .pt2 file by torch.export; images are random pixels unless data is given.

    Examples:
        vernier bench infer resnet50 --batch 1,8,32
        vernier bench infer resnet50 --batch 1,32 --engine torch,onnxruntime,openvino,auto
        vernier bench infer runs/RUN --batch 1 --scenarios single-stream
        vernier bench infer runs/RUN --batch 8 --scenarios server --loads 50%,80%
    """

    recipe: FilePath | None = argument(
        None,
        help="A built-in recipe (see `vernier recipes`), a model (see `vernier models`), a .toml file of your own, a "
        "run, or a file that `vernier export` wrote.",
        default="shapes-quick",
        metavar="[RECIPE|RUN|FILE]",
        names=("--run",),
        completes=("recipe", "model", "run", "file"),
    )
    batch: tuple[int, ...] = option(
        (),
        help="Batch sizes; in the server scenario the most images that run together.",
        default="32 on a CPU, 256 on an accelerator",
        low=1,
        names=BATCH_NAMES,
        group="measuring",
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
    scenarios: tuple[Literal["offline", "single-stream", "server"], ...] = option(
        ("offline",), help="One or more of the three scenarios.", group="measuring"
    )
    loads: tuple[Fraction, ...] = option(
        ("50%", "80%"),
        help="Server scenario: arrivals as percentages of the highest possible rate, which is measured first.",
        above=0,
        group="measuring",
        advanced=True,
    )
    arrival_rate: float | None = option(
        None,
        help="Server scenario: this many arrivals per second, instead of percentages of the highest rate.",
        above=0,
        names=("--rate",),
        group="measuring",
        advanced=True,
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
    batch: int | None = option(
        None,
        help="Batch size per device; of strong scaling: in total.",
        default="the recipe's global batch, at most 32 per CPU process, 256 per accelerator",
        low=1,
        sets="global_batch",
        names=BATCH_NAMES,
        group="measuring",
    )
    strong: bool = option(
        False, help="Keep the total batch the same, instead of the batch per device.", group="measuring"
    )
    apart: bool = option(
        False,
        help="Also measure without gradient exchange, to separate network cost from CPU contention.",
        group="measuring",
    )


@request("bench data")
class BenchData(Settings, Json):
    """Measure how fast images become training batches, prepared as a recipe says.

    All configurations use the same cores and take turns. Every image is decoded every time, as in the first epoch of a
    training run; later ones are faster if decoded images fit into memory.

    Examples:
        vernier bench data --data photos
        vernier bench data resnet50 --data photos --against compiled --workers 2
    """

    recipe: FilePath | None = argument(
        None,
        help="Prepare images as this recipe or model does.",
        default="RandomResizedCrop to 224 pixels, and flips",
        metavar="[RECIPE]",
        completes=("recipe", "model", "file"),
    )
    data: FilePath = option(
        help="What to read: an image folder, shards (also at an address) or raw.",
        names=("--dataset",),
        completes=("data", "folder"),
        group="data",
    )
    against: tuple[Literal["compiled"], ...] = option(
        (), help="Also measure machine.backend=compiled.", group="measuring"
    )
    workers: int | None = option(
        None,
        help="Number of threads.",
        default="2, as in training",
        low=1,
        sets="machine.workers",
        names=("--num-workers",),
        group="measuring",
    )
    rounds: int = option(10, help="Turns per configuration.", low=1, group="measuring")
    images: int = option(500, help="Images per turn.", low=1, group="measuring")
    image_px: int | None = option(
        None,
        help="Side of a training image.",
        default="the recipe's, or 224",
        unit="pixels",
        metavar="PIXELS",
        sets="data.image_px",
        names=("--image-size",),
        group="data",
    )
    shard_cache_gb: float | None = option(
        None,
        help="Disk space for shards of data at an address, in GB.",
        metavar="GB",
        sets="machine.shard_cache_gb",
        group="data",
        advanced=True,
    )


@request("bench arm")
class BenchArm(Request):
    """Measure one configuration of a benchmark in this process. Internal: the other benchmarks start it."""

    request: FilePath = argument(help="JSON file that says what to measure.", metavar="REQUEST")
    answer: FilePath = argument(help="JSON file to write the result to.", metavar="ANSWER")
