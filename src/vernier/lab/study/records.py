"""Variability studies: study.json, repeat.json, the analysis, a fleet's baseline, and the check against it."""

from dataclasses import field
from typing import Any, Literal

from vernier.frozen import frozen
from vernier.lab.records.bench import ExactResult
from vernier.records.codec import omitted

from .votes import Electorate

STUDY_METHOD = "vernier-study-1"
SlowOrFast = Literal["slow", "fast"]


def name_of_value(unit: str) -> str:
    """What a study measured, in words: a time per step, or a rate."""
    return "speed" if unit.endswith("/s") else "step time"


# ------------------------------------------------------------------------------------------------ the study's own files


@frozen
class StudyDevice:
    """One device. `id` identifies it for good (a UUID; host and core for a CPU), `index` is its number in the machine.

    `slowdown` is the factor by which a virtual device was slowed on purpose; None for real ones.
    """

    id: str
    index: int = 0
    name: str = ""
    host: str = ""
    slowdown: float | None = None


@frozen
class StudyMeta:
    """study.json: the experiment. `order` lists (device id, repeat) in the order of measurement."""

    workload: str
    iterations: int
    repeats: int
    devices: tuple[StudyDevice, ...]
    order: tuple[tuple[str, int], ...] = ()
    simulated: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    method: str = STUDY_METHOD


@frozen
class RepeatInfo:
    """repeat.json: which device and repeat, when, how long. The first `warmup` iterations are not in any figure."""

    device: str
    repeat: int
    warmup: int = 1
    train_time_s: float | None = None
    started: str | None = None
    notes: tuple[str, ...] = ()
    exact: ExactResult | None = omitted()


# --------------------------------------------------------------------------------------------------------- the analysis


@frozen
class RepeatCounts:
    """How many repeats the devices have."""

    least: int
    median: float
    most: int


@frozen
class Variation:
    """Variation in percent under several definitions, by name; None for fewer than two values."""

    definitions: dict[str, str]
    over_runs: dict[str, float | None]
    over_device_medians: dict[str, float | None]


@frozen
class Component:
    """A standard deviation in percent, or a share, with its 95 % interval; None with too few devices for one."""

    value: float
    low: float | None = None
    high: float | None = None


@frozen
class VarianceComponents:
    """Standard deviation between devices and between repeats of one device; the devices' share of the variance."""

    between_devices: Component
    between_repeats: Component
    share_between_devices: Component


@frozen
class VarianceSplit:
    """Variance components over all runs and without disturbed ones. `missing` says why there are none."""

    unit: str | None = omitted()
    all_runs: VarianceComponents | None = None
    undisturbed_runs: VarianceComponents | None = None
    runs_set_aside: int = 0
    missing: str | None = None


CorrelationMatrix = dict[str, dict[str, float | None]]


@frozen
class Correlations:
    """Correlations between the value, which comes first, and each sensor; None where one of the two is constant.

    The value's key is `step_time`, or `speed` for rates; in files of version 0.1 it is `perf`.
    """

    pearson: CorrelationMatrix
    spearman: CorrelationMatrix
    not_measured: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()

    @property
    def value(self) -> str:
        return next(iter(self.pearson))


@frozen
class SlowFastCounts:
    """Number of slow and of fast devices."""

    slow: int
    fast: int


@frozen
class Outliers:
    """Devices beyond Tukey's fences, those that stand out, and those of them that are certain (`rule` says how)."""

    beyond_fence: SlowFastCounts
    sure: SlowFastCounts
    rule: str
    stand_out: SlowFastCounts | None = omitted()


@frozen
class Straggler:
    """The slowest device, and how many times the median device's time synchronous training takes because of it."""

    slowest: str
    cost: float


@frozen
class StragglerCost(Straggler):
    """The straggler of all devices, the slowest single run, and the straggler that is left without the slow devices."""

    slowest_run_over_median: float
    after_pulling: Straggler


@frozen
class DeviceVerdict:
    """One device: the median of its repeats, also over the median device's (`normalised`, with 95 % interval).

    `p_slow` is the probability that a normal device would be this slow. `stands_out`: devices that differ by a normal
    law do not come so far, in 95 % of fleets. `sure_slow` and `sure_fast`: nor do those of a skewed law. `matters`: it
    differs from the median device by at least `matter_percent` of the analysis. `whole_host`, `whole_cabinet`: its host
    or cabinet is slow or fast as a whole. `disturbed_repeats` is the number of its runs that something slowed down;
    they are left out of the verdict. `fastest_run_percent`: by how much its fastest run was slower than the median
    device. Files of earlier versions have no `stands_out`, those of 0.1 nothing that follows it.
    """

    device: str
    repeats: int
    median: float
    normalised: float
    low: float | None
    high: float | None
    slower_percent: float
    beyond_fence: SlowOrFast | None
    p_slow: float
    p_fast: float
    sure_slow: bool
    sure_fast: bool
    repeat_spread_percent: float | None
    matters: bool | None = omitted()
    stands_out: SlowOrFast | None = omitted()
    whole_host: bool | None = omitted()
    whole_cabinet: bool | None = omitted()
    disturbed_repeats: int | None = omitted()
    fastest_run_percent: float | None = omitted()

    @property
    def verdict(self) -> SlowOrFast | None:
        return "slow" if self.sure_slow else "fast" if self.sure_fast else None


@frozen
class StudyAnalysis:
    """What `study analyze --json` prints. `devices` has the slowest first.

    `pull` are the devices to remove: slow for sure, and by at least `matter_percent`; None in results of version 0.1.
    """

    method: str
    workload: str
    what: str
    unit: str
    simulated: bool
    runs: int
    devices_measured: int
    repeats_per_device: RepeatCounts
    median: float
    quartiles: tuple[float, float]
    variation_percent: Variation
    variance: VarianceSplit
    correlation: Correlations
    outliers: Outliers
    straggler: StragglerCost
    pull: tuple[str, ...]
    devices: tuple[DeviceVerdict, ...]
    notes: tuple[str, ...]
    matter_percent: float | None = omitted()
    corruption: tuple[Electorate, ...] | None = omitted()

    @property
    def value_name(self) -> str:
        return name_of_value(self.unit)


# --------------------------------------------------------------------------------------------------- baseline and check


@frozen
class Inliers:
    """Mean and standard deviation of those of a set of values that are not outliers, and their number."""

    centre: float
    sd: float
    count: int

    def __post_init__(self) -> None:
        if self.sd < 0 or self.count < 1:
            raise ValueError(f"a standard deviation of {self.sd:g} over {self.count} values")


@frozen
class Baseline:
    """A fleet's normal behaviour. `speed` is of the logarithm of each device's median; its sign makes slow positive.

    `spreads` are the standard deviations of the repeats of each device, ascending. `set_aside` are the fleet's slow
    devices. `disturbed` is the fraction of runs that something slowed down, one standard error above what was seen.
    `furthest` is how far the furthest ordinary device is from the center; None if they look normally distributed.
    """

    workload: str
    what: str
    unit: str
    slow_is_high: bool
    simulated: bool
    devices: int
    runs: int
    speed: Inliers
    noise_sd: float
    spreads: tuple[float, ...]
    sensors: dict[str, Inliers] = field(default_factory=dict)
    set_aside: tuple[str, ...] = ()
    disturbed: float | None = omitted()
    furthest: float | None = omitted()
    method: str = ""

    def __post_init__(self) -> None:
        if self.noise_sd < 0 or any(spread < 0 for spread in self.spreads):
            raise ValueError("a negative standard deviation of repeats")


@frozen
class DeviceCheck:
    """Whether one device belongs to the fleet. `limit` is the slowest median accepted; `unusual` names odd sensors.

    `remarks` say what is certain but does not matter.
    """

    device: str
    accepted: bool
    repeats: int
    median: float
    limit: float
    p_slow: float
    reasons: tuple[str, ...] = ()
    unusual: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@frozen
class CheckResult:
    """What `study check --json` prints. `false_alarms` is the accepted probability of rejecting a normal machine.

    A device that is slower by less than `matter_percent` is accepted.
    """

    method: str
    accepted: bool
    unit: str
    workload: str
    simulated: bool
    false_alarms: float
    devices: tuple[DeviceCheck, ...]
    notes: tuple[str, ...] = ()
    matter_percent: float | None = None
