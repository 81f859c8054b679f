"""Benchmarks: what a measuring process is asked and answers, the rows of a benchmark, and bench.json.

A request goes as JSON to `python -m vernier bench arm REQUEST ANSWER`, also of other versions (`--against`). An older
version reads the keys it knows, so keys stay; a request of a newer format is refused. Studies use the same protocol.
"""

from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from vernier.errors import ConfigError
from vernier.frozen import frozen

from .codec import decode, omitted
from .environment import DeviceInfo, Environment
from .profile import PhaseTimes
from .run import Compilation, EnergyPerImage, EngineReport, PublishedSpeed
from .statistics import Comparison, Estimate, SampleSummary
from .telemetry import Noise
from .what_ran import WhatRan

REQUEST_VERSION = 1
ConfigTree = dict[str, Any]
"""A configuration as JSON values, as `config.to_dict` writes it; another version may have other settings."""
Cell = str | int | float | None
Scaling = Literal["", "weak", "strong"]

# ------------------------------------------------------------------------------------------------------------- requests


@frozen
class Plan:
    """How long to measure: `steps` exactly, or until the rate is known to `precision`, within `max_seconds`.

    `extra_max_seconds` bounds all the rest of a process: start-up, warm-up after its first step, probes and phases.
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
class ArmRequest:
    """One arm of a benchmark, for one process. `run` gives the weights; `apart` is training without gradient exchange.

    `load_share` and `rate_per_s` belong to the server scenario: arrivals as a share of the capacity, or per second.
    `progress` is a file for what the process is doing now, `started_s` when it was started, by the monotonic clock.
    """

    what: Literal["train", "infer"]
    config: ConfigTree
    plan: Plan = field(default_factory=Plan)
    run: str | None = None
    seed: int = 0
    apart: bool = False
    scenario: str | None = None
    load_share: float | None = None
    rate_per_s: float | None = None
    memory_limit_bytes: int | None = None
    progress: Path | None = omitted()
    started_s: float | None = omitted()
    version: int = REQUEST_VERSION


@frozen
class StudyRequest:
    """One repeat of a device study, for one process pinned to `cores`, or to the accelerator with this `uuid`.

    `slowdown` is the factor of a simulated device. `pace` is a file for the first estimate of seconds per iteration.
    """

    what: Literal["study"] = "study"
    workload: str
    iterations: int
    device: str
    config: ConfigTree | None = None
    cores: tuple[int, ...] = ()
    uuid: str | None = omitted()
    slowdown: float = 1.0
    kernel_iterations: int = 0
    pace: Path | None = omitted()
    version: int = REQUEST_VERSION


@frozen
class TrialRequest:
    """One thing to try on a device (`vernier doctor --devices`): what happens is shown, nothing is measured."""

    what: Literal["trial"] = "trial"
    trial: Literal["identity", "train", "evaluate", "copies", "events"]
    config: ConfigTree
    version: int = REQUEST_VERSION


@frozen
class TurnsRequest:
    """A load that takes steps whenever it is its turn (`vernier tune`); its process stays until it is ended.

    Turns are asked for, and answered, by files in `folder`.
    """

    what: Literal["turns"] = "turns"
    work: Literal["train", "infer"]
    config: ConfigTree
    folder: Path
    turn_s: float = 0.5
    warmup_max_seconds: float = 3.0
    memory_limit_bytes: int | None = None
    version: int = REQUEST_VERSION

    @property
    def ready_file(self) -> Path:
        """Says that the load waits for its first turn."""
        return self.folder / "ready.json"

    def turn_file(self, number: int) -> Path:
        """Asks for a turn."""
        return self.folder / f"turn-{number}"

    def answer_file(self, number: int) -> Path:
        """Has what that turn measured."""
        return self.folder / f"turn-{number}.json"


def decode_request(tree: Any) -> ArmRequest | StudyRequest | TrialRequest | TurnsRequest:
    """A request from its JSON object. Raises DamagedRecord, or ConfigError for a newer format."""
    version = tree.get("version", 1) if isinstance(tree, dict) else 1
    if isinstance(version, int) and version > REQUEST_VERSION:
        raise ConfigError(
            f"This request has format {version}; this version of Vernier reads up to {REQUEST_VERSION}. "
            "Start the benchmark with the older of the two versions."
        )
    if isinstance(tree, dict) and tree.get("what") == "study":
        return decode(StudyRequest, tree)
    if isinstance(tree, dict) and tree.get("what") == "trial":
        return decode(TrialRequest, tree)
    if isinstance(tree, dict) and tree.get("what") == "turns":
        return decode(TurnsRequest, tree)
    return decode(ArmRequest, tree)


# -------------------------------------------------------------------------------------------------------------- answers


@frozen
class ArmProgress:
    """What a measuring process is doing now. `rate` is that of the steps measured so far, in images per second."""

    phase: str
    steps: int = 0
    rate: Estimate | None = None


@frozen
class ArmFailure:
    """An arm that gave no figures: it did not fit into memory, or this machine refuses it."""

    status: Literal["out-of-memory", "refused"]
    why: str


@frozen
class Ready:
    """A load that waits for its first turn: images and seconds per step, the seconds of compiling, and what it is."""

    status: Literal["ok"] = "ok"
    images_per_step: int
    step_s: float
    steps_per_turn: int
    compile_s: float = 0.0
    ran: WhatRan | None = omitted()


@frozen
class Turn:
    """What one turn measured."""

    images_per_s: float


@frozen
class TrialResult:
    """What was seen when something was tried; `devices` belong to the trial `identity`."""

    status: Literal["ok"] = "ok"
    seen: str
    devices: tuple[DeviceInfo, ...] = ()


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
class _ServingFigures:
    """Latency of single-image queries that arrived at random. `kept_up`: the queue did not grow without end."""

    latency_s: Latency
    offered_per_s: float
    capacity_per_s: float
    served_per_s: float
    mean_batch: float
    kept_up: bool


@frozen
class ServingFigures(_ServingFigures):
    """The serving figures of one process."""

    queries: int


@frozen
class WarmUpSamples:
    """Seconds of every warm-up step, and whether they had become steady."""

    step_s: tuple[float, ...] = ()
    steady: bool = False


@frozen
class Samples:
    """Every sample of one measurement, in the order taken; `split_s` are further steps, by phase."""

    step_s: tuple[float, ...]
    wait_s: tuple[float, ...] = ()
    warmup: WarmUpSamples = field(default_factory=WarmUpSamples)
    began_s: float = 0.0
    ended_s: float = 0.0
    split_s: dict[str, tuple[float, ...]] = field(default_factory=dict)
    reached_precision: bool | None = None


@frozen
class ServingSamples:
    """Latencies in order of arrival, planned arrivals, and how many queries ran together each time."""

    latency_s: tuple[float, ...]
    batches: tuple[int, ...] = ()
    planned_s: tuple[float, ...] = ()
    warmup_s: tuple[float, ...] = ()


@frozen
class MatmulSpeed:
    """The rate of large square matrix products on the device, median of `n`.

    `before` and `after` are the rates right before and right after measuring, where both were taken.
    """

    gflop_per_s: float
    size: int
    precision: str
    n: int
    before: float | None = omitted()
    after: float | None = omitted()


@frozen
class Arithmetic:
    """Arithmetic per image and second, beside what the device reaches in matrix products."""

    gflop_per_image: float
    gflop_per_s_per_device: float
    matmul: MatmulSpeed
    share_of_matmul: float


@frozen
class _Answer:
    """What every measured arm has. `process_s` is the time of the whole process, start-up included.

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
    """An arm measured step by step: training, offline or single-stream inference."""

    figures: Figures
    raw: Samples
    flops: Arithmetic | None = omitted()


@frozen
class ServingResult(_Answer):
    """An arm of the server scenario."""

    figures: ServingFigures
    raw: ServingSamples


ArmResult = StepResult | ServingResult | ArmFailure


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


@frozen
class Round:
    """One result of one arm. `order` is its number among all results."""

    arm: str
    round: int
    order: int
    result: ArmResult


# ----------------------------------------------------------------------------------------------------------------- rows


@frozen
class ArmLabels:
    """What tells arms apart; None: does not apply.

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
    load: float | None = omitted()
    side: str | None = omitted()


@frozen
class FailedRow(ArmLabels):
    """An arm without any figures."""

    arm: str
    status: str
    rounds: int = 0
    why: str | None = None


@frozen
class _MeasuredRow(ArmLabels):
    """An arm over its rounds. `crowded` says why it computes on fewer cores than others; `noise` is for people."""

    arm: str
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
    """An arm measured step by step. Figures from `speedup` on are those of a scaling benchmark, against its `base`.

    `of_apart` is the rate as a share of that of the same processes without gradient exchange. `times_fp32` is the rate
    as a multiple of that of the same arm in fp32, where both were measured.
    """

    warmup: tuple[WarmUp, ...] = ()
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


@frozen
class ServingRow(_ServingFigures, _MeasuredRow):
    """An arm of the server scenario."""


BenchRow = StepRow | ServingRow | FailedRow


@frozen
class ArmComparison(Comparison):
    """The speed of `arm` over that of `against`."""

    arm: str
    against: str


# ----------------------------------------------------------------------------------------------------------- bench.json


@frozen
class Layout:
    """How many processes, with how many threads each (None: as configured); `apart`: without gradient exchange."""

    procs: int
    threads: int | None = None
    apart: bool = False


@frozen
class BenchRequest:
    """What to measure: every combination of the lists is an arm. Batches are per device; an empty list means as set.

    `notes` say what was chosen where a flag was not given.
    """

    what: Literal["train", "infer"]
    config: ConfigTree
    batches: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    engines: tuple[str, ...] | None = omitted()
    layouts: tuple[Layout, ...] = ()
    procs: tuple[int, ...] | None = omitted()  # files from before there were layouts
    scenarios: tuple[str, ...] = ()
    loads: tuple[float, ...] = ()
    rate_per_s: float | None = None
    weights_of: str | None = None
    plan: Plan = field(default_factory=Plan)
    repeats: int = 1
    seed: int = 0
    scaling: Scaling = ""
    against: str | None = None
    tolerance: float = 0.01
    memory_limit_bytes: int | None = None
    notes: tuple[str, ...] | None = omitted()


@frozen
class BenchResult:
    """bench.json: what was asked, one row per arm, comparisons, notes, and every round with all its samples.

    `what_ran` is one line for all arms; each row has its own record. `spent_s` are the seconds of the whole benchmark
    by phase, with their `total`.
    """

    what_ran: str | None = omitted()
    method: str = ""
    config: ConfigTree = field(default_factory=dict)
    asked: BenchRequest | None = None
    rows: tuple[BenchRow, ...] = ()
    compared: tuple[ArmComparison, ...] = ()
    facts: tuple[str, ...] = ()
    spent_s: dict[str, float] | None = omitted()
    rounds: tuple[Round, ...] = ()

    @property
    def measured(self) -> tuple[StepRow | ServingRow, ...]:
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
