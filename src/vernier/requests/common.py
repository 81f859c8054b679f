"""Options that several commands share, each declared once. A command takes them by inheriting from these classes."""

from vernier.config.settings import Mode, Precision

from .declaring import Request, option, shared
from .values import Assignments, FilePath

DEVICES = "auto|cpu|cuda|hpu|mps|xpu|..."
"""For the help; packages can add devices, so any name is read, and `devices.resolve` refuses those it does not know."""
PROCS_NAMES = ("--gpus", "--nproc", "--nproc-per-node")
"""Flags of other launchers for the number of processes."""


@shared
class Quiet(Request):
    """Commands that show progress."""

    quiet: bool = option(
        False, "Print warnings, errors and the result, but no progress.", names=("-q",), group="output"
    )


@shared
class Json(Request):
    """Commands that print a result."""

    json: bool = option(
        False, "Print one JSON document on standard output and nothing else there.", group="output", edge="shell"
    )


@shared
class OnDevice(Request):
    """Commands that compute something."""

    device: str | None = option(
        None,
        "Kind of device to run on.",
        default="auto, the best one of this machine",
        metavar=DEVICES,
        sets="machine.device",
    )


@shared
class WithPrecision(Request):
    """Commands that run a model in one precision."""

    precision: Precision | None = option(
        None,
        "Number format the model computes in.",
        default="fp32",
        sets="machine.precision",
        names=("--precisions",),
    )


@shared
class WithMode(Request):
    """Commands that execute a model in one mode."""

    mode: Mode | None = option(
        None,
        "How the model is executed.",
        default="eager",
        sets="machine.mode",
        names=("--modes",),
    )


@shared
class InProcesses(Request):
    """Commands that run in one process or several."""

    procs: int | None = option(
        None,
        "Number of processes, one per device.",
        default="1",
        sets="machine.procs",
        names=PROCS_NAMES,
    )


@shared
class WithWorkers(Request):
    """Commands that load images."""

    workers: int | None = option(
        None,
        "Loader threads per process; 0: the main thread loads the images.",
        default="2 with a CPU, otherwise by cores and cost of decoding",
        sets="machine.workers",
        names=("--num-workers",),
        advanced=True,
    )


@shared
class Assigned(Request):
    """Commands that start from a recipe or a run, whose settings can be changed."""

    settings: Assignments = option((), "Change any setting, such as optim.lr=0.05. Repeatable.", group="settings")


@shared
class Settings(Assigned):
    """Commands whose settings of the machine can also come from a file."""

    machine: FilePath | None = option(
        None,
        "Settings of the machine from a file: one that `vernier tune` wrote, or any .toml file with a table "
        "[machine]. Options and settings given here win over it.",
        metavar="FILE",
        group="machine",
    )
