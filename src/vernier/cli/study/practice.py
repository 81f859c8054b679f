"""`vernier study simulate` and `design`: fleets whose truth is known, and what a design can find in them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from vernier.cli.flags import IntFlag, JsonFlag, OptionalInt, optional
from vernier.cli.output import print_result
from vernier.config.parsing import parse_share
from vernier.errors import EXIT_DONE, ConfigError
from vernier.wording import rough_duration

from .sources import Columns, Units, read_sources

if TYPE_CHECKING:
    from vernier.measure.study.design import DesignAnswer, Power
    from vernier.measure.study.simulation import Fleet

Share = Annotated[str, arg(metavar="SHARE")]
Out = Annotated[str, arg(metavar="DIR|FILE.csv", aliases=["-o"])]
DEFAULT_SPREAD, DEFAULT_NOISE, DEFAULT_DISTURBED = "0.6%", "0.8%", "3%"


def simulate(
    *,
    out: Out,
    devices: IntFlag = 64,
    per_host: IntFlag = 4,
    hosts_per_cabinet: IntFlag = 4,
    repeats: IntFlag = 5,
    iterations: IntFlag = 50,
    spread: Share = DEFAULT_SPREAD,
    host_spread: Share = "0%",
    cabinet_spread: Share = "0%",
    noise: Share = DEFAULT_NOISE,
    slow: IntFlag = 0,
    slow_by: Share = "5%",
    throttling: IntFlag = 0,
    failing_coolers: IntFlag = 0,
    drift: Share = "0%",
    disturbed: Share = DEFAULT_DISTURBED,
    missing_sensors: Share = "0%",
    seed: IntFlag = 0,
    json: JsonFlag = False,
) -> int:
    """Make a fleet whose truth is known, in the files of a study: to practise on, or to test an analysis.

    Nothing is measured, and every output of it says SIMULATED. The truth (which devices are slow, which repeats were
    disturbed) is written beside it: truth.json in the directory, or FILE.truth.json.

    Args:
        out: Directory to create; a name that ends in .csv gets one table instead, with the SC22 study's columns.
        devices: Devices of the fleet.
        per_host: Devices per host.
        hosts_per_cabinet: Hosts per cabinet.
        repeats: Repeats per device.
        iterations: Iterations per repeat.
        spread: How much normal devices differ (standard deviation of the step time).
        host_spread: How much hosts differ, beyond their devices.
        cabinet_spread: How much cabinets differ, beyond their hosts.
        noise: How much repeats of one device differ.
        slow: Devices that are slow, by --slow-by; their sensors look healthy. Which ones, the seed decides.
        slow_by: How much slower they are.
        throttling: Devices that get hot and throttle: 10 % slower, with a lower clock.
        failing_coolers: Devices whose cooler fails during the study: hotter and slower with every repeat.
        drift: How much slower everything is at the end of the study than at its beginning.
        disturbed: Share of repeats that something else slowed down.
        missing_sensors: Share of devices without sensors.
        seed: Seed: the same fleet again.

    Examples:
        vernier study simulate -o fleet --slow 2 --throttling 1 --seed 7
        vernier study simulate -o fleet.csv --devices 400 --repeats 3 --slow 5 --slow-by 3%
    """
    from vernier.measure.study.simulation import FleetSettings, simulate_fleet, write_fleet

    settings = FleetSettings(
        devices=devices,
        per_host=per_host,
        hosts_per_cabinet=hosts_per_cabinet,
        repeats=repeats,
        iterations=iterations,
        spread=_share("spread", spread),
        host_spread=_share("host-spread", host_spread),
        cabinet_spread=_share("cabinet-spread", cabinet_spread),
        noise=_share("noise", noise),
        slow=slow,
        slow_by=_share("slow-by", slow_by),
        throttling=throttling,
        failing_coolers=failing_coolers,
        drift=_share("drift", drift),
        disturbed=_share("disturbed", disturbed),
        missing_sensors=_share("missing-sensors", missing_sensors),
        seed=seed,
    )
    fleet, path = simulate_fleet(settings), Path(out).expanduser()
    truth = write_fleet(fleet, path)
    faulty = sum(device.fault != "none" for device in fleet.devices)
    result = {"study": path, "truth": truth, "devices": devices, "repeats": repeats, "faulty": faulty, "seed": seed}
    print_result(result, json, lambda _: _simulated_lines(fleet, path, truth, faulty))
    return EXIT_DONE


def _share(name: str, text: str) -> float:
    return parse_share(f"--{name}", text, allow_zero=True)


def _simulated_lines(fleet: "Fleet", path: Path, truth: Path, faulty: int) -> list[str]:
    settings = fleet.settings
    hosts = len({device.host for device in fleet.devices})
    return [
        f"{settings.devices} SIMULATED devices in {hosts} hosts x {settings.repeats} repeats in {path}; "
        f"{faulty} of them are not normal: {truth} says which",
        f"Next: vernier study analyze {path}",
    ]


def design(
    *,
    devices: IntFlag = 64,
    repeats: IntFlag = 3,
    find: Share = "3%",
    pilot: Annotated[str | None, optional("CSV|DIR")] = None,
    columns: Columns = None,
    units: Units = None,
    spread: Annotated[str | None, optional("SHARE")] = None,
    noise: Annotated[str | None, optional("SHARE")] = None,
    disturbed: Share = DEFAULT_DISTURBED,
    per_host: IntFlag = 4,
    repeat_seconds: Annotated[float, arg(metavar="SECONDS")] = 60.0,
    fleets: OptionalInt = None,
    seed: IntFlag = 0,
    json: JsonFlag = False,
) -> int:
    """Say what a study could find before it is measured: its power, and the fewest repeats that are enough.

    Simulated fleets with one slow device are analysed as `study analyze` does it; the power is the share of them in
    which that device is certainly slow. 95 % is enough.

    Args:
        devices: Devices to measure.
        repeats: Repeats per device.
        find: How much slower the device is that the study should find.
        pilot: A study of some of the devices, from which --spread and --noise are taken.
        columns: Columns of the pilot, as in `study analyze`.
        units: Units of the pilot, as in `study analyze`.
        spread: How much normal devices differ (standard deviation). Default: that of the pilot, or 0.6%.
        noise: How much repeats of one device differ. Default: that of the pilot, or 0.8%.
        disturbed: Share of repeats that something else slows down, by 20 % on average.
        per_host: Devices per host; they are measured one after the other, the hosts at the same time.
        repeat_seconds: Seconds per repeat, with its pause.
        fleets: Simulated fleets. Default: 1000, fewer for large ones.
        seed: Seed of the simulation.

    Examples:
        vernier study design --devices 64 --repeats 3 --find 3%
        vernier study design --devices 64 --find 2% --pilot runs/STUDY
    """
    from vernier.measure.study.design import answer, spreads_of
    from vernier.measure.study.simulation import FleetSettings

    if fleets is not None and fleets < 1:
        raise ConfigError(f"--fleets {fleets} is out of range: it must be 1 or more.")
    if not 0 < repeat_seconds < float("inf"):
        raise ConfigError(f"--repeat-seconds {repeat_seconds:g} must be more than 0.")
    between, within = (
        spreads_of(read_sources((pilot,), columns, units))
        if pilot is not None
        else (_share("spread", DEFAULT_SPREAD), _share("noise", DEFAULT_NOISE))
    )
    settings = FleetSettings(
        devices=devices,
        repeats=repeats,
        per_host=per_host,
        spread=between if spread is None else _share("spread", spread),
        noise=within if noise is None else _share("noise", noise),
        disturbed=_share("disturbed", disturbed),
        seed=seed,
    )
    result = answer(settings, parse_share("--find", find), repeat_s=repeat_seconds, fleets=fleets)
    source = f"from {pilot}" if pilot is not None else "assumed; --pilot STUDY takes them from your own devices"
    assumed = (
        f"assumes     normal devices differ by {100 * settings.spread:.2g} % (sd), repeats by "
        f"{100 * settings.noise:.2g} % ({source}); {100 * settings.disturbed:.2g} % of repeats disturbed"
    )
    print_result(result, json, lambda _: [assumed, *_design_lines(result)])
    return EXIT_DONE


def _in_words(power: "Power") -> str:
    low, high = 100 * power.low, 100 * power.high
    return f"{100 * power.power:.0f} % (95 % interval {low:.0f} to {high:.0f}) of {power.fleets} simulated fleets"


def _slowdown(share: float | None) -> str:
    return "no slowdown up to 50 %" if share is None else f"a device that is {100 * share:.2g} % slow or more"


def _design_lines(result: "DesignAnswer") -> list[str]:
    from vernier.measure.study.design import MOST_REPEATS

    proposed, best = result.proposed, result.cheapest
    slower = f"{100 * proposed.slower:.3g} %"
    lines = [
        f"power       {proposed.devices} devices x {proposed.repeats} repeats name a device that is {slower} slow in "
        f"{_in_words(proposed)}; they name a normal one in {100 * proposed.false_alarms:.0f} %",
        f"time        about {rough_duration(3600 * result.hours(proposed))}",
    ]
    lines.append(f"finds       in 95 % of fleets: {_slowdown(result.smallest)}")
    if best is None:
        lines.append(
            f"cheapest    none up to {MOST_REPEATS} repeats: normal devices differ too much for {slower} to stand out; "
            f"{MOST_REPEATS} repeats find {_slowdown(result.limit)}"
        )
    else:
        lines.append(
            f"cheapest    {best.devices} devices x {best.repeats} repeats: {_in_words(best)}, "
            f"about {rough_duration(3600 * result.hours(best))}"
        )
    return lines
