"""What a study of so many devices and repeats can find, and the fewest repeats that find it.

Simulated fleets with one device that is slow by a known share are judged as `study analyze` does it (`outliers`, many
fleets at once): the power is the share of fleets in which that device is called slow for certain. A better analysis
makes a better design, and nothing is assumed about it here.
"""

import math
from dataclasses import replace

import numpy as np

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.measure.estimates import Floats, share_interval
from vernier.records.codec import omitted
from vernier.references import use

from .analysis import Table, judge_devices
from .noise import Bools, repeat_noise
from .outliers import FEWEST_DEVICES, Labels, judge, judge_few
from .variance import variance_split

ENOUGH = 0.95
"""Power that a design should have."""
FLEETS = 1000
MOST_REPEATS = 30
_FIRST_FLEETS, _MOST_MEASUREMENTS = 100, 200_000
_LARGEST_SLOWDOWN, _STEPS = 0.5, 5
_DISTURBED_BY = 0.2


@frozen
class FleetSettings:
    """Fleets to simulate. Spreads are relative standard deviations.

    `disturbed` is the fraction of repeats that something else slows down, by 20 % on average.
    """

    devices: int = 64
    per_host: int = 4
    repeats: int = 5
    spread: float = 0.006
    """Between devices."""
    noise: float = 0.008
    """Between repeats of one device."""
    disturbed: float = 0.0
    seed: int = 0


@frozen
class Power:
    """Share of simulated fleets in which the slow device was named, with its 95 % interval.

    `false_alarms`: share of fleets in which a device was named that is not slow. `certain`: share of fleets in which
    the slow device was not only named but called certainly slow, which holds for skewed fleets too.
    """

    devices: int
    repeats: int
    slower: float
    power: float
    low: float
    high: float
    false_alarms: float
    fleets: int
    certain: float | None = omitted()

    @property
    def enough(self) -> bool:
        return self.power >= ENOUGH


@frozen
class DesignAnswer:
    """The power of a design, and what would be enough.

    Devices are measured one after the other in a host, for `repeat_s` seconds per repeat. `cheapest` has the fewest
    repeats for these devices; None where not even MOST_REPEATS suffice. `smallest`: the smallest slowdown that the
    design itself finds with a power of ENOUGH; None where it finds none up to 50 %. `limit`: that of MOST_REPEATS, if
    there is no cheapest design.
    """

    proposed: Power
    cheapest: Power | None = omitted()
    smallest: float | None = omitted()
    limit: float | None = omitted()
    repeat_s: float
    per_host: int
    spread: float
    """Between normal devices, as assumed; `noise`: between repeats; `disturbed`: the fraction of disturbed repeats."""
    noise: float
    disturbed: float

    def hours(self, power: Power) -> float:
        """Hours of a study: one device of a host after the other, all hosts at the same time."""
        return power.repeats * min(self.per_host, power.devices) * self.repeat_s / 3600


def fleets_for(devices: int, repeats: int) -> int:
    """How many fleets to simulate: fewer where they are large, so that the answer comes in seconds."""
    return max(2 * _FIRST_FLEETS, min(FLEETS, _MOST_MEASUREMENTS // (devices * repeats)))


def power_of(settings: FleetSettings, slower: float, fleets: int | None = None, *, decide: bool = False) -> Power:
    """The power of a design to find one device that is slower by this share.

    With `decide` it stops as soon as the power is clearly below or above ENOUGH. `fleets` None: as `fleets_for` says.
    """
    rng, most = np.random.default_rng((settings.seed, 2)), fleets or fleets_for(settings.devices, settings.repeats)
    hits = alarms = certain = count = 0
    while count < most:
        slowness, truth = draw_fleets(settings, slower, min(_FIRST_FLEETS, most - count) if decide else most, rng)
        called, surely = called_slow(slowness, np.arange(settings.devices) // settings.per_host)
        hits, alarms = hits + int((called & truth).any(-1).sum()), alarms + int((called & ~truth).any(-1).sum())
        certain += int((surely & truth).any(-1).sum())
        count += len(truth)
        low, high = share_interval(hits, count)
        if decide and not low < ENOUGH < high:
            break
    return Power(
        devices=settings.devices,
        repeats=settings.repeats,
        slower=slower,
        power=hits / count,
        low=low,
        high=high,
        false_alarms=alarms / count,
        fleets=count,
        certain=certain / count,
    )


def draw_fleets(settings: FleetSettings, slower: float, count: int, rng: np.random.Generator) -> tuple[Floats, Bools]:
    """Logarithms of step times, fleets x devices x repeats, and which device of each fleet is the slow one."""
    shape = count, settings.devices, settings.repeats
    truth = np.arange(settings.devices) == rng.integers(settings.devices, size=(count, 1))
    own = settings.spread * rng.standard_normal(shape[:2]) + math.log1p(slower) * truth
    noise = settings.noise * rng.standard_normal(shape)
    disturbance = np.where(rng.random(shape) < settings.disturbed, np.log1p(rng.exponential(_DISTURBED_BY, shape)), 0.0)
    return own[..., None] + noise + disturbance, truth


def called_slow(slowness: Floats, hosts: Labels | None) -> tuple[Bools, Bools]:
    """Which devices `study analyze` says stand out as slow, and which are certain; fleets x devices x repeats.

    `hosts` None: not known.
    """
    if slowness.shape[1] < FEWEST_DEVICES:
        few = np.stack([judge_few(fleet).slow for fleet in slowness])
        return few, np.zeros_like(few)
    judged = judge(slowness, repeat_noise(slowness), hosts)
    return judged.slower, judged.slow


def fewest_repeats(settings: FleetSettings, slower: float) -> Power | None:
    """The design with the fewest repeats that has enough power; None where MOST_REPEATS are not enough."""
    if not power_of(replace(settings, repeats=MOST_REPEATS), slower, decide=True).enough:
        return None
    for repeats in range(2, MOST_REPEATS + 1):
        more = replace(settings, repeats=repeats)
        # With all fleets only if it is close: `decide` stops as soon as it can.
        if power_of(more, slower, decide=True).enough and (power := power_of(more, slower)).enough:
            return power
    return None


def smallest_slowdown(settings: FleetSettings) -> float | None:
    """The smallest slowdown that this design finds with enough power, to two digits."""
    if not power_of(settings, _LARGEST_SLOWDOWN, decide=True).enough:
        return None
    expected = 5 * math.hypot(settings.spread, settings.noise / math.sqrt(settings.repeats))
    low, high = max(expected / 2, 1e-5), _LARGEST_SLOWDOWN
    while 2 * low < high and not power_of(settings, 2 * low, decide=True).enough:
        low *= 2
    high = min(high, 2 * low)
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if power_of(settings, middle, decide=True).enough else (middle, high)
    return float(f"{high:.2g}")


def answer(settings: FleetSettings, slower: float, *, repeat_s: float, fleets: int | None = None) -> DesignAnswer:
    """What a design of at least 3 devices and 2 repeats can find, and which one would do."""
    cheapest = fewest_repeats(settings, slower)
    return DesignAnswer(
        proposed=power_of(settings, slower, fleets),
        cheapest=cheapest,
        smallest=smallest_slowdown(settings),
        limit=smallest_slowdown(replace(settings, repeats=MOST_REPEATS)) if cheapest is None else None,
        repeat_s=repeat_s,
        per_host=settings.per_host,
        spread=settings.spread,
        noise=settings.noise,
        disturbed=settings.disturbed,
    )


def spreads_of(table: Table) -> tuple[float, float]:
    """Relative spread between normal devices and between repeats of a pilot study.

    Devices that are certainly slow or fast are left out, and disturbed runs. Raises ConfigError for too small a pilot.
    """
    unusual = {verdict.device for verdict in judge_devices(table) if verdict.sure_slow or verdict.sure_fast}
    groups = [values for name, values in table.by_device().items() if name not in unusual]
    split = variance_split(groups)
    parts = split.undisturbed_runs or split.all_runs
    if parts is None:
        raise ConfigError(
            f"The pilot cannot tell devices from noise: {split.missing}. Give {use('spread')} and {use('noise')}."
        )
    return parts.between_devices.value / 100, parts.between_repeats.value / 100
