"""Flags that several benchmarks share, and the request they make up."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_args

from tyro.conf import arg

from vernier.cli.flags import (
    DeviceFlag,
    IntFlag,
    OptionalFile,
    OptionalInt,
    OptionalText,
    RecipeName,
    SetFlag,
    optional,
)
from vernier.config import Config, config_from_tree, override, to_dict
from vernier.config.settings import Mode, Precision
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.models import is_detector
from vernier.records.bench import BenchRequest, Layout

NumberList = Annotated[str | None, optional("N,N,...")]
BatchList = Annotated[str | None, optional("N,N,...", name="batch")]
PrecisionList = Annotated[str | None, optional("fp32,bf16,...", name="precision")]
ModeList = Annotated[str | None, optional("eager,compile,...", name="mode")]
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
    model: OptionalText = None
    """Another network than the recipe's, as published; without a recipe the same as giving its name as the recipe."""
    device: DeviceFlag = None
    """Where to run. Default: auto, the fastest kind of device here."""
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
) -> BenchRequest:
    """The request of flags, of which lists are still texts with commas; settings are those of `run` where given.

    Without `batches` the recipe's batch is taken as far as it is one for a single device, and a note says so.
    `strong`: the batch is that of all devices.
    """
    from vernier import recipes
    from vernier.data.sources.opening import check_source
    from vernier.measure.bench.combinations import at_final_size, default_batch

    request = BenchRequest(
        what=what,
        config={},
        weights_of=run,
        batches=parse_list("--batch", batches, parse_positive),
        precisions=parse_choices("--precision", precisions, get_args(Precision)),
        modes=parse_choices("--mode", modes, get_args(Mode)),
        layouts=parse_list("--procs", procs, parse_layout),
    )
    if run is not None:
        start = _config_of(Path(run).expanduser())
    else:
        start = recipes.load(target.recipe or target.model or recipes.DEFAULT)
    flags = {
        "data.source": data or start.recipe.data.source or "synthetic",
        "model.name": target.model,
        "machine.device": target.device,
        "eval.every_epochs": 0.0,
        "global_batch": global_batch,
    }
    changed = recipes.change(start, flags, target.settings)
    config, notes = changed.config, list(changed.notes)
    check_source(config.recipe.data.source, detector=is_detector(config.recipe.model.name))
    batch_setting = "recipe.global_batch" if what == "train" else "machine.eval_batch"
    if not request.batches and batch_setting not in changed.named:
        devices = max((each.procs for each in request.layouts), default=1) if strong else 1
        batch, note = default_batch(config, what, device_kind(config.machine.device), devices)
        config = override(config, batch_setting, batch)
        notes.append(note)
    notes += at_final_size(config)[1] if what == "train" else []
    return replace(request, config=to_dict(config), notes=tuple(notes) or None)


def _config_of(path: Path) -> Config:
    """The configuration of a run, or of an exported file; of a file with random pixels, since its data may be gone."""
    if not path.is_file():
        from vernier.store import RunDir

        return config_from_tree(RunDir.open(path).read_config())
    from vernier.engine.inference.model_file import read_description
    from vernier.engine.inference.trained import config_of_file

    about = read_description(path)
    if about is None:
        raise ConfigError(
            f"{path} does not say which network it holds; only files that `vernier export` wrote do. Speed does not "
            "depend on weights: bench the network by its name, such as vernier bench infer resnet50."
        )
    return override(config_of_file(about, path), "data.source", "")


def device_kind(name: str) -> str:
    """The kind of device that will be used; torch is asked only where `auto` may be an accelerator."""
    from vernier.devices import likely_kind, resolve

    kind = likely_kind(name)
    return kind if kind != "auto" else resolve(kind).name


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
    value = int(text)
    if value < 1:
        raise ConfigError(f"{value} is out of range: it must be 1 or more.")
    return value


def parse_layout(text: str) -> Layout:
    """`4`: processes; `4x2`: with two threads each."""
    procs, times, threads = text.partition("x")
    return Layout(procs=parse_positive(procs), threads=parse_positive(threads) if times else None)
