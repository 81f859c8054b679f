"""Benchmarks: what a measuring process is asked and answers, the rows of a benchmark, and bench.json.

A request goes as JSON to `python -m vernier bench arm REQUEST ANSWER`. Studies use the same protocol.
"""

from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from vernier.config.migrations import migrated
from vernier.frozen import frozen
from vernier.records.codec import DamagedRecord, decode, named, omitted
from vernier.records.environment import Environment
from vernier.records.profile import Noise, PhaseTimes, ProfileSummary
from vernier.records.run import Compilation, EnergyPerImage, EngineReport, PublishedSpeed
from vernier.records.statistics import Estimate, SampleSummary
from vernier.records.what_ran import WhatRan
from vernier.store import DamagedFile, RunDir, read_object

ConfigTree = dict[str, Any]
"""A configuration as JSON values, as `config.to_dict` writes it."""
Cell = str | int | float | None
Scaling = Literal["", "weak", "strong"]

# ------------------------------------------------------------------------------------------------------------- requests


@frozen
class Plan:
    """How long to measure: `steps` exactly, or until the rate is known to `precision`, within `max_seconds`.

    `extra_max_seconds` bounds all the rest of a process: start-up, warm-up after its first step, and phases.
    `alone`: no other process measures the same, so its steps must be enough for an interval of their own.
    """

    steps: int | None = None
    precision: float = 0.01
    max_seconds: float = 60.0
    warmup_max_seconds: float = 60.0
    split_steps: int = 10
    extra_max_seconds: float | None = omitted()
    alone: bool | None = omitted()


@frozen
class _Request:
    """What every measuring process is asked. `lab.launcher` fills in the last fields.

    `progress` is a file for what the process is doing now, `started_s` when it was started, by the monotonic clock.
    """

    config: ConfigTree
    memory_limit_bytes: int | None = None
    progress: Path | None = omitted()
    started_s: float | None = omitted()


@frozen
class MeasureRequest(_Request):
    """One configuration of a benchmark. `run` gives the weights; `apart` is training without gradient exchange."""

    what: Literal["train", "infer"]
    plan: Plan = field(default_factory=Plan)
    run: str | None = None
    seed: int = 0
    apart: bool = False
    scenario: str | None = None


@frozen
class StudyRequest(_Request):
    """One repeat of a device study, for one process pinned to `cores`, or to the accelerator with this `uuid`.

    `slowdown` is the factor of a simulated device.
    """

    what: Literal["study"] = "study"
    config: ConfigTree = field(default_factory=dict)
    workload: str
    iterations: int
    device: str
    cores: tuple[int, ...] = ()
    uuid: str | None = omitted()
    slowdown: float = 1.0
    kernel_iterations: int = 0


@frozen
class LiveRequest(_Request):
    """A load that measures whenever it is asked to (`vernier tune`); its process stays until it is ended.

    Measurements are asked for, and answered, by files next to `progress`.
    """

    what: Literal["live"] = "live"
    load: Literal["train", "infer"]
    measure_s: float = 0.5
    warmup_max_seconds: float = 3.0

    def file(self, name: str) -> Path:
        """The file `ready`, or that of the measurement with this number; its answer ends in `.json`."""
        assert self.progress is not None
        return self.progress.with_name(name)


@frozen
class ProfileRequest(_Request):
    """Steps `first` to `last` to profile (`vernier profile`), in a new run directory in the folder `out`."""

    what: Literal["profile"] = "profile"
    load: Literal["train", "infer"]
    first: int
    last: int
    out: Path

    @property
    def steps(self) -> int:
        """All steps: ten run after the profiled ones, to measure what the profiler itself takes."""
        return self.last + 10


Request = MeasureRequest | StudyRequest | LiveRequest | ProfileRequest
# `train` and `infer` are both a MeasureRequest, the default.
_KINDS: dict[str, type[Request]] = {each.what: each for each in (StudyRequest, LiveRequest, ProfileRequest)}


def decode_request(tree: Any) -> Request:
    """A request from its JSON object. Raises DamagedRecord."""
    what = tree.get("what", "") if isinstance(tree, dict) else ""
    return decode(_KINDS.get(what, MeasureRequest), tree)


# -------------------------------------------------------------------------------------------------------------- answers


@frozen
class MeasuringProgress:
    """What a measuring process is doing now. `rate` is that of the steps measured so far, in images per second.

    `fastest_s`: of a repeat of a study, the seconds of its fastest iteration so far.
    """

    phase: str
    steps: int = 0
    rate: Estimate | None = None
    fastest_s: float | None = omitted()


@frozen
class Failure:
    """A configuration that gave no figures: it did not fit into memory, or this machine refuses it."""

    status: Literal["out-of-memory", "refused"]
    why: str


@frozen
class Ready:
    """A load that waits to be asked: images per measurement, the seconds that one will take, and what it is."""

    images: int
    seconds: float = 0.0
    ran: WhatRan | None = omitted()


@frozen
class Measurement:
    """Number of images, and the seconds that they took."""

    images: int
    seconds: float

    @property
    def images_per_s(self) -> float:
        return self.images / self.seconds


@frozen
class ProfileResult:
    """A profile that was taken: its run directory, and the record of it."""

    status: Literal["ok"] = "ok"
    run: Path
    summary: ProfileSummary


@frozen
class WarmUp:
    """The steps before measuring. `first_step_extra_s` is how much longer the first took than a steady one."""

    steps: int
    seconds: float
    steady: bool
    first_step_s: float | None = None
    first_step_extra_s: float | None = None


@frozen
class Latency(SampleSummary):
    """A summary of latencies, and percentiles with intervals by name (`p50` ... `p99.9`)."""

    percentiles: dict[str, Estimate] = field(default_factory=dict)


@frozen
class _StepFigures:
    """Rates with intervals, step times and the data wait of steps; `latency_s` where a step is a query."""

    images_per_s_total: Estimate
    images_per_s_per_device: Estimate
    devices: int = 1
    compute_only_images_per_s_total: float
    data_wait_share: float
    verdict: str
    step_s: SampleSummary
    phases: PhaseTimes | None = None
    reached_precision: bool | None = None
    latency_s: Latency | None = omitted()


@frozen
class Figures(_StepFigures):
    """The figures of one process."""

    method: str = ""
    warmup: WarmUp


@frozen
class WarmUpSamples:
    """Seconds of every warm-up step, and whether they had become steady."""

    step_s: tuple[float, ...] = ()
    steady: bool = False


@frozen
class Samples:
    """Every sample of one measurement, in the order taken; `split_s` are further steps, by phase.

    `cpu_s`: CPU time of the measuring process, all of its threads, from `began_s` to `ended_s`.
    """

    # All of them, not their summary: later versions compare and draw them in ways that this one does not know.
    step_s: tuple[float, ...]
    wait_s: tuple[float, ...] = ()
    warmup: WarmUpSamples = field(default_factory=WarmUpSamples)
    began_s: float = 0.0
    ended_s: float = 0.0
    split_s: dict[str, tuple[float, ...]] = field(default_factory=dict)
    reached_precision: bool | None = None
    cpu_s: float | None = omitted()


@frozen
class Arithmetic:
    """Arithmetic per image, and per second of one device."""

    gflop_per_image: float
    gflop_per_s_per_device: float


@frozen
class _Answer:
    """What every measured configuration has. `process_s` is the time of the whole process, start-up included.

    `spent_s` are the seconds of each of its phases; older versions do not say.
    """

    status: Literal["ok"] = "ok"
    time: str = ""
    method: str = ""
    images_per_step: int
    energy: EnergyPerImage | None = None
    energy_missing: str | None = omitted()
    noise: Noise | None = None
    execution: str = "eager"
    compilation: Compilation = field(default_factory=Compilation)
    devices: int = 1
    peak_memory_bytes: int | None = None
    environment: Environment = field(default_factory=Environment)
    process_s: float | None = omitted()
    spent_s: dict[str, float] | None = omitted()
    engine: EngineReport | None = omitted()
    ran: WhatRan | None = omitted()


@frozen
class StepResult(_Answer):
    """A configuration measured step by step: training, offline or single-stream inference."""

    figures: Figures
    raw: Samples
    flops: Arithmetic | None = omitted()


MeasuredResult = StepResult | Failure


EXACT = "exact"
"""The workload of studies whose devices must compute the same bits."""


@frozen
class ExactResult:
    """What the steps of a repeat computed: fingerprints in order, and what must be equal for them to be comparable."""

    library: str
    fingerprints: tuple[str, ...]


@frozen
class RepeatResult:
    """One repeat of a study: seconds of every iteration, of which the first `warmup` count in no figure.

    `telemetry` and `kernels` are rows of their tables.
    """

    status: Literal["ok"] = "ok"
    time: str
    seconds: tuple[float, ...]
    train_time_s: float
    warmup: int
    notes: tuple[str, ...] = ()
    telemetry: tuple[dict[str, Cell], ...] = ()
    kernels: tuple[dict[str, Cell], ...] = ()
    exact: ExactResult | None = omitted()


@frozen
class Round:
    """One result of one configuration. `order` is its number among all results."""

    # `arm` is its name in the files of every version.
    configuration: str = named("arm")
    round: int
    order: int
    result: MeasuredResult


# ----------------------------------------------------------------------------------------------------------------- rows


@frozen
class ConfigurationLabels:
    """What tells configurations apart; None: does not apply.

    `engine` is that of inference, where one was chosen; `exchange` is "none" for processes without gradient exchange.
    """

    batch: int
    precision: str = "fp32"
    mode: str = "eager"
    engine: str | None = omitted()
    scenario: str | None = omitted()
    procs: int = 1
    threads: int | None = omitted()
    exchange: str | None = omitted()


@frozen
class FailedRow(ConfigurationLabels):
    """A configuration without any figures."""

    configuration: str = named("arm")
    status: str
    rounds: int = 0
    why: str | None = None


@frozen
class _MeasuredRow(ConfigurationLabels):
    """A configuration over its rounds. `crowded` says why it computes on fewer cores than others; `noise` is for
    people."""

    configuration: str = named("arm")
    status: Literal["ok"] = "ok"
    rounds: int = 1
    crowded: str | None = None
    compute_threads: int | None = None
    noise: tuple[str, ...] = ()
    disturbed: Noise | None = None
    method: str = ""
    peak_memory_bytes: int | None = None
    engine_report: EngineReport | None = omitted()
    ran: WhatRan | None = omitted()


@frozen
class StepRow(_StepFigures, _MeasuredRow):
    """A configuration measured step by step. Figures from `speedup` on are those of a scaling benchmark, against its
    `base`.

    `of_apart` is the rate as a share of that of the same processes without gradient exchange. `times_fp32` is the rate
    as a multiple of that of the same configuration in fp32, where both were measured. `process_images_per_s` has the
    rate of each process, `images_per_cpu_s` that per second of their own CPU time: other programs hardly change it.
    `busy` says that other programs used at least half of the machine.
    """

    warmup: tuple[WarmUp, ...] = ()
    process_images_per_s: tuple[float, ...] | None = omitted()
    images_per_cpu_s: float | None = omitted()
    busy: str | None = omitted()
    steady: bool = True
    flops: Arithmetic | None = None
    joules_per_image: float | None = None
    energy_missing: str | None = omitted()
    compile_s: float | None = None
    speedup: float | None = omitted()
    efficiency: float | None = omitted()
    efficiency_95: tuple[float, float] | None = omitted()
    scaling: Scaling | None = omitted()
    base: bool | None = omitted()
    of_apart: float | None = omitted()
    of_apart_95: tuple[float, float] | None = omitted()
    times_fp32: float | None = omitted()
    times_fp32_95: tuple[float, float] | None = omitted()
    published_speeds: tuple[PublishedSpeed, ...] | None = omitted()


BenchRow = StepRow | FailedRow


# ----------------------------------------------------------------------------------------------------------- bench.json


@frozen
class Layout:
    """How many processes, with how many threads each (None: as configured); `apart`: without gradient exchange."""

    procs: int
    threads: int | None = None
    apart: bool = False


@frozen
class BenchRequest:
    """What to measure: every combination of the lists is a configuration. Batches are per device; an empty list
    means as set.

    `notes` say what was chosen where a flag was not given. `most_repeats`: more than `repeats` are measured while the
    interval reaches too far to be of use; None: no more.
    """

    what: Literal["train", "infer"]
    config: ConfigTree
    batches: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    engines: tuple[str, ...] | None = omitted()
    layouts: tuple[Layout, ...] = ()
    scenarios: tuple[str, ...] = ()
    weights_of: str | None = None
    plan: Plan = field(default_factory=Plan)
    repeats: int = 1
    seed: int = 0
    scaling: Scaling = ""
    memory_limit_bytes: int | None = None
    notes: tuple[str, ...] | None = omitted()
    most_repeats: int | None = omitted()


@frozen
class BenchResult:
    """bench.json: what was asked, one row per configuration, notes, and every round with all its samples.

    `what_ran` is one line for all configurations; each row has its own record. `spent_s` are the seconds of the whole
    benchmark by phase, with their `total`.
    """

    what_ran: str | None = omitted()
    method: str = ""
    config: ConfigTree = field(default_factory=dict)
    asked: BenchRequest | None = None
    rows: tuple[BenchRow, ...] = ()
    facts: tuple[str, ...] = ()
    spent_s: dict[str, float] | None = omitted()
    rounds: tuple[Round, ...] = ()

    @property
    def measured(self) -> tuple[StepRow, ...]:
        """The rows that have figures."""
        return tuple(row for row in self.rows if not isinstance(row, FailedRow))


# --------------------------------------------------------------------------------------------------------- vernier tune


SettingValue = str | int | bool | None


@frozen
class TunedValue:
    """One value of a setting beside the one in use before: how many times as fast, with an interval.

    The interval holds for all values of the setting together, at every look. `rates` are images per second by round.
    """

    shown: str
    machine: dict[str, SettingValue]
    verdict: Literal["chosen", "faster", "no measurable difference", "slower", "not measured"]
    images_per_s: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    rates: tuple[float, ...] = ()
    why: str | None = omitted()


@frozen
class TunedSetting:
    """A setting and its values; `left_out` says why none was tried."""

    name: str
    before: str
    chosen: str
    values: tuple[TunedValue, ...] = ()
    rates: tuple[float, ...] = ()
    """Images per second of the value in use before, by round."""
    left_out: str | None = omitted()


@frozen
class Confirmation:
    """The chosen settings against the defaults in fresh processes, a pair per round. `ratio` is of their speeds."""

    default_rates: tuple[float, ...]
    chosen_rates: tuple[float, ...]
    ratio: float
    low: float
    high: float

    @property
    def confirmed(self) -> bool:
        """Whether the chosen settings are certainly faster."""
        return self.low > 1


@frozen
class TuneResult:
    """What `vernier tune` measured. `machine` are the settings of its file; `confirmation` is None where none ran."""

    work: Literal["train", "infer"]
    what_ran: str
    settings: tuple[TunedSetting, ...]
    confirmation: Confirmation | None
    machine: dict[str, SettingValue]
    seconds: float
    stopped: bool = False
    notes: tuple[str, ...] = ()
    file: Path | None = None


@frozen
class TuneProgress:
    """What a search has tried so far. `search` is what makes it the same one, as JSON: settings, time, versions."""

    search: str
    settings: tuple[TunedSetting, ...]
    chosen: dict[str, SettingValue]
    spent_s: float


def read_bench(path: Path, *, samples: bool = True) -> BenchResult:
    """The result of a benchmark: of its run directory, or of a copy of bench.json under another name.

    Without `samples` it has no rounds, and is read faster. Raises FileNotFoundError, DamagedFile or NewerFile.
    """
    file = RunDir(path).bench_file if path.is_dir() else path
    try:
        # Without rounds before decoding: they are nearly all of the file.
        tree = migrated("bench", read_object(file), file)
        # Queries at random times, the server scenario of versions before 0.4, have no place here any more.
        for name in ("rows", "rounds"):
            if isinstance(entries := tree.get(name), list):
                tree[name] = [each for each in entries if not _is_serving(each)]
        return decode(BenchResult, tree if samples else {**tree, "rounds": []})
    except DamagedRecord as error:
        raise DamagedFile(f"Cannot read {file}: {error}.") from None


def _is_serving(entry: Any) -> bool:
    """Whether a row or a round is of that scenario."""
    answer = entry.get("result", entry) if isinstance(entry, dict) else None
    return isinstance(answer, dict) and answer.get("method") == "vernier-serving-1"
