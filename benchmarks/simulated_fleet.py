"""Fleets whose truth is known, as tables of a study: for the example of docs/study.md, tests and virtual_devices.py.

    python benchmarks/simulated_fleet.py fleet.csv --slow 2 --throttling 1 --failing-coolers 1 --seed 7
    python benchmarks/simulated_fleet.py new.csv --devices 4 --slow 1 --seed 3

These are the files of docs/examples. The truth is written next to the table: fleet.truth.json.

A fleet has devices in hosts in cabinets. Its time of a repeat is that of a typical device times factors: of the device,
its host and cabinet, of what is wrong with it, of the noise of repeats, and of what disturbed the repeat.
`fleet_table` gives the table that `vernier.lab.study.analysis` works on. Nothing here is measured.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from vernier.frozen import frozen
from vernier.lab.reading.csv_tables import CsvRow
from vernier.lab.study.analysis import Measurement, Table
from vernier.lab.study.files import Repeat, split_host, table_texts
from vernier.lab.study.records import StudyDevice, StudyMeta
from vernier.lab.study.run import plan_order
from vernier.measure.estimates import Floats
from vernier.records.codec import encode

WORKLOAD = "simulated"
Fault = Literal["none", "slow", "throttling", "failing cooler"]
_CLOCK_MHZ, _MEMORY_MHZ, _POWER_W, _TEMPERATURE_C, _HOT_C = 1500.0, 877.0, 250.0, 55.0, 33.0
_ITERATION_SD = 0.01
_WARMUP_FACTOR = 3.0
_BEFORE_THROTTLING = 0.2
"""Share of a repeat after which a throttling device is too hot for its full clock."""
_TELEMETRY_ROWS = 10


@frozen
class FleetSettings:
    """A fleet to simulate. Spreads are relative standard deviations; counts are devices, chosen by the seed."""

    devices: int = 64
    per_host: int = 4
    hosts_per_cabinet: int = 4
    repeats: int = 5
    iterations: int = 50
    step_s: float = 0.1
    spread: float = 0.006
    """Between devices."""
    host_spread: float = 0.0
    cabinet_spread: float = 0.0
    noise: float = 0.008
    """Between repeats of one device."""
    slow: int = 0
    slow_by: float = 0.05
    throttling: int = 0
    throttling_by: float = 0.10
    failing_coolers: int = 0
    cooler_by: float = 0.08
    """By how much a device with a failing cooler is slower in the last repeat; in the first it is not."""
    disturbed: float = 0.0
    """Share of repeats that something else slowed down, by 20 % on average."""
    disturbed_by: float = 0.2
    seed: int = 0


@frozen
class DeviceTruth:
    """The truth about a device: its own factor on the step time, with its host's and cabinet's, and what is wrong.

    `slower_percent` is what the fault costs in a typical repeat. `disturbed` lists its disturbed repeats.
    """

    id: str
    host: str
    cabinet: str
    factor: float
    fault: Fault = "none"
    slower_percent: float = 0.0
    disturbed: tuple[int, ...] = ()


@frozen
class Fleet:
    """A simulated fleet: the truth, and the seconds of an iteration by device and repeat."""

    settings: FleetSettings
    devices: tuple[DeviceTruth, ...]
    order: tuple[tuple[str, int], ...]
    step_s: Floats = field(compare=False)
    fault_factors: Floats = field(compare=False)
    """Part of `step_s` that a fault causes, by device and repeat."""


class Draws(NamedTuple):
    """Random numbers of one fleet: seconds of an iteration by device and repeat, and what they are made of."""

    step_s: Floats
    own: Floats
    """Factor of each device, with its host's and cabinet's."""
    faults: list[Fault]
    fault_factors: Floats
    disturbed: npt.NDArray[np.bool_]
    order: list[tuple[str, int]]
    """Device and repeat in the order of measurement; empty unless asked for."""


def device_names(settings: FleetSettings) -> list[str]:
    """The names of the devices of a fleet: sim00, sim01, ..."""
    return [f"sim{d:0{len(str(settings.devices - 1))}d}" for d in range(settings.devices)]


def _hosts_and_cabinets(settings: FleetSettings) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    hosts = np.arange(settings.devices) // settings.per_host
    return hosts, hosts // settings.hosts_per_cabinet


def _host_names(settings: FleetSettings) -> list[str]:
    return [f"c{cabinet:03d}-{host:03d}" for host, cabinet in zip(*_hosts_and_cabinets(settings), strict=True)]


def draw_fleet(settings: FleetSettings, rng: np.random.Generator, *, with_order: bool = False) -> Draws:
    """Draw the numbers of a fleet."""
    shape, (hosts, cabinets) = (settings.devices, settings.repeats), _hosts_and_cabinets(settings)
    own = np.exp(
        settings.spread * rng.standard_normal(settings.devices)
        + settings.host_spread * rng.standard_normal(hosts[-1] + 1)[hosts]
        + settings.cabinet_spread * rng.standard_normal(cabinets[-1] + 1)[cabinets]
    )
    faults = _draw_faults(settings, rng)
    fault_factors = np.stack([_fault_factors(settings, fault) for fault in faults])
    noise = np.exp(settings.noise * rng.standard_normal(shape))
    disturbed = rng.random(shape) < settings.disturbed
    disturbance = np.where(disturbed, 1 + rng.exponential(settings.disturbed_by, shape), 1.0)
    step_s = settings.step_s * own[:, None] * fault_factors * noise * disturbance
    order: list[tuple[str, int]] = []
    if with_order:
        order = plan_order(device_names(settings), settings.repeats, int(rng.integers(2**31)))
    return Draws(step_s, own, faults, fault_factors, disturbed, order)


def simulate_fleet(settings: FleetSettings) -> Fleet:
    """A fleet; the same one for the same settings."""
    rng = np.random.default_rng(settings.seed)
    draws, hosts = draw_fleet(settings, rng, with_order=True), _host_names(settings)
    return Fleet(
        settings=settings,
        devices=tuple(
            DeviceTruth(
                id=name,
                host=hosts[d],
                cabinet=split_host(hosts[d])[0],
                factor=round(float(draws.own[d]), 6),
                fault=draws.faults[d],
                slower_percent=round(100 * (float(np.median(draws.fault_factors[d])) - 1), 4),
                disturbed=tuple(int(k) for k in np.flatnonzero(draws.disturbed[d])),
            )
            for d, name in enumerate(device_names(settings))
        ),
        order=tuple(draws.order),
        step_s=draws.step_s,
        fault_factors=draws.fault_factors,
    )


def _draw_faults(settings: FleetSettings, rng: np.random.Generator) -> list[Fault]:
    faults: list[Fault] = ["none"] * settings.devices
    counts: dict[Fault, int] = {
        "slow": settings.slow,
        "throttling": settings.throttling,
        "failing cooler": settings.failing_coolers,
    }
    wrong = [fault for fault, count in counts.items() for _ in range(count)]
    for device, fault in zip(rng.permutation(settings.devices).tolist(), wrong, strict=False):
        faults[device] = fault
    return faults


def _fault_factors(settings: FleetSettings, fault: Fault) -> Floats:
    """By repeat: a cooler that fails costs more with every repeat, the others the same in all."""
    constant = {"none": 0.0, "slow": settings.slow_by, "throttling": settings.throttling_by}
    if fault != "failing cooler":
        return np.full(settings.repeats, 1 + constant[fault])
    return 1 + settings.cooler_by * np.linspace(0, 1, settings.repeats)


def fleet_table(settings: FleetSettings, step_s: Floats) -> Table:
    """A fleet as the table that `study analyze` would read from its files."""
    named = zip(device_names(settings), _host_names(settings), step_s.tolist(), strict=True)
    rows = tuple(
        Measurement(device=name, repeat=str(k), value=value, host=host)
        for name, host, values in named
        for k, value in enumerate(values)
    )
    return Table(rows=rows, unit="s", what="median iteration", workload=WORKLOAD, simulated=True)


# --------------------------------------------------------------------------------------------------------------- files


def write_fleet(fleet: Fleet, out: Path) -> None:
    """Write the table of a fleet, as all_data.csv of a study, and its truth."""
    out.write_text(table_texts(_meta(fleet), list(_repeats(fleet)))[0], encoding="utf-8")
    tree = {"settings": encode(fleet.settings), "devices": encode(fleet.devices)}
    out.with_suffix(".truth.json").write_text(json.dumps(tree, indent=2) + "\n", encoding="utf-8")


def _meta(fleet: Fleet) -> StudyMeta:
    settings = fleet.settings
    return StudyMeta(
        workload=WORKLOAD,
        iterations=settings.iterations,
        repeats=settings.repeats,
        devices=tuple(
            StudyDevice(id=d.id, index=i % settings.per_host, name="simulated", host=d.host)
            for i, d in enumerate(fleet.devices)
        ),
        order=fleet.order,
        simulated=True,
        settings={"seed": settings.seed},
    )


def _repeats(fleet: Fleet) -> Iterator[Repeat]:
    """Every repeat with its iterations and sensors; the median of the iterations is close to the fleet's step time."""
    rng = np.random.default_rng((fleet.settings.seed, 1))
    for d, device in enumerate(fleet.devices):
        for k in range(fleet.settings.repeats):
            seconds = _iterations(fleet, device, float(fleet.step_s[d, k]), float(fleet.fault_factors[d, k]), rng)
            fault = float(fleet.fault_factors[d, k])
            telemetry = tuple(_telemetry(device, fault, float(seconds.sum()), rng))
            yield Repeat(device=device.id, repeat=k, seconds=tuple(seconds.tolist()), telemetry=telemetry)


def _iterations(fleet: Fleet, device: DeviceTruth, step_s: float, fault: float, rng: np.random.Generator) -> Floats:
    count = fleet.settings.iterations
    seconds = step_s * np.exp(_ITERATION_SD * rng.standard_normal(count))
    if device.fault == "throttling":  # until it is hot, a throttling device is as fast as the others
        seconds[: int(_BEFORE_THROTTLING * count)] /= fault
    seconds[0] *= _WARMUP_FACTOR
    return np.asarray(seconds, np.float64)


def _telemetry(device: DeviceTruth, fault: float, length_s: float, rng: np.random.Generator) -> Iterator[CsvRow]:
    """Sensors that fit the fault: heat lowers the clock and so the power; a device that is only slow looks healthy."""
    heat = 0.0 if device.fault in ("none", "slow") else min(1.0, 10 * (fault - 1))
    clock = _CLOCK_MHZ / (1.0 if heat == 0 else fault)
    for row in range(_TELEMETRY_ROWS):
        jitter: Sequence[float] = rng.standard_normal(3).tolist()
        yield {
            "seconds": round(length_s * row / _TELEMETRY_ROWS, 3),
            "clock_mhz": round(clock + 2 * jitter[0]),
            "memory_clock_mhz": _MEMORY_MHZ,
            "temperature_c": round(_TEMPERATURE_C + _HOT_C * heat + jitter[1]),
            "power_w": round(_POWER_W * (1 - 0.3 * heat) + 3 * jitter[2], 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    for name, default in (("devices", 64), ("slow", 0), ("throttling", 0), ("failing-coolers", 0), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = vars(parser.parse_args())
    out = options.pop("out")
    write_fleet(simulate_fleet(FleetSettings(**options, disturbed=0.03)), out)


if __name__ == "__main__":
    main()
