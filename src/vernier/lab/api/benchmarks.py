"""Benchmarks: what `vernier bench` and the functions `bench_train`, `bench_infer`, ... measure, and the result.

Everything is measured in `lab.bench`, in processes of its own.
"""

import json
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vernier import recipes
from vernier.api.crossing import run_in_processes
from vernier.api.display import frame
from vernier.api.functions import function
from vernier.api.runs import data_frame
from vernier.api.session import Session
from vernier.api.starting import change, count_processes, joined, sigterm_as_interrupt, silence_profiler
from vernier.api.wording import Interrupted, PythonWords, python_errors
from vernier.config import (
    Changed,
    Config,
    Limits,
    Work,
    config_from_tree,
    override,
    refuse_training_settings,
    setting_name,
    to_dict,
)
from vernier.data.sources.opening import check_source
from vernier.devices import likely_kind, resolve
from vernier.engine.inference.engines import find_engine
from vernier.engine.processes.launch import LocalRun
from vernier.errors import EXIT_DONE, EXIT_USAGE, ConfigError, RunFailed, did_you_mean
from vernier.lab.bench.configurations import INT8, at_final_size, default_batch
from vernier.lab.bench.measuring import EXTRA_LEAST_S, EXTRA_SHARE, PRECISION
from vernier.lab.bench.session import DEFAULT_REPEATS, MOST_REPEATS, Outcome, run_bench
from vernier.lab.bench.table import format_rate, markdown, whole_table
from vernier.lab.logs.exports import check_exports, write_exports
from vernier.lab.records.bench import (
    BenchRequest,
    BenchResult,
    BenchRow,
    Layout,
    Plan,
    StepRow,
    decode_request,
    read_bench,
)
from vernier.lab.records.links import LinkResult
from vernier.lab.report.progress import BenchDisplay
from vernier.lab.requests.benchmarks import (
    BenchArm,
    BenchInfer,
    BenchLink,
    Benchmarked,
    BenchScaling,
    BenchTrain,
    Target,
    Varied,
)
from vernier.models import is_detector
from vernier.models import names as model_names
from vernier.quantities import fraction, parse_duration
from vernier.records.codec import DamagedRecord, decode, encode
from vernier.records.statistics import Estimate
from vernier.references import command, given, use
from vernier.requests.values import StrPath
from vernier.signals import end_with_parent
from vernier.store import RunDir, parse_json, read_json, write_json

if TYPE_CHECKING:
    from pandas import DataFrame


# ------------------------------------------------------------------------------------------------------------ requests


def build_request(request: Benchmarked) -> BenchRequest:
    """What to measure, from a recipe or the settings of a run. Raises ConfigError for what cannot work."""
    work: Work = "infer" if isinstance(request, BenchInfer) else "train"
    layouts = tuple(dict.fromkeys(map(parse_layout, getattr(request, "procs", ()))))
    trained = _trained(request) if isinstance(request, BenchInfer) else None
    start = starting_recipe(request) if trained is None else _config_of(trained)
    changed = change(start, request, work, measured_settings(request, start))
    strong = isinstance(request, BenchScaling) and request.strong
    devices = max((each.procs for each in layouts), default=1) if strong else 1
    varies_batch = isinstance(request, Varied) and bool(request.batch)
    config, notes = with_batch(changed, work, devices, given_elsewhere=varies_batch)
    measured = BenchRequest(
        what=work,
        config=to_dict(config),
        layouts=layouts,
        weights_of=None if trained is None else str(trained),
        plan=_plan(request),
        repeats=request.repeats or DEFAULT_REPEATS,
        most_repeats=None if request.repeats else MOST_REPEATS,
        seed=request.seed,
        notes=tuple(notes) or None,
    )
    if isinstance(request, BenchScaling):
        return _as_scaling(measured, request)
    if isinstance(request, Varied):
        measured = replace(
            measured,
            batches=request.batch,
            precisions=request.precision,
            modes=request.mode,
            memory_limit_bytes=None if request.memory_limit is None else int(request.memory_limit * 2**30),
        )
    return _with_engines(measured, request, config) if isinstance(request, BenchInfer) else measured


def starting_recipe(request: Target) -> Config:
    """The recipe, the model's own settings, or those of a run without its limits, that the options change."""
    path = Path(request.recipe or "")
    if RunDir.is_run(path):
        # A limit, such as a number of steps, was that of the run, and the measurement has its own.
        return replace(_config_of(path), limits=Limits())
    return recipes.load(request.recipe or request.model or recipes.DEFAULT)


def measured_settings(request: Target, start: Config) -> dict[str, object]:
    """Settings of everything that is measured: some data, and no evaluation."""
    # Random pixels if nothing else is named: speed does not depend on what images show.
    return {"data.source": request.data or start.recipe.data.source or "synthetic", "eval.every_epochs": 0.0}


def with_batch(
    changed: Changed, work: Work, devices: int = 1, *, given_elsewhere: bool = False
) -> tuple[Config, list[str]]:
    """The configuration with a batch for so many devices, and notes. Raises ConfigError for data that is not there.

    Unless a batch is given, the recipe's is taken as far as the devices take it.
    """
    config, notes = changed.config, list(changed.notes)
    # Before a batch is chosen, for which PyTorch may be loaded: a folder that is missing is refused at once.
    check_source(config.recipe.data.source, detector=is_detector(config.recipe.model.name))
    batch_setting = "global_batch" if work == "train" else "machine.eval_batch"
    if not given_elsewhere and setting_name(batch_setting) not in changed.named:
        batch, note = default_batch(config, work, device_kind(config.machine.device), devices)
        config = override(config, batch_setting, batch)
        notes.append(note)
    return config, [*notes, *(at_final_size(config)[1] if work == "train" else ())]


def device_kind(name: str) -> str:
    """The kind of device that will be used; torch is asked only where `auto` may be an accelerator."""
    kind = likely_kind(name)
    return kind if kind != "auto" else resolve(kind).name


def parse_layout(text: str) -> Layout:
    """`4`: processes; `4x2`: with two threads each. Raises ConfigError."""
    if not re.fullmatch(r"0*[1-9]\d*(x0*[1-9]\d*)?", text, re.ASCII):
        raise ConfigError(
            f"{given('machine.procs', text)} is not a number of processes, such as 2, or 2x4 with four threads each."
        )
    procs, _, threads = text.partition("x")
    return Layout(procs=int(procs), threads=int(threads) if threads else None)


def _trained(request: BenchInfer) -> Path | None:
    """The run or exported file whose inference is measured; None for a recipe or a model."""
    name = request.recipe
    if name is None or name in recipes.names() or name in model_names():
        return None
    path = Path(name)
    if not path.is_dir() and not (path.is_file() and path.suffix.lower() not in recipes.FILE_SUFFIXES):
        return None
    if request.model is not None:
        raise ConfigError(
            f"{given('recipe', name)} has its own recipe and model: leave out {given('model', request.model)}."
        )
    return path


def _config_of(path: Path) -> Config:
    """The configuration of a run, or of an exported file; of a file with random pixels, since its data may be gone."""
    if not path.is_file():
        return config_from_tree(RunDir.open(path).read_config())
    from vernier.engine.inference.model_file import read_description
    from vernier.engine.inference.trained import config_of_file

    about = read_description(path)
    if about is None:
        raise ConfigError(
            f"{path} does not say which model it holds; only files that {command('export')} wrote do. Speed does not "
            f"depend on weights: measure the model by its name, such as {command('bench infer', 'resnet50')}."
        )
    return override(config_of_file(about, path), "data.source", "")


def _with_engines(measured: BenchRequest, request: BenchInfer, config: Config) -> BenchRequest:
    """Scenarios and engines, with INT8 as one more precision if it was requested. Raises ConfigError."""
    refuse_training_settings(request.settings)
    machine, int8 = config.machine, request.int8 or config.machine.int8
    engines = request.engine or (machine.engine,)
    precisions = request.precision or (machine.precision,)
    # All combinations now: the processes that measure would refuse them one after the other.
    for engine, mode, precision in product(engines, request.mode or (machine.mode,), precisions):
        # Next to others torch is measured in fp32; alone it is refused, with the reason.
        in_int8 = int8 and (engine != "torch" or len(engines) == 1)
        find_engine(replace(machine, engine=engine, int8=in_int8, mode=mode, precision=precision))
    if int8 and config.recipe.data.source in ("synthetic", "static"):
        raise ConfigError(
            f"{given('machine.int8', True)} is calibrated on real images, and these are random pixels. Add "
            f"{use('data.source', slot='PATH')}."
        )
    return replace(
        measured,
        engines=request.engine or None,
        precisions=(*precisions, INT8) if int8 else measured.precisions,
        scenarios=request.scenarios,
    )


def _as_scaling(measured: BenchRequest, request: BenchScaling) -> BenchRequest:
    layouts = measured.layouts
    if len({each.threads is None for each in layouts}) > 1:
        raise ConfigError(
            f"{given('machine.procs', request.procs)}: give threads with all of them, such as 1x1,2x1,1x2, or with "
            "none."
        )
    if request.apart:
        layouts = (*layouts, *(replace(each, apart=True) for each in layouts if each.procs > 1))
    return replace(measured, layouts=layouts, scaling="strong" if request.strong else "weak")


def _plan(request: Benchmarked) -> Plan:
    """How long each process measures."""
    width, max_seconds = request.target_width, parse_duration(request.max_time)
    return Plan(
        steps=request.steps,
        precision=PRECISION if width is None else fraction(width),
        max_seconds=max_seconds,
        warmup_max_seconds=max_seconds / 2,
        extra_max_seconds=max(EXTRA_LEAST_S, EXTRA_SHARE * max_seconds),
        # A single process has no others from which an interval could follow.
        alone=request.repeats == 1 or None,
    )


# ----------------------------------------------------------------------------------------------------------- measuring


def measure(request: Benchmarked, session: Session) -> "Outcome":
    """Measure, and write the logs that were asked for. Ctrl-C and SIGTERM end it early with what there is.

    Raises ConfigError, RunFailed if nothing could be measured, and KeyboardInterrupt before the first result.
    """
    exports = {"raport": request.raport, "dllogger": request.dllogger} if isinstance(request, Varied) else {}
    # Before anything is measured: a file that exists must not cost the whole benchmark.
    check_exports(exports)
    measured = build_request(request)
    with BenchDisplay(session) as display, sigterm_as_interrupt():
        outcome = run_bench(measured, Path(request.out), display)
    if not outcome.stopped:
        session.say(*(f"written    {path}" for path in write_exports(outcome.run.path, exports)))
    return outcome


def measure_link(request: BenchLink, session: Session) -> "LinkResult | LocalRun | None":
    """Measure the links between the processes of this run, or how local ones ended that did; None in all processes but
    the first. Raises ConfigError."""
    config, to_start = count_processes(change(Config(), request, "train").config)
    if to_start:
        return run_in_processes(request, session, to_start)
    with joined(config, quiet=session.quiet) as world:
        from vernier.lab.measured.links import measure_links

        result = measure_links(world, resolve(config.machine.device), request.sizes_kib, request.repeats)
        if world.first and request.out is not None:
            write_json(Path(request.out), encode(result))
        return result if world.first else None


def measure_here(request: BenchArm, session: Session) -> int:
    """Measure what another process of Vernier asks for; the exit code. Raises ConfigError."""
    silence_profiler()
    from vernier.lab.measured.process import guard_memory, run_request

    try:
        measurement = decode_request(read_json(Path(request.request)))
    except (OSError, ValueError, DamagedRecord) as error:
        raise ConfigError(f"Cannot read what to measure from {request.request}: {error}.") from None
    end_with_parent()
    config, to_start = count_processes(config_from_tree(measurement.config))
    if to_start:
        return run_in_processes(request, session, to_start).code
    guard_memory(measurement.memory_limit_bytes, config.machine.procs)
    with joined(config) as world:
        result = run_request(measurement, world)
        if world.first:
            Path(request.answer).write_text(json.dumps(encode(result)), encoding="utf-8")
    return EXIT_DONE


# -------------------------------------------------------------------------------------------------------- from Python


class Benchmark:
    """The result of a benchmark. `Benchmark(path)` opens one that was measured before.

    `path` is its run directory, `result` the record of everything that was measured, `stopped` whether Ctrl-C ended it
    early. `str` of it has tables and notes as Markdown.
    """

    @python_errors
    def __init__(self, path: StrPath) -> None:
        run = RunDir.open(Path(path).expanduser())
        if not run.is_bench:
            raise ConfigError(f"{run.path} is not a benchmark: it has no bench.json.")
        self.result: BenchResult = read_bench(run.path)
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
        """One record per configuration: its labels, figures with intervals, or why it failed."""
        return self.result.rows

    @property
    def rates(self) -> dict[str, Estimate]:
        """Images per second by configuration, such as `batch=32`: value and 95 % interval (`low`, `high`).

        Of configurations that failed there is none.
        """
        return {row.configuration: row.images_per_s_total for row in self.rows if isinstance(row, StepRow)}

    def table(self) -> list[dict[str, str]]:
        """The rows as people read them: one mapping of column to text per configuration."""
        return whole_table(self.rows)

    def to_pandas(self) -> "DataFrame":
        """`table()` as a table of pandas. Raises ConfigError without pandas."""
        return data_frame(self.table())

    def __str__(self) -> str:
        return PythonWords(BenchTrain).word(markdown(self.path.name, self.result))

    def __repr__(self) -> str:
        rates = ", ".join(f"{name}: {format_rate(rate)} img/s" for name, rate in list(self.rates.items())[:3])
        more = f" and {len(self.rates) - 3} more" if len(self.rates) > 3 else ""
        return f"Benchmark({self.path}, {rates or f'{len(self.rows)} rows'}{more})"

    def _repr_html_(self) -> str:
        return frame(repr(self), [self.path], ("benchmarks",))


def _bench(request: Benchmarked, session: Session) -> Benchmark:
    try:
        outcome = measure(request, session)
    except KeyboardInterrupt:
        raise Interrupted("Benchmark interrupted before its first result: there was nothing to save.", None) from None
    path = outcome.run.path
    if outcome.stopped:
        raise Interrupted(f"Benchmark interrupted; Benchmark({str(path)!r}) has what was measured.", path)
    return Benchmark(path)


def _bench_link(request: BenchLink, session: Session) -> LinkResult:
    result = measure_link(request, session)
    if isinstance(result, LocalRun):
        if result.code != EXIT_DONE:
            raise (ConfigError if result.code == EXIT_USAGE else RunFailed)(result.reason)
        return decode(LinkResult, parse_json(result.output))
    assert result is not None  # Python is the first process
    return result


bench_link = function(BenchLink, _bench_link, "bench_link")
bench_train = function(BenchTrain, _bench, "bench_train")
bench_infer = function(BenchInfer, _bench, "bench_infer")
bench_scaling = function(BenchScaling, _bench, "bench_scaling")


def bench(recipe: StrPath | None = None, kind: str = "train", **options: Any) -> Benchmark:
    """The old name of `bench_train`, `bench_infer` and `bench_scaling`; it stops working in 0.5."""
    kinds = {"train": bench_train, "infer": bench_infer, "scaling": bench_scaling}
    new_names = {"precision_target": "target_width"}
    renamed = {new_names.get(name, name): value for name, value in options.items()}
    result: Benchmark = called_by_old_name("bench", kinds, kind, recipe, renamed)
    return result


def called_by_old_name(
    name: str, kinds: Mapping[str, Any], kind: str, recipe: StrPath | None, options: Mapping[str, object]
) -> Any:
    """Call the function of this kind, with a warning about its new name. Raises ConfigError for an unknown kind."""
    if kind not in kinds:
        raise ConfigError(f"kind={kind!r} is not known. {did_you_mean(str(kind), kinds)}")
    note = f"v.{name}(x, {kind!r}) is v.{name}_{kind}(x) now; the old name stops working in 0.5"
    warnings.warn(note, FutureWarning, stacklevel=3)
    return kinds[kind](recipe, **options)
