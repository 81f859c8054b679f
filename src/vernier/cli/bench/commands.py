"""`vernier bench`: how fast training, inference and loading are here, with intervals."""

import json as jsonlib
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from vernier.cli.flags import (
    DataFlag,
    DeviceFlag,
    JsonFlag,
    OptionalFloat,
    OptionalInt,
    OptionalText,
    SetFlag,
    apply_flags,
    optional,
)
from vernier.cli.launching import joined, sigterm_as_interrupt, silence_profiler, start_processes, with_procs
from vernier.cli.output import print_json, print_rows, progress_bar, rough_duration, say
from vernier.errors import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, ConfigError

if TYPE_CHECKING:
    from vernier.config import Config
    from vernier.measure.bench.session import Ask

RecipeName = Annotated[Positional[str | None], arg(metavar="RECIPE", help_behavior_hint="(default: shapes-quick)")]
Device = DeviceFlag
Batches = Annotated[str | None, optional("N,N,...")]
Out = Annotated[str, arg(metavar="DIR")]
Target = Annotated[str, arg(metavar="SHARE")]
Against = Annotated[str | None, optional("GIT_REF|RUN")]


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """How a benchmark is measured, whatever it is of."""

    steps: OptionalInt = None
    """Measure exactly so many steps."""
    precision_target: Annotated[str | None, optional("SHARE")] = None
    """Else until the rate is known so well, to either side. Default: 1%; 0.5% with --against."""
    max_seconds: float = 20.0
    """But no longer than this in one process."""
    repeats: Annotated[int, arg(metavar="N")] = 5
    """Fresh processes for every arm."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Order of the arms, and of arrivals."""
    out: Out = "runs"
    """Folder in which the run directory is made."""


@dataclass(frozen=True, kw_only=True)
class Comparing(Measuring):
    """The same, for benchmarks that may be held against another version."""

    against: Against = None
    """Measure another version of Vernier, or what an earlier benchmark measured, in turns with this one.
    By default a slowdown of 2 % is found in 95 % of cases or more."""
    tolerance: Target = "1%"
    """With --against: smaller differences do not count. Exit code 1 when slower."""
    memory_limit: Annotated[float | None, optional("GIB")] = None
    """Memory an arm may take, in GiB; default on a CPU: nine tenths of what is free."""


def train(
    recipe: RecipeName = None,
    /,
    *,
    data: DataFlag = None,
    model: OptionalText = None,
    batches: Batches = None,
    precisions: Annotated[str | None, optional("fp32,bf16,...")] = None,
    modes: Annotated[str | None, optional("eager,compile,...")] = None,
    procs: Batches = None,
    device: Device = None,
    measuring: Comparing = Comparing(),  # noqa: B008
    settings: SetFlag = (),
    json: JsonFlag = False,
) -> int:
    """Measure training throughput: images a second, data included, with a 95 % interval; where a step's time goes.

    Several values make several arms. Every repeat is a fresh process; arms take turns in random order. Example:
    vernier bench train nvidia-resnet50-90e --data synthetic --batches 1,2,4,8,16,32,64,128,256

    Args:
        recipe: A built-in recipe or a .toml file of your own.
        data: A data set, a folder, or synthetic / static: everything but the loader. Default: the recipe's own, or synthetic.
        model: Another network than the recipe's.
        batches: Images a device and step.
        precisions: Arithmetic.
        modes: How the network is executed.
        procs: Processes, one a device.
        device: Where to run.
        measuring: How it is measured.
    """
    ask = _ask("train", recipe, data, model, device, settings, batches, precisions, modes, procs)
    return _measure(ask, measuring, json)


def infer(
    recipe: RecipeName = None,
    /,
    *,
    data: DataFlag = None,
    model: OptionalText = None,
    run: Annotated[str | None, optional("RUN")] = None,
    batches: Batches = None,
    precisions: Annotated[str | None, optional("fp32,bf16,...")] = None,
    modes: Annotated[str | None, optional("eager,compile,...")] = None,
    scenarios: Annotated[str, arg(metavar="offline,single-stream,server")] = "offline",
    loads: Annotated[str, arg(metavar="SHARE,...")] = "0.5,0.8",
    rate: OptionalFloat = None,
    device: Device = None,
    measuring: Comparing = Comparing(),  # noqa: B008
    settings: SetFlag = (),
    json: JsonFlag = False,
) -> int:
    """Measure inference: throughput by batch, latency percentiles, or latency under random arrivals.

    offline: batches from the loader, as fast as they go. single-stream: one batch at a time, already in memory; its time is
    the latency. server: single images arrive at random (Poisson) at a rate; latency counts from the planned arrival.

    Args:
        recipe: A built-in recipe or a .toml file of your own.
        data: A data set, a folder, or synthetic. Default: the recipe's own, or synthetic.
        model: Another network than the recipe's.
        run: Use the weights and settings of this run.
        batches: Images a step; server: the most that are taken together.
        precisions: Arithmetic.
        modes: How the network is executed.
        scenarios: Which of the three.
        loads: server: arrivals as shares of what was measured to be possible.
        rate: server: arrivals a second instead.
        device: Where to run.
        measuring: How it is measured.
    """
    from vernier.measure.bench.session import parsed

    if run is not None and (recipe is not None or model is not None):
        raise ConfigError("--run brings its own recipe and model: leave RECIPE and --model out.")
    ask = _ask("infer", recipe, data, model, device, settings, batches, precisions, modes, None, run)
    kinds = parsed(scenarios, str, "--scenarios")
    if unknown := set(kinds) - {"offline", "single-stream", "server"}:
        raise ConfigError(f"--scenarios {', '.join(sorted(unknown))}: known are offline, single-stream and server.")
    if rate is not None and rate <= 0:
        raise ConfigError(f"--rate {rate:g}: arrivals a second must be more than 0.")
    shares = parsed(loads, float, "--loads")
    if any(not 0 < s < 10 for s in shares):
        raise ConfigError(f"--loads {loads}: shares of what is possible, such as 0.5,0.8.")
    ask = replace(ask, scenarios=kinds, loads=shares, rate_per_s=rate)
    return _measure(ask, measuring, json)


def scaling(
    recipe: RecipeName = None,
    /,
    *,
    procs: Annotated[str, arg(metavar="N,N,...")],
    data: DataFlag = None,
    model: OptionalText = None,
    batch: OptionalInt = None,
    strong: bool = False,
    apart: bool = False,
    device: Device = None,
    precision: OptionalText = None,
    mode: OptionalText = None,
    measuring: Measuring = Measuring(),  # noqa: B008
    settings: SetFlag = (),
    json: JsonFlag = False,
) -> int:
    """Measure how training scales with processes: same batch a device (weak), or same batch in all (strong).

    Example: vernier bench scaling nvidia-resnet50-90e --data synthetic --procs 1,4,8

    Args:
        recipe: A built-in recipe or a .toml file of your own.
        procs: Processes, one a device; 2x4: two of four threads each. Efficiency is against the fewest.
        data: A data set, a folder, or synthetic. Default: the recipe's own, or synthetic.
        model: Another network than the recipe's.
        batch: Images a device and step; strong: in all.
        strong: Keep the batch over all devices the same.
        apart: Measure the same processes without the exchange of gradients too: what the machine gives, network aside.
        device: Where to run.
        precision: Arithmetic.
        mode: How the network is executed.
        measuring: How it is measured.
    """
    from vernier.config import override

    ask = _ask("train", recipe, data, model, device, settings, None, precision, mode, procs)
    if batch is not None:
        ask = replace(ask, config=override(ask.config, "global_batch", batch))
    if len({each.threads is None for each in ask.layouts}) > 1:
        raise ConfigError(f"--procs {procs}: give threads with all of them, such as 1x1,2x1,1x2, or with none.")
    if apart:
        ask = replace(
            ask, layouts=(*ask.layouts, *(replace(each, apart=True) for each in ask.layouts if each.procs > 1))
        )
    ask = replace(ask, scaling="strong" if strong else "weak")
    return _measure(ask, Comparing(**asdict(measuring)), json)


def _ask(
    what: Literal["train", "infer"], recipe: str | None, data: str | None, model: str | None, device: str | None,
    settings: tuple[str, ...], batches: str | None, precisions: str | None, modes: str | None, procs: str | None,
    run: str | None = None,
) -> "Ask":  # fmt: skip
    from vernier.cli.flags import ModeName
    from vernier.config.settings import Precision
    from vernier.measure.bench.session import Ask, layout, parsed, positive

    def chosen(text: str | None, kind: Any, flag: str) -> tuple[str, ...]:
        values = parsed(text, str, flag) if text else ()
        if unknown := [v for v in values if v not in kind.__args__]:
            raise ConfigError(f"{flag} {', '.join(unknown)}: known are {', '.join(kind.__args__)}.")
        return values

    start = _starting_config(recipe, run)
    source = data or start.recipe.data.source or "synthetic"
    flags = {"data.source": source, "model.name": model, "machine.device": device, "eval.every_epochs": 0.0}
    return Ask(
        what=what, config=apply_flags(start, flags, settings), weights_of=run,
        batches=parsed(batches, positive, "--batches") if batches else (),
        precisions=chosen(precisions, Precision, "--precisions"), modes=chosen(modes, ModeName, "--modes"),
        layouts=parsed(procs, layout, "--procs") if procs else (),
    )  # fmt: skip


def _starting_config(recipe: str | None, run: str | None) -> "Config":
    from vernier import recipes as book
    from vernier.config import Config, from_dict
    from vernier.store import RunDir

    if run is not None:
        return from_dict(Config, RunDir.open(Path(run)).read_config())
    return book.load(recipe or book.DEFAULT)


def _measure(ask: "Ask", how: Comparing, json: bool) -> int:
    from vernier.measure.bench.measuring import PRECISION, PRECISION_TO_COMPARE, Plan
    from vernier.measure.bench.session import regressed, run_bench, share

    for name, value in (
        ("--repeats", how.repeats),
        ("--steps", how.steps),
        ("--max-seconds", how.max_seconds),
        ("--memory-limit", how.memory_limit),
    ):
        if value is not None and value <= 0:
            raise ConfigError(f"{name} {value:g} is out of range: it must be more than 0.")
    usual = PRECISION if how.against is None else PRECISION_TO_COMPARE
    precision = usual if how.precision_target is None else share(how.precision_target)
    ask = replace(
        ask,
        plan=Plan(steps=how.steps, precision=precision, max_seconds=how.max_seconds),
        repeats=how.repeats,
        seed=how.seed,
        against=how.against,
        tolerance=share(how.tolerance),
        memory_limit_bytes=None if how.memory_limit is None else int(how.memory_limit * 2**30),
    )
    with progress_bar("measuring") as bar, sigterm_as_interrupt():
        run, found = run_bench(ask, Path(how.out), _Clock(how, bar))
    if json:
        print_json({"run": str(run.path), **{k: v for k, v in found.items() if k != "rounds"}})
    else:
        _show(found, str(run.path))
    if found["stopped"]:
        say("vernier: interrupted")
        return EXIT_INTERRUPTED
    return EXIT_FAILED if regressed(found) else EXIT_DONE


class _Clock:
    """Says how long a benchmark will take: at most, before it starts; as the first round went, after that."""

    def __init__(self, how: Measuring, bar: Callable[[int, int], None]) -> None:
        self._how, self._bar, self._began_s = how, bar, 0.0

    def __call__(self, done: int, total: int, rounds: int) -> None:
        from vernier.clock import now_s

        self._bar(done, total)
        if done == 0:
            self._began_s = now_s()
            each = f"at most {self._how.max_seconds:g} s" if self._how.steps is None else f"{self._how.steps} steps"
            most = "" if self._how.steps is not None else f": at most {rough_duration(total * self._how.max_seconds)}"
            say(f"{total} process(es), {each} each{most}, besides starting and warming up")
        elif done == total // rounds and done < total:
            took_s = now_s() - self._began_s
            say(
                f"round 1 of {rounds} took {rough_duration(took_s)}: about {rough_duration(took_s * (rounds - 1))} to go"
            )


def _show(found: dict[str, Any], run: str) -> None:
    from vernier.measure.bench.session import comparison_line
    from vernier.measure.bench.table import notes, tables

    for shown in tables(found["rows"]):
        print_rows(shown, False)
    for line in [*notes(found["rows"]), *found["facts"], *map(comparison_line, found["compared"])]:
        sys.stdout.write(f"- {line}\n")
    sys.stdout.write(f"run        {run}\n")


def arm(
    spec: Annotated[Positional[str], arg(metavar="SPEC")], answer: Annotated[Positional[str], arg(metavar="ANSWER")], /
) -> int:
    """One arm of a benchmark in this process: what the other actions start. Reads and writes JSON.

    Args:
        spec: What to measure.
        answer: Where the result goes.
    """
    silence_profiler()
    from vernier.config import Config, from_dict
    from vernier.engine.measured.arm import guard_memory, run_arm

    try:
        asked = jsonlib.loads(Path(spec).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"Cannot read what to measure from {spec}: {error}.") from None
    config, to_start = with_procs(from_dict(Config, asked.get("config") or {}))
    if to_start:
        return start_processes(to_start)
    guard_memory(asked.get("memory_limit_bytes"), config.machine.procs)
    with joined(config) as world:
        found = run_arm(asked, world)
        if world.first:
            Path(answer).write_text(jsonlib.dumps(found), encoding="utf-8")
    return EXIT_DONE


def data(
    *,
    data: Annotated[str, optional("PATH")],
    against: Annotated[tuple[Literal["pillow", "dali"], ...], arg(metavar="pillow|dali ...")] = (),
    workers: int = 1,
    rounds: int = 10,
    images: int = 500,
    image_px: int = 224,
    json: JsonFlag = False,
) -> int:
    """Measure how fast images become training batches (RandomResizedCrop, flip), beside other loaders on the same cores.

    Args:
        data: What to read: an image folder, shards or raw; the others read image folders only.
        against: Other loaders to take turns with.
        workers: Threads, or processes where a loader uses those.
        rounds: Turns each loader gets.
        images: Images a turn.
        image_px: Side of a training image.
    """
    from vernier.engine.measured.loading import compare, folder_contenders, report

    named, pairs = folder_contenders(Path(data), workers, against, image_px)
    found = report(compare(named, rounds=rounds, images=images), pairs)
    if json:
        print_json(found)
        return EXIT_DONE
    print_rows(found["contenders"], False)
    if found["ratios"]:
        print_rows(
            [
                {k: "unknown" if v is None else round(v, 3) if isinstance(v, float) else v for k, v in r.items()}
                for r in found["ratios"]
            ],
            False,
        )
    return EXIT_DONE


COMMANDS = {"train": train, "infer": infer, "scaling": scaling, "data": data, "arm": arm}
