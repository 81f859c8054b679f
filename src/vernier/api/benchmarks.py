"""Benchmarks: the request of `vernier bench` and of `vernier.bench`, and its result as an object.

Everything is measured in `measure.bench`, in processes of its own.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args

from vernier import recipes
from vernier.config import (
    MACHINE_FILE,
    Config,
    Work,
    check_config,
    config_from_tree,
    override,
    parse_share,
    refuse_training_settings,
    setting_name,
    to_dict,
)
from vernier.config.settings import Engine, Mode, Precision
from vernier.errors import ConfigError, did_you_mean
from vernier.frozen import frozen
from vernier.models import is_detector
from vernier.models import names as network_names
from vernier.recipes import FILE_SUFFIXES
from vernier.records.bench import BenchRequest, BenchResult, BenchRow, Layout, Plan, SettingValue, TuneResult
from vernier.records.statistics import Estimate
from vernier.store import RunDir, write_atomically

from .display import frame_of_paths
from .options import Settings, StrPath, assignments, plain, to_path, usual_value
from .runs import data_frame
from .starting import limit_spinning, machine_file
from .words import Interrupted, errors_in_python_words, python_words

if TYPE_CHECKING:
    from pandas import DataFrame

    from vernier.measure.tuning.candidates import Situation

T = TypeVar("T")
Kind = Literal["train", "infer", "scaling"]
Scenario = Literal["offline", "single-stream", "server"]
SCENARIOS: tuple[str, ...] = get_args(Scenario)


# ------------------------------------------------------------------------------------------------------------ requests


@frozen
class Arms:
    """What is varied: every combination is an arm. Batches are per device; nothing: as the recipe has it."""

    batches: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    layouts: tuple[Layout, ...] = ()
    engines: tuple[str, ...] | None = None
    int8: bool = False
    """Also in INT8, in the engines that have it."""


def build_request(
    what: Literal["train", "infer"],
    recipe: str | None,
    arms: Arms,
    *,
    model: str | None = None,
    device: str | None = None,
    data: str | None = None,
    run: str | None = None,
    global_batch: int | None = None,
    strong: bool = False,
    machine: StrPath | None = None,
    settings: Sequence[str] = (),
) -> BenchRequest:
    """The request of a recipe, or of the settings of `run`, with changes. Raises ConfigError.

    Without batches the recipe's batch is taken as far as it is one for a single device, and a note says so. `strong`:
    the batch is that of all devices.
    """
    from vernier.data.sources.opening import check_source
    from vernier.measure.bench.combinations import at_final_size, default_batch

    lists = {name: value for name, value in vars(arms).items() if name != "int8"}
    request = BenchRequest(what=what, config={}, weights_of=run, **lists)
    start = recipes.load(recipe or model or recipes.DEFAULT) if run is None else _config_of(Path(run).expanduser())
    flags = {
        MACHINE_FILE: machine_file(machine, what),
        "data.source": data or start.recipe.data.source or "synthetic",
        "model.name": model,
        "machine.device": device,
        "eval.every_epochs": 0.0,
        "global_batch": global_batch,
    }
    changed = recipes.change(start, flags, settings)
    config, notes = changed.config, list(changed.notes)
    check_source(config.recipe.data.source, detector=is_detector(config.recipe.model.name))
    batch_setting = "recipe.global_batch" if what == "train" else "machine.eval_batch"
    if not request.batches and batch_setting not in changed.named:
        devices = max((each.procs for each in request.layouts), default=1) if strong else 1
        batch, note = default_batch(config, what, device_kind(config.machine.device), devices)
        config = override(config, batch_setting, batch)
        notes.append(note)
    notes += at_final_size(config)[1] if what == "train" else []
    if what == "infer":
        refuse_training_settings(settings)
        request = _with_engines(request, config, int8=arms.int8)
    return replace(request, config=to_dict(config), notes=tuple(notes) or None)


def _with_engines(request: BenchRequest, config: Config, *, int8: bool) -> BenchRequest:
    """The request with INT8 as one more precision where it was requested. Raises ConfigError for what cannot run."""
    from vernier.engine.runtimes.requirements import check_engine
    from vernier.measure.bench.combinations import INT8

    machine, int8 = config.machine, int8 or config.machine.int8
    engines = [cast("Engine", engine) for engine in request.engines or (machine.engine,)]
    precisions = request.precisions or (machine.precision,)
    for engine, mode, precision in product(engines, request.modes or (machine.mode,), precisions):
        in_int8 = int8 and (engine != "torch" or len(engines) == 1)
        check_engine(
            replace(
                machine, engine=engine, int8=in_int8, mode=cast("Mode", mode), precision=cast("Precision", precision)
            )
        )
    if int8 and config.recipe.data.source in ("synthetic", "static"):
        raise ConfigError("--int8 is calibrated on real images, and these are random pixels: give --data PATH.")
    return replace(request, precisions=(*precisions, INT8)) if int8 else request


def _config_of(path: Path) -> Config:
    """The configuration of a run, or of an exported file; of a file with random pixels, since its data may be gone."""
    if not path.is_file():
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


def as_scaling(request: BenchRequest, *, strong: bool, apart: bool = False) -> BenchRequest:
    """The request of a scaling benchmark; `apart` adds arms without gradient exchange. Raises ConfigError."""
    layouts = request.layouts
    if len({each.threads is None for each in layouts}) > 1:
        given = ",".join(f"{each.procs}x{each.threads}" if each.threads else str(each.procs) for each in layouts)
        raise ConfigError(f"--procs {given}: give threads with all of them, such as 1x1,2x1,1x2, or with none.")
    if apart:
        layouts = (*layouts, *(replace(each, apart=True) for each in layouts if each.procs > 1))
    return replace(request, layouts=layouts, scaling="strong" if strong else "weak")


def as_serving(
    request: BenchRequest, scenarios: tuple[str, ...], loads: tuple[float, ...], rate: float | None
) -> BenchRequest:
    """The request of an inference benchmark with its scenarios and arrivals. Raises ConfigError."""
    if rate is not None and rate <= 0:
        raise ConfigError(f"--rate {rate:g}: arrivals per second must be more than 0.")
    if any(not 0 < share < 10 for share in loads):
        given = ",".join(f"{share:g}" for share in loads)
        raise ConfigError(f"--loads {given}: give shares of the highest possible rate, such as 0.5,0.8.")
    return replace(request, scenarios=scenarios, loads=loads, rate_per_s=rate)


def with_plan(
    request: BenchRequest,
    *,
    repeats: int,
    steps: int | None,
    max_seconds: float,
    precision_target: str | None,
    seed: int,
    against: str | None,
    tolerance: str,
    memory_limit: float | None,
) -> BenchRequest:
    """The request with how long and how often to measure. Raises ConfigError for values out of range."""
    from vernier.measure.bench.measuring import EXTRA_LEAST_S, EXTRA_SHARE, PRECISION, PRECISION_TO_COMPARE

    for name, value in (
        ("--repeats", repeats),
        ("--steps", steps),
        ("--max-seconds", max_seconds),
        ("--memory-limit", memory_limit),
    ):
        if value is not None and value <= 0:
            raise ConfigError(f"{name} {value:g} is out of range: it must be more than 0.")
    precision = PRECISION if against is None else PRECISION_TO_COMPARE
    if precision_target is not None:
        precision = parse_share("--precision-target", precision_target)
    return replace(
        request,
        plan=Plan(
            steps=steps,
            precision=precision,
            max_seconds=max_seconds,
            warmup_max_seconds=max_seconds / 2,
            extra_max_seconds=max(EXTRA_LEAST_S, EXTRA_SHARE * max_seconds),
            alone=repeats == 1 or None,
        ),
        repeats=repeats,
        seed=seed,
        against=against,
        tolerance=parse_share("--tolerance", tolerance),
        memory_limit_bytes=None if memory_limit is None else int(memory_limit * 2**30),
    )


# -------------------------------------------------------------------------------------------------------- from Python


class Benchmark:
    """The result of a benchmark. `Benchmark(path)` opens one that was measured before.

    `path` is its run directory, `result` the record of everything that was measured, `stopped` whether Ctrl-C ended it
    early. `str` of it has tables and notes as Markdown.
    """

    @errors_in_python_words
    def __init__(self, path: StrPath) -> None:
        run = RunDir.open(to_path(path, "Benchmark()"))
        self.result: BenchResult = run.read_bench()
        self.path: Path = run.path
        self._run = run

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @property
    def stopped(self) -> bool:
        """Whether it ended before everything was measured."""
        return self._run.status().status != "finished"

    @property
    def rows(self) -> tuple[BenchRow, ...]:
        """One record per arm: its labels, figures with intervals, or why it failed."""
        return self.result.rows

    @property
    def rates(self) -> dict[str, Estimate]:
        """Images per second by arm, such as `batch=32`: value and 95 % interval (`low`, `high`).

        Of arms that failed, and of the server scenario, there is none.
        """
        return {row.arm: row.images_per_s_total for row in self.result.measured if hasattr(row, "images_per_s_total")}

    @property
    def slower(self) -> bool:
        """Whether an arm is certainly slower than the version it was compared with (`against`)."""
        return any(comparison.verdict == "slower" for comparison in self.result.compared)

    def table(self) -> list[dict[str, str]]:
        """The rows as people read them: one mapping of column to text per arm."""
        from vernier.measure.bench.table import ARM_COLUMNS, tables

        merged: dict[tuple[str | None, ...], dict[str, str]] = {}
        for row in (row for table in tables(self.rows) for row in table):  # scaling has two tables of the same arms
            merged.setdefault(tuple(row.get(label) for label in ARM_COLUMNS), {}).update(row)
        return list(merged.values())

    def to_pandas(self) -> "DataFrame":
        """`table()` as a table of pandas. Raises ConfigError without pandas."""
        return data_frame(self.table())

    def __str__(self) -> str:
        from vernier.measure.bench.table import markdown

        return python_words(markdown(self.path.name, self.result))

    def __repr__(self) -> str:
        from vernier.measure.bench.table import format_rate

        rates = ", ".join(f"{arm}: {format_rate(rate)} img/s" for arm, rate in list(self.rates.items())[:3])
        more = f" and {len(self.rates) - 3} more" if len(self.rates) > 3 else ""
        return f"Benchmark({self.path}, {rates or f'{len(self.rows)} rows'}{more})"

    def _repr_html_(self) -> str:
        return frame_of_paths(repr(self), [self.path], ("benchmarks",))


@errors_in_python_words
def bench(
    recipe: StrPath | None = None,
    kind: Kind = "train",
    *,
    model: str | None = None,
    data: StrPath | None = None,
    device: str | None = None,
    batch: int | Sequence[int] | None = None,
    precision: Precision | Sequence[Precision] | None = None,
    mode: Mode | Sequence[Mode] | None = None,
    engine: Engine | Sequence[Engine] | None = None,
    int8: bool = False,
    procs: int | str | Sequence[int | str] | None = None,
    strong: bool = False,
    apart: bool = False,
    scenarios: Scenario | Sequence[Scenario] = "offline",
    loads: float | Sequence[float] = (0.5, 0.8),
    rate: float | None = None,
    repeats: int = 5,
    steps: int | None = None,
    max_seconds: float = 20.0,
    precision_target: float | str | None = None,
    against: str | None = None,
    tolerance: float | str = "1%",
    memory_limit: float | None = None,
    seed: int = 0,
    out: StrPath = "runs",
    machine: StrPath | None = None,
    settings: Settings | None = None,
    quiet: bool = False,
) -> Benchmark:
    """Measure training, inference or scaling in fresh processes, as `vernier bench` does, and return the result.

    `recipe` is a recipe or a network; for inference also a run or an exported file. `kind` is `train`, `infer` or
    `scaling`. Lists of `batch` (per device), `precision`, `mode`, `engine` (of inference) and `procs` are measured in
    every combination. The other arguments are the flags of the commands: `strong` and `apart` for scaling, `int8`,
    `scenarios`, `loads` and `rate` for inference, and how long and how often to measure; `machine` is a file
    that `tune` wrote. Ctrl-C raises Interrupted;
    what was measured is saved. Raises ConfigError, and RunFailed where nothing could be measured.
    """
    scaling = kind == "scaling"
    if kind not in get_args(Kind):
        raise ConfigError(f"kind={kind!r} is not known. {did_you_mean(str(kind), get_args(Kind))}")
    batches = listed(batch, at_least_one)
    if scaling and (procs is None or len(batches) > 1):
        raise ConfigError("A scaling benchmark needs procs, such as [1, 2], and takes one batch.")
    named, run = _recipe_or_run(recipe, kind)
    request = build_request(
        "infer" if kind == "infer" else "train",
        named,
        Arms(
            batches=() if scaling else batches,
            precisions=listed(precision, lambda value: known("--precision", value, get_args(Precision))),
            modes=listed(mode, lambda value: known("--mode", value, get_args(Mode))),
            layouts=listed(procs, lambda value: parse_layout(str(value))),
            engines=listed(engine, lambda value: known("--engine", value, get_args(Engine))) or None,
            int8=int8,
        ),
        model=model,
        device=usual_value("device", device),
        data=None if data is None else plain(data),
        run=run,
        global_batch=batches[0] if scaling and batches else None,
        strong=strong,
        machine=machine,
        settings=assignments(settings),
    )
    if scaling:
        request = as_scaling(request, strong=strong, apart=apart)
    if kind == "infer":
        chosen = listed(scenarios, lambda value: known("--scenarios", value, SCENARIOS))
        request = as_serving(request, chosen, listed(loads, float), rate)
    request = with_plan(
        request,
        repeats=repeats,
        steps=steps,
        max_seconds=max_seconds,
        precision_target=None if precision_target is None else str(precision_target),
        seed=seed,
        against=against,
        tolerance=str(tolerance),
        memory_limit=memory_limit,
    )
    return _measure(request, to_path(out, "bench(out=...)"), quiet=quiet)


def _measure(request: BenchRequest, out: Path, *, quiet: bool) -> Benchmark:
    from vernier.measure.bench.session import run_bench
    from vernier.report.live.benchmark import LiveDisplay

    from .progress import session_console

    try:
        with LiveDisplay(session_console(quiet=quiet)) as display:
            outcome = run_bench(request, out, display)
    except KeyboardInterrupt:
        raise Interrupted("Benchmark interrupted before its first result: there was nothing to save.", None) from None
    if outcome.stopped:
        path = outcome.run.path
        raise Interrupted(f"Benchmark interrupted; Benchmark({str(path)!r}) has what was measured.", path)
    return Benchmark(outcome.run.path)


def _recipe_or_run(recipe: StrPath | None, kind: str) -> tuple[str | None, str | None]:
    """The recipe, or the run or exported file whose inference is measured; one of them is None."""
    if recipe is None:
        return None, None
    text = str(plain(recipe))
    built_in = text in recipes.BUILT_IN or text in network_names()
    has_weights = not built_in and (Path(text).is_dir() or is_model_file(Path(text)))
    return (None, text) if kind == "infer" and has_weights else (text, None)


def is_model_file(path: Path) -> bool:
    """Whether a path is a file, and not a recipe."""
    return path.is_file() and path.suffix.lower() not in FILE_SUFFIXES


# -------------------------------------------------------------------------------------------------------------- tuning


@frozen
class TuneRequest:
    """A search for the fastest settings that was asked for, checked as far as that can be done before it."""

    config: Config
    situation: "Situation"
    minutes: float
    out: Path
    notes: tuple[str, ...]
    seed: int = 0


def build_tuning(
    work: Work,
    recipe: str | None,
    *,
    model: str | None = None,
    data: str | None = None,
    device: str | None = None,
    batch: int | None = None,
    minutes: float = 10.0,
    out: StrPath = "machine.toml",
    overwrite: bool = False,
    allow_split: bool = False,
    seed: int = 0,
    settings: Sequence[str] = (),
) -> TuneRequest:
    """The request of a recipe, with everything refused that cannot work. Raises ConfigError."""
    from vernier.cores import allowed_cores
    from vernier.engine.runtimes.requirements import installed_engines
    from vernier.measure.bench.combinations import at_final_size
    from vernier.measure.tuning.candidates import Situation

    if not isinstance(minutes, int | float) or not minutes > 0:
        raise ConfigError(f"--minutes {minutes!r} is no time to measure in. Give a number above 0, such as 10.")
    path = _new_file(to_path(out, "--out"), overwrite=overwrite)
    batch = None if batch is None else at_least_one(batch)
    infer = work == "infer"
    settings = (*settings, *([f"machine.eval_batch={batch}"] if infer and batch else []))
    request = build_request(
        work,
        recipe,
        Arms(),
        model=model,
        data=data,
        device=device,
        global_batch=None if infer else batch,
        settings=settings,
    )
    config = config_from_tree(request.config)
    if not infer:
        config = at_final_size(config)[0]
        check_config(config, detector=is_detector(config.recipe.model.name))
    given = {setting_name(text.partition("=")[0].strip()) for text in settings}
    given |= {"machine.device"} if device else set()
    own = recipes.change(recipes.load(recipe or model or recipes.DEFAULT), {"model.name": model}, ()).config.recipe
    situation = Situation(
        work=work,
        device=device_kind(config.machine.device),
        cores=len(allowed_cores()),
        real_data=config.recipe.data.source not in ("synthetic", "static"),
        engines=tuple(installed_engines()),
        fixed=frozenset(name.removeprefix("machine.") for name in given if name.startswith("machine.")),
        allow_split=allow_split,
        own_batch=config.recipe.global_batch == own.global_batch,
    )
    return TuneRequest(
        config=config, situation=situation, minutes=minutes, out=path, notes=request.notes or (), seed=seed
    )


def _new_file(path: Path, *, overwrite: bool) -> Path:
    """Where the machine file will be. Raises ConfigError before anything is measured."""
    if path.suffix != ".toml":
        raise ConfigError(f"--out {path}: a machine file ends in .toml.")
    if path.exists() and not overwrite:
        raise ConfigError(f"--out {path} exists. Give another name, or --overwrite to replace it.")
    if path.is_dir():
        raise ConfigError(f"--out {path} is a folder. Give the name of a file.")
    if not path.parent.is_dir():
        raise ConfigError(f"--out {path}: there is no folder {path.parent}. Create it, or give another name.")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise ConfigError(f"--out {path} cannot be written: no permission. Give a file in a folder of your own.")
    return path


def run_tuning(request: TuneRequest, say: Callable[[str], None]) -> TuneResult:
    """Search, and write the machine file; nothing is written after Ctrl-C. Raises ConfigError, RunFailed."""
    from vernier.clock import now_s
    from vernier.measure.tuning.live import LiveStable
    from vernier.measure.tuning.results import file_text, make_result
    from vernier.measure.tuning.search import Search

    limit_spinning()
    began_s, stopped = now_s(), False
    search = Search(
        config=request.config,
        situation=request.situation,
        stable=LiveStable(request.situation.work),
        minutes=request.minutes,
        say=say,
        seed=request.seed,
    )
    try:
        search.run()
    except KeyboardInterrupt:
        stopped = True
    notes = (*request.notes, *search.notes)
    result = make_result(search, seconds=now_s() - began_s, stopped=stopped, notes=notes)
    if stopped:
        return result
    write_atomically(request.out, file_text(result, request.config, request.situation, search.ready))
    return replace(result, file=request.out)


class Tuning:
    """What a search for the fastest settings measured. `path` is the machine file, `result` the record of it all."""

    def __init__(self, result: TuneResult) -> None:
        self.result = result
        self.path: Path | None = result.file

    def __fspath__(self) -> str:
        return os.fspath(self.path or "")

    @property
    def machine(self) -> dict[str, SettingValue]:
        """The settings of the file, by name."""
        return dict(self.result.machine)

    def table(self) -> list[dict[str, str]]:
        """The settings and their values as people read them: one mapping of column to text per row."""
        from vernier.measure.tuning.results import table

        return table(self.result.settings)

    def __repr__(self) -> str:
        from vernier.measure.tuning.results import headline

        return f"Tuning({self.path}, {headline(self.result)})"


@errors_in_python_words
def tune(
    recipe: StrPath | None = None,
    kind: Work = "train",
    *,
    model: str | None = None,
    data: StrPath | None = None,
    device: str | None = None,
    batch: int | None = None,
    minutes: float = 10.0,
    out: StrPath = "machine.toml",
    overwrite: bool = False,
    allow_split: bool = False,
    seed: int = 0,
    settings: Settings | None = None,
    quiet: bool = False,
) -> Tuning:
    """Find the fastest settings of this machine for some work, as `vernier tune` does, and write a machine file.

    `train`, `finetune`, `bench`, `load` and `evaluate` take the result as `machine=`. `kind` is `train` or `infer`.
    Ctrl-C raises Interrupted, and nothing is written. Raises ConfigError, and RunFailed where nothing can be measured.
    """
    if kind not in get_args(Work):
        raise ConfigError(f"kind={kind!r} is not known. {did_you_mean(str(kind), get_args(Work))}")
    request = build_tuning(
        kind,
        None if recipe is None else str(plain(recipe)),
        model=model,
        data=None if data is None else plain(data),
        device=usual_value("device", device),
        batch=batch,
        minutes=minutes,
        out=out,
        overwrite=overwrite,
        allow_split=allow_split,
        seed=seed,
        settings=assignments(settings),
    )
    from .progress import session_console

    console = session_console(quiet=quiet)
    result = run_tuning(request, lambda line: None if quiet else console.print(line, markup=False))
    if result.stopped:
        raise Interrupted("Tuning interrupted: nothing was written.", None)
    return Tuning(result)


# -------------------------------------------------------------------------------------------------------------- values


def listed(values: object, check: Callable[[Any], T]) -> tuple[T, ...]:
    """One value or several, each checked, without duplicates; none for None."""
    if values is None:
        return ()
    several = [values] if isinstance(values, str) or not isinstance(values, Iterable) else list(values)
    return tuple(dict.fromkeys(check(value) for value in several))


def known(flag: str, value: str, choices: Sequence[str]) -> str:
    """The value, which must be one of the choices."""
    if value not in choices:
        raise ConfigError(f"{flag} {value!r}: choose from {', '.join(choices)}.")
    return value


def at_least_one(value: int) -> int:
    """A whole number of at least one."""
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"{value!r} is out of range: it must be a whole number of 1 or more.")
    return value


def parse_layout(text: str) -> Layout:
    """`4`: processes; `4x2`: with two threads each."""
    procs, times, threads = text.partition("x")
    if not procs.isdecimal() or (times and not threads.isdecimal()):
        raise ConfigError(f"--procs {text!r} is not a number of processes, such as 2, or 2x4 with four threads each.")
    return Layout(procs=at_least_one(int(procs)), threads=at_least_one(int(threads)) if times else None)
