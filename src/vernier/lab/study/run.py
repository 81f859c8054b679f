"""Measures a variability study: every device of a machine, several repeats each, in random order, with pauses.

Each repeat is a process of its own that is pinned to its device; `lab.measured.study_repeat` is what it runs. The
files are in `lab.study.files`. Finished repeats stay when the rest is killed.
"""

import os
import platform
import random
import re
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import field, replace
from itertools import chain
from pathlib import Path
from typing import Protocol

from vernier.clock import now_s
from vernier.cores import allowed_cores
from vernier.devices import Device
from vernier.errors import ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.lab.launcher import run
from vernier.lab.records.bench import ConfigTree, MeasuringProgress, RepeatResult, StudyRequest
from vernier.lab.telemetry.sensors import open_sensors
from vernier.records.codec import encode
from vernier.records.environment import DeviceInfo
from vernier.references import given, use

from .files import Repeat, StudyDir
from .records import StudyDevice, StudyMeta
from .votes import vote

COOL_MARGIN_C, COOL_POLL_S, COOL_MAX_S = 1.0, 5.0, 100.0


@frozen
class Target:
    """A device to measure, and how its process is bound to it: CPU cores to be pinned to, or environment variables.

    `uuid` is that of the accelerator, by which the process makes sure that it is the right one; None: it has none.
    """

    device: StudyDevice
    uuid: str | None = None
    cores: tuple[int, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


@frozen
class StudySettings:
    """The experiment. `config` is what is trained, for the workloads that train."""

    workload: str = "resnet50"
    iterations: int = 500
    repeats: int = 5
    batch: int = 64
    device: str = "auto"
    virtual: int = 0
    slow: tuple[tuple[int, float], ...] = ()
    pause_s: float = 5.0
    seed: int = 0
    kernel_iterations: int = 3
    config: ConfigTree | None = None


# -------------------------------------------------------------------------------------------------------------- devices


def find_targets(settings: StudySettings, device: Device) -> list[Target]:
    """The devices to measure: accelerators, CPU cores, or virtual devices on the real ones in turn."""
    identity = device.identity()
    real = _cpu_targets(identity[0]) if device.name == "cpu" else _accelerators(device, identity)
    if not settings.virtual:
        if settings.slow:
            raise ConfigError(f"{given('slow')} is for simulated devices: give {use('virtual', slot='N')} too.")
        return real
    count, host = settings.virtual, platform.node()
    if bad := [i for i, _ in settings.slow if not 0 <= i < count]:
        raise ConfigError(f"{given('slow')} names device {bad[0]}, but {given('virtual', count)} has 0 to {count - 1}.")
    factors = dict.fromkeys(range(count), 1.0) | dict(settings.slow)
    virtual = (
        StudyDevice(id=f"simulated-{i:03d}", index=i, name=f"simulated, {f:g} times as slow", host=host, slowdown=f)
        for i, f in factors.items()
    )
    return [replace(real[device.index % len(real)], device=device) for device in virtual]


def _accelerators(device: Device, identity: Sequence[DeviceInfo]) -> list[Target]:
    host = platform.node()
    return [
        Target(
            device=StudyDevice(id=d.uuid or f"{host}-{device.name}{d.index}", index=d.index, name=d.name, host=host),
            uuid=d.uuid,
            variables=device.environment_for(d),
        )
        for d in identity
    ]


def _cpu_targets(cpu: DeviceInfo) -> list[Target]:
    """The cores that this process may use; their id is the machine's with their number."""
    if not hasattr(os, "sched_setaffinity"):
        raise ConfigError("This system cannot pin a process to a core, so its cores cannot be told apart: use Linux.")
    host = platform.node()
    return [
        Target(
            device=StudyDevice(id=f"{cpu.uuid or host}-core{core}", index=core, name=cpu.name, host=host),
            cores=(core,),
        )
        for core in allowed_cores()
    ]


def parse_slow(text: str) -> tuple[tuple[int, float], ...]:
    """`3=1.08,7=1.05`: pairs of a virtual device's index and the factor by which it is slow."""
    factors = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*=\s*(\d+(?:\.\d+)?)\s*", part)
        if not match or float(match[2]) < 1:
            raise ConfigError(
                f"{given('slow', text)}: write INDEX=FACTOR,... with factors of 1 or more, such as 3=1.08,7=1.05."
            )
        factors.append((int(match[1]), float(match[2])))
    return tuple(factors)


# -------------------------------------------------------------------------------------------------------------- running


def plan_order(names: Sequence[str], repeats: int, seed: int) -> list[tuple[str, int]]:
    """All devices once per round, in a new random order each round, so that slow drifts affect all of them alike."""
    dice = random.Random(seed)
    return [(name, k) for k in range(repeats) for name in dice.sample(list(names), len(names))]


class Listener(Protocol):
    """Receives the progress of a study."""

    def begin(self, study: StudyDir, done: int, total: int) -> None:
        """The study starts; `done` repeats were measured before."""

    def progress(self, now: MeasuringProgress | None, left: int) -> None:
        """What the process that measures is doing, about once per second; `left` is the number of repeats at first."""

    def repeat(self, done: int, total: int, what: str) -> None:
        """`done` repeats are finished, and `what` is next."""


def plan_study(settings: StudySettings, targets: Sequence[Target]) -> StudyMeta:
    """What will be measured, on which devices, in which order."""
    return StudyMeta(
        workload=settings.workload,
        iterations=settings.iterations,
        repeats=settings.repeats,
        devices=tuple(t.device for t in targets),
        order=tuple(plan_order([t.device.id for t in targets], settings.repeats, settings.seed)),
        simulated=settings.virtual > 0,
        settings=encode(settings),
    )


def collect(settings: StudySettings, targets: Sequence[Target], kind: str, out: Path, listener: Listener) -> StudyDir:
    """Measure every repeat that `out` does not have yet. Raises RunFailed at the end if some failed; others stay."""
    by_id, meta = {t.device.id: t for t in targets}, plan_study(settings, targets)
    study, order = StudyDir.resume_or_create(out, meta), meta.order
    with study.locked():
        finished = {(r.device, r.repeat) for r in study.repeats()}
        left = [one for one in order if one not in finished]
        listener.begin(study, len(order) - len(left), len(order))
        cooler, failures = Cooler(kind, [t.uuid for t in targets], settings.pause_s), list[str]()
        for number, (name, repeat) in enumerate(chain(left, _again(study, settings.repeats, finished))):
            note = cooler.wait(by_id[name].uuid) if number else ""
            listener.repeat(len(order) - max(0, len(left) - number), len(order), f"{name}, repeat {repeat}")
            target = by_id[name]
            request = StudyRequest(
                workload=settings.workload,
                iterations=settings.iterations,
                config=settings.config or {},
                device=kind,
                cores=target.cores,
                uuid=target.uuid,
                slowdown=target.device.slowdown or 1.0,
                kernel_iterations=settings.kernel_iterations,
            )
            ended = run(
                request,
                variables=target.variables,
                on_progress=lambda now: listener.progress(now, len(left)),
            )
            result = ended.result(RepeatResult, name)
            if isinstance(result, RepeatResult):
                study.write_repeat(_repeat(name, repeat, result, note))
                study.write_tables()
            else:
                failures.append(f"{name}, repeat {repeat}: {result.status}: {result.why}")
        cooler.close()
        listener.repeat(len(order), len(order), "done")
    if failures:
        raise RunFailed(
            f"{len(failures)} of {len(order)} repeats failed, the others are in {out}. First: {failures[0]}"
        )
    return study


def _again(study: StudyDir, repeat: int, finished: Collection[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Two further repeats on the devices that contradict the others: is it a stuck bit, or does it come and go?

    Two devices that do not are measured as well, in the same minutes. Begins after all other repeats.
    """
    votes = vote(study.ballots())
    suspects = {dissent.device for each in votes for dissent in each.dissents}
    others = [device.id for device in study.meta().devices if device.id not in suspects][:2]
    again = [(name, number) for number in (repeat, repeat + 1) for name in (*suspects, *others) if suspects]
    yield from (one for one in again if one not in finished)


def _repeat(device: str, number: int, result: RepeatResult, cooling_note: str) -> Repeat:
    return Repeat(
        device=device,
        repeat=number,
        seconds=result.seconds,
        warmup=result.warmup,
        train_time_s=result.train_time_s,
        started=result.time,
        notes=tuple(filter(None, (*result.notes, cooling_note))),
        telemetry=result.telemetry,
        kernels=result.kernels,
        exact=result.exact,
    )


class Cooler:
    """Waits before a repeat until its device is as cool as at first; without a sensor, for a fixed time."""

    def __init__(self, kind: str, uuids: Sequence[str | None], pause_s: float) -> None:
        self._sensors = [s for s in open_sensors(kind, uuids)[0] if s.kind == kind]
        self._pause_s = pause_s
        self.idle_c = self._temperatures()

    def _temperatures(self) -> dict[str | None, float]:
        """By UUID of the device; None is the CPU's."""
        readings = [pair for s in self._sensors for pair in zip(s.devices, s.read(), strict=True)]
        return {device.uuid: r.temperature_c for device, r in readings if r.temperature_c is not None}

    def wait(self, uuid: str | None = None) -> str:
        """Wait; returns a note when the device did not cool down in time, else an empty text."""
        idle_c = self.idle_c.get(uuid)
        if idle_c is None:
            threading.Event().wait(self._pause_s)
            return ""
        began_s = now_s()
        while (now := self._temperatures().get(uuid)) is not None and now > idle_c + COOL_MARGIN_C:
            if now_s() - began_s >= COOL_MAX_S:
                return f"began at {now:.1f} C, idle is {idle_c:.1f} C: not cooled down in {COOL_MAX_S:.0f} s"
            threading.Event().wait(COOL_POLL_S)
        return ""

    def close(self) -> None:
        for sensors in self._sensors:
            sensors.close()
