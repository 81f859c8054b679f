"""Options that several commands share, each declared once. A command takes them by inheriting from these classes."""

from vernier.config.settings import Engine, Mode, OnDivergence, Precision

from .declaring import Request, option, shared
from .values import Assignments, FilePath

DEVICES = "auto|cpu|cuda|hpu|mps|xpu|..."
"""For the help; packages can add devices, so any name is read, and `devices.resolve` refuses those it does not know."""


@shared
class Quiet(Request):
    """Commands that show progress."""

    quiet: bool = option(
        False, help="Print warnings, errors and the result, but no progress.", names=("-q",), group="output"
    )


@shared
class Json(Request):
    """Commands that print a result."""

    json: bool = option(
        False, help="Print one JSON document on standard output and nothing else there.", group="output", edge="shell"
    )


@shared
class OnDevice(Request):
    """Commands that compute something."""

    device: str | None = option(
        None,
        help="Kind of device to run on.",
        default="auto, the best one of this machine",
        metavar=DEVICES,
        sets="machine.device",
        values={"gpu": "cuda", "rocm": "cuda", "gaudi": "hpu"},
        group="machine",
    )


@shared
class WithPrecision(Request):
    """Commands that run a model in one precision."""

    precision: Precision | None = option(
        None,
        help="Number format the model computes in.",
        default="fp32",
        sets="machine.precision",
        names=("--precisions",),
        group="machine",
    )


@shared
class WithMode(Request):
    """Commands that execute a model in one mode."""

    mode: Mode | None = option(
        None,
        help="How the model is executed.",
        default="eager",
        sets="machine.mode",
        values={"graph": "compile"},
        names=("--modes",),
        group="machine",
    )


@shared
class InProcesses(Request):
    """Commands that run in one process or several."""

    procs: int | None = option(
        None,
        help="Number of processes, one per device.",
        default="1",
        sets="machine.procs",
        names=("--gpus", "--nproc", "--nproc-per-node"),
        group="machine",
    )


@shared
class WithWorkers(Request):
    """Commands that load images."""

    workers: int | None = option(
        None,
        help="Loader threads per process; 0: the main thread loads the images.",
        default="2",
        sets="machine.workers",
        names=("--num-workers",),
        group="machine",
        advanced=True,
    )


@shared
class WithEngine(Request):
    """Commands that run a trained model."""

    engine: Engine | None = option(
        None,
        help="What runs the model, on the CPU. Any engine but torch is first checked against torch on the images; auto "
        "measures those that are installed for a few seconds each and takes the fastest.",
        default="torch",
        sets="machine.engine",
        group="machine",
    )
    int8: bool = option(
        False,
        help="Run in INT8 instead of fp32, calibrated on some of these images (at least 30); the output shows what "
        "that costs and gains on the others. Needs the engine onnxruntime or auto.",
        sets="machine.int8",
        group="machine",
    )


@shared
class Assigned(Request):
    """Commands that start from a recipe or a run, whose settings can be changed."""

    settings: Assignments = option(
        (), help="Change any setting, such as optim.lr=0.05. Repeatable.", completes=("setting",), group="settings"
    )


@shared
class Settings(Assigned):
    """Commands whose settings of the machine can also come from a file."""

    machine: FilePath | None = option(
        None,
        help="Settings of the machine from a file: one that `vernier tune` wrote, or any .toml file with a table "
        "[machine]. Options and settings given here win over it.",
        metavar="FILE",
        completes=("file",),
        group="machine",
    )


@shared
class Divergence(Request):
    """Commands that train."""

    on_divergence: OnDivergence | None = option(
        None,
        help="What to do on NaN or Inf in loss, gradients or weights. stop: end the run; its events name the step, the "
        "process and the images. rollback: continue from the last checkpoint with half the learning rate, at most "
        "three times (limits.rollback_lr, limits.max_rollbacks).",
        default="stop",
        sets="limits.on_divergence",
        group="run",
        advanced=True,
    )
