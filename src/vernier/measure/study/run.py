"""Collecting a variability study: every device of a machine, several repeats each, in random order, cooled down in between.

A repeat is a process of its own that is pinned to its device. What it measures is in `engine.study_repeat`; the files are
`study_files`'. What was finished stays when the rest is killed.
"""

import platform
import random
import re
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from vernier.clock import now_s
from vernier.cores import allowed_cores
from vernier.errors import ConfigError, RunFailed
from vernier.measure.bench.arms import Arm, run_in_process
from vernier.measure.study.files import Repeat, StudyDevice, StudyDir, StudyMeta
from vernier.measure.telemetry.sensors import open_sensors
from vernier.records.environment import DeviceInfo

WORKLOADS = ("resnet50", "sgemm", "bandwidth", "shapes")
COOL_MARGIN_C, COOL_POLL_S, COOL_MAX_S = 1.0, 5.0, 100.0
VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "hpu": "HABANA_VISIBLE_MODULES", "xpu": "ZE_AFFINITY_MASK"}


@dataclass(frozen=True, kw_only=True)
class Target:
    """A device to measure and how a process gets hold of it: CPU cores to be pinned to, or variables to be set."""

    device: StudyDevice
    cores: tuple[int, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StudyAsk:
    """The experiment."""

    workload: str = "resnet50"
    iterations: int = 500
    repeats: int = 5
    batch: int = 64
    device: str = "auto"
    per: Literal["core", "socket"] = "core"
    virtual: int = 0
    slow: tuple[tuple[int, float], ...] = ()
    pause_s: float = 5.0
    seed: int = 0
    kernel_iterations: int = 3
    config: dict[str, Any] | None = None
    """What is trained, for the workloads that train."""


# -------------------------------------------------------------------------------------------------------------- devices


def targets(ask: StudyAsk, kind: str, identity: Sequence[DeviceInfo]) -> list[Target]:
    """What is measured: accelerators by UUID, CPU cores or sockets, or virtual devices on the cores there are."""
    found = _cpu_targets(ask.per, identity) if kind == "cpu" else _accelerators(kind, identity)
    if not ask.virtual:
        if ask.slow:
            raise ConfigError("--slow is for virtual devices: give --virtual N too.")
        return found
    factors = dict(ask.slow)
    if bad := [i for i in factors if not 0 <= i < ask.virtual]:
        raise ConfigError(f"--slow names device {bad[0]}, but --virtual {ask.virtual} has 0 to {ask.virtual - 1}.")
    return [_virtual(i, factors.get(i, 1.0), found[i % len(found)]) for i in range(ask.virtual)]


def _virtual(index: int, factor: float, real: Target) -> Target:
    device = StudyDevice(
        id=f"simulated-{index:03d}", index=index, name=f"simulated, {factor:g} times as slow", host=platform.node(), slowdown=factor
    )  # fmt: skip
    return Target(device=device, cores=real.cores, variables=real.variables)


def _accelerators(kind: str, identity: Sequence[DeviceInfo]) -> list[Target]:
    host = platform.node()
    return [
        Target(
            device=StudyDevice(id=d.uuid or f"{host}-{kind}{d.index}", index=d.index, name=d.name, host=host),
            variables={VISIBLE[kind]: str(d.index)} if kind in VISIBLE else {},
        )
        for d in identity
    ]


def _cpu_targets(per: str, identity: Sequence[DeviceInfo]) -> list[Target]:
    """Cores, or sockets, that this process may use. Their identity is the machine's and their place in it."""
    host, name = platform.node(), identity[0].name
    machine = identity[0].uuid or host
    groups: dict[int, list[int]] = {}
    for core in allowed_cores():
        groups.setdefault(core if per == "core" else socket_of(core), []).append(core)
    return [
        Target(device=StudyDevice(id=f"{machine}-{per}{i}", index=i, name=name, host=host), cores=tuple(cores))
        for i, cores in groups.items()
    ]


def socket_of(core: int, root: Path = Path("/")) -> int:
    """The processor package a core belongs to; 0 where the system does not say."""
    path = root / f"sys/devices/system/cpu/cpu{core}/topology/physical_package_id"
    try:
        return max(0, int(path.read_text()))
    except (OSError, ValueError):
        return 0


def parse_slow(text: str) -> tuple[tuple[int, float], ...]:
    """`3=1.08,7=1.05`: which virtual devices are how many times as slow."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*=\s*(\d+(?:\.\d+)?)\s*", part)
        if not match or float(match[2]) < 1:
            raise ConfigError(
                f"--slow {text!r}: write INDEX=FACTOR,... with factors of 1 or more, such as 3=1.08,7=1.05."
            )
        found.append((int(match[1]), float(match[2])))
    return tuple(found)


# -------------------------------------------------------------------------------------------------------------- running


def plan_order(names: Sequence[str], repeats: int, seed: int) -> list[tuple[str, int]]:
    """All devices once a round, in a new random order each round, so that drift of the room meets them all alike."""
    dice = random.Random(seed)
    return [(name, k) for k in range(repeats) for name in dice.sample(list(names), len(names))]


class Listener(Protocol):
    """Who is told how a study goes."""

    def begin(self, study: StudyDir, done: int, total: int) -> None:
        """It starts, with so many repeats there already."""

    def pace(self, seconds_per_iteration: float, left: int) -> None:
        """What an iteration takes, heard from the first of the repeats that are left."""

    def repeat(self, done: int, total: int, what: str) -> None:
        """So many are done, and this is next."""


def collect(ask: StudyAsk, found: Sequence[Target], kind: str, out: Path, listener: Listener) -> StudyDir:
    """Measure everything that is not there yet; raises RunFailed at the end when some repeat failed, with all others kept."""
    by_id = {t.device.id: t for t in found}
    order = plan_order(list(by_id), ask.repeats, ask.seed)
    study = StudyDir.go_on(
        out,
        StudyMeta(
            workload=ask.workload, iterations=ask.iterations, repeats=ask.repeats, devices=tuple(t.device for t in found),
            order=tuple(order), simulated=ask.virtual > 0, settings=asdict(ask),
        ),
    )  # fmt: skip
    with study.locked():
        there = {(r.device, r.repeat) for r in study.repeats()}
        left = [one for one in order if one not in there]
        listener.begin(study, len(there), len(order))
        cooler, failures = Cooler(kind, ask.pause_s), list[str]()
        for number, (name, repeat) in enumerate(left):
            waited = cooler.wait() if number else ""
            listener.repeat(len(there) + number, len(order), f"{name}, repeat {repeat}")
            heard = None if number else lambda said: listener.pace(said["seconds_per_iteration"], len(left))
            result = run_in_process(_arm(ask, by_id[name], kind), heard)
            if result["status"] == "ok":
                study.write_repeat(_repeat(name, repeat, result, waited))
                study.write_tables()
            else:
                failures.append(f"{name}, repeat {repeat}: {result['status']}: {result.get('why')}")
        listener.repeat(len(order), len(order), "done")
    if failures:
        raise RunFailed(
            f"{len(failures)} of {len(order)} repeats failed, the others are in {out}. First: {failures[0]}"
        )
    return study


def _arm(ask: StudyAsk, target: Target, kind: str) -> Arm:
    spec = {
        "what": "study", "workload": ask.workload, "iterations": ask.iterations, "config": ask.config, "device": kind,
        "cores": list(target.cores), "slowdown": target.device.slowdown or 1.0, "kernel_iterations": ask.kernel_iterations,
    }  # fmt: skip
    return Arm(name=target.device.id, labels={}, spec=spec, variables=target.variables)


def _repeat(device: str, number: int, result: dict[str, Any], waited: str) -> Repeat:
    return Repeat(
        device=device, repeat=number, seconds=tuple(result["seconds"]), warmup=result["warmup"],
        train_time_s=result["train_time_s"], started=result["time"], notes=tuple(filter(None, [*result["notes"], waited])),
        telemetry=tuple(result["telemetry"]), kernels=tuple(result["kernels"]),
    )  # fmt: skip


class Cooler:
    """Waits between repeats until the device is as cool as it was at first, or for a fixed time where nothing says how warm it is."""

    def __init__(self, kind: str, pause_s: float) -> None:
        self._sensors = next((s for s in open_sensors(kind)[0] if s.kind == kind), None)
        self._pause_s = pause_s
        self.idle_c = self._temperature()

    def _temperature(self) -> float | None:
        readings = [] if self._sensors is None else self._sensors.read()
        return max((r.temperature_c for r in readings if r.temperature_c is not None), default=None)

    def wait(self) -> str:
        """What was waited for, in words."""
        if self.idle_c is None:
            threading.Event().wait(self._pause_s)
            return ""
        began_s = now_s()
        while (now := self._temperature()) is not None and now > self.idle_c + COOL_MARGIN_C:
            if now_s() - began_s >= COOL_MAX_S:
                return f"began at {now:.1f} C, idle is {self.idle_c:.1f} C: not cooled down in {COOL_MAX_S:.0f} s"
            threading.Event().wait(COOL_POLL_S)
        return ""
