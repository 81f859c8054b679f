"""Flags that several benchmarks share, and the request they make up."""

from collections.abc import Callable
from typing import Annotated, Literal, TypeVar, get_args

from tyro.conf import arg

from vernier.api.benchmarks import Arms, at_least_one, parse_layout
from vernier.api.benchmarks import build_request as request_of_arms
from vernier.cli.flags import (
    DeviceFlag,
    IntFlag,
    MachineFlag,
    NetworkFlag,
    OptionalFile,
    OptionalInt,
    RecipeName,
    SetFlag,
    optional,
)
from vernier.config.settings import Engine, Mode, Precision
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.records.bench import BenchRequest

NumberList = Annotated[str | None, optional("N,N,...")]
BatchList = Annotated[str | None, optional("N,N,...", name="batch")]
PrecisionList = Annotated[str | None, optional("fp32,bf16,...", name="precision")]
ModeList = Annotated[str | None, optional("eager,compile,...", name="mode")]
EngineList = Annotated[str | None, optional("torch,onnxruntime,...", name="engine")]
T = TypeVar("T")


@frozen
class Measuring:
    """How long and how often to measure."""

    steps: OptionalInt = None
    """Measure exactly this many steps, instead of until the precision target."""
    precision_target: Annotated[str | None, optional("SHARE")] = None
    """Stop when the 95 % interval is within this share of the rate; with --repeats 1 not before the steps are enough
    for an interval. Default: 1%; 0.5% with --against."""
    max_seconds: float = 20.0
    """Longest measuring time per process, in seconds. Start-up, warm-up and the rest take at most 0.9 times as long
    again, unless compiling takes longer."""
    repeats: IntFlag = 5
    """Number of fresh processes per arm (one combination of batch, precision, ...)."""
    seed: IntFlag = 0
    """Seed for the order of the arms and for the arrivals of the server scenario."""
    out: Annotated[str, arg(metavar="DIR")] = "runs"
    """Folder in which the run directory is created."""


@frozen
class Comparing(Measuring):
    """How long and how often to measure, and against which other version."""

    against: Annotated[str | None, optional("GIT_REF|RUN")] = None
    """Also measure another version of Vernier, or the version and settings of an earlier benchmark, in turns with
    this one. A slowdown of 2 % is found in at least 95 % of cases with the defaults."""
    tolerance: Annotated[str, arg(metavar="SHARE")] = "1%"
    """With --against: smaller differences count as equal. The exit code is 1 when this version is slower."""
    memory_limit: Annotated[float | None, optional("GIB")] = None
    """Largest memory per arm, in GiB. Default on a CPU: nine tenths of the free memory."""
    raport: OptionalFile = None
    """Also write NVIDIA's raport.json (2019) to this file; of several arms each gets one, named after the arm."""
    dllogger: OptionalFile = None
    """Also write NVIDIA's DLLogger lines (since 2020) to this file, in the same way."""


@frozen
class Target:
    """What every benchmark of a recipe can change about it."""

    recipe: RecipeName = None
    """A built-in recipe, a network (see `vernier models`), or a .toml file of your own. `bench infer` also takes a file
    that `vernier export` wrote."""
    model: NetworkFlag = None
    """Another network than the recipe's, as published; without a recipe the same as giving its name as the recipe."""
    device: DeviceFlag = None
    """Where to run. Default: auto, the fastest kind of device here."""
    machine: MachineFlag = None
    settings: SetFlag = ()


TargetFlags = Annotated[Target, arg(name="")]
"""Without a name its flags stand among the command's own in help."""


def build_request(
    what: Literal["train", "infer"],
    target: Target,
    *,
    data: str | None,
    precisions: str | None,
    modes: str | None,
    batches: str | None = None,
    procs: str | None = None,
    run: str | None = None,
    global_batch: int | None = None,
    strong: bool = False,
    engines: str | None = None,
    int8: bool = False,
) -> BenchRequest:
    """The request of flags, of which lists are still texts with commas; see `api.benchmarks.build_request`."""
    arms = Arms(
        batches=parse_list("--batch", batches, parse_positive),
        precisions=parse_choices("--precision", precisions, get_args(Precision)),
        modes=parse_choices("--mode", modes, get_args(Mode)),
        layouts=parse_list("--procs", procs, parse_layout),
        engines=parse_choices("--engine", engines, get_args(Engine)) or None,
        int8=int8,
    )
    return request_of_arms(
        what,
        target.recipe,
        arms,
        model=target.model,
        device=target.device,
        data=data,
        run=run,
        global_batch=global_batch,
        strong=strong,
        machine=target.machine,
        settings=target.settings,
    )


def parse_list(flag: str, text: str | None, parse: Callable[[str], T]) -> tuple[T, ...]:
    """`1,2,4` as values without duplicates; none for a flag that was not given."""
    if text is None:
        return ()
    try:
        values = tuple(parse(part.strip()) for part in text.split(",") if part.strip())
    except ConfigError as error:
        raise ConfigError(f"{flag} {text}: {error}") from None
    except ValueError:
        raise ConfigError(f"{flag} takes values separated by commas, such as 1,2,4; not {text!r}.") from None
    if not values:
        raise ConfigError(f"{flag} {text!r} is empty: give values separated by commas.")
    return tuple(dict.fromkeys(values))


def parse_choices(flag: str, text: str | None, choices: tuple[str, ...]) -> tuple[str, ...]:
    """`a,b` as values, each of which must be one of the choices."""
    values = parse_list(flag, text, str)
    if unknown := [v for v in values if v not in choices]:
        raise ConfigError(f"{flag} {', '.join(unknown)}: choose from {', '.join(choices)}.")
    return values


def parse_positive(text: str) -> int:
    """A whole number of at least one."""
    return at_least_one(int(text))
