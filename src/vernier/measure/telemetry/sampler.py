"""Telemetry: a thread that reads the sensors a few times a second, what it wrote, and what that says about a stretch of time.

Times are those of the one monotonic clock, `t_s`, so that samples and steps can be laid over one another.
"""

import bisect
import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

import psutil

from vernier.clock import now_s, thread_cpu_s
from vernier.measure.telemetry.sensors import FIELDS, Reading, Sensors, open_sensors

DEFAULT_HZ = 10.0
FAMILY_EVERY_S = 10.0
METHOD = "vernier-telemetry-1"


class Sink(Protocol):
    """Where samples go: the run's file, or a list."""

    def emit(self, event: dict[str, Any]) -> None: ...


@dataclass
class Kept:
    """A sink that keeps samples in memory."""

    records: list[dict[str, Any]] = field(default_factory=list)

    def emit(self, event: dict[str, Any]) -> None:
        self.records.append(event)

    @property
    def samples(self) -> list[dict[str, Any]]:
        return [r for r in self.records if r["kind"] == "sample"]


class Sampler:
    """Reads all sensors `hz` times a second in a thread of its own. Use as a context manager; 0 Hz does nothing at all.

    The first record is a header: which sensors there are, their units, and which are missing and why. The last one says
    what sampling cost. A sensor that fails while running ends the sampling with a record of why, never the run.
    """

    def __init__(
        self,
        device_kind: str,
        sink: Sink,
        *,
        hz: float = DEFAULT_HZ,
        session: int = 0,
        family_of: int | None = None,
    ) -> None:
        self._sink, self._hz, self._session = sink, hz, session
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._sensors: list[Sensors] = []
        self.missing: list[dict[str, Any]] = []
        self.devices: list[dict[str, Any]] = []
        if hz > 0:
            family = None if family_of is None else Family(family_of)
            self._sensors, self.missing = open_sensors(device_kind, family)
            self.devices = [{"kind": s.kind, **d} for s in self._sensors for d in s.devices()]

    def described(self) -> dict[str, Any]:
        """For environment.json: what is read, and what is not there."""
        return {"hz": self._hz, "devices": self.devices, "missing": self.missing}

    def __enter__(self) -> "Sampler":
        if self._hz > 0:
            header = {"kind": "header", "method": METHOD, "session": self._session, "t_s": now_s(), "fields": FIELDS}
            self._sink.emit({**header, **self.described()})
            self._thread = threading.Thread(target=self._run, name="vernier-telemetry", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        for sensors in self._sensors:
            sensors.close()

    def _run(self) -> None:
        start_s, due_s, count = now_s(), now_s(), 0
        problem: str | None = None
        while problem is None and not self._done.wait(max(0.0, due_s - now_s())):
            try:
                self._sample()
            except Exception as error:  # a driver that goes away must not take the run with it
                problem = f"{type(error).__name__}: {error}"
            count += 1
            due_s = max(due_s + 1 / self._hz, now_s())
        lasted_s = now_s() - start_s
        self._sink.emit(
            {
                "kind": "end", "session": self._session, "t_s": now_s(), "problem": problem, "samples": count,
                "seconds": lasted_s, "cpu_s": thread_cpu_s(), "cpu_share_of_a_core": thread_cpu_s() / lasted_s,
            }
        )  # fmt: skip

    def _sample(self) -> None:
        for sensors in self._sensors:
            for index, reading in enumerate(sensors.read()):
                if not reading:
                    continue
                self._sink.emit(sample(sensors.kind, index, self._session, reading))


def sample(kind: str, device: int, session: int, reading: Reading) -> dict[str, Any]:
    """One record; numbers rounded to what a sensor can mean."""
    rounded = {name: round(v, 3) if isinstance(v, float) else v for name, v in reading.items()}
    return {
        "kind": "sample",
        "device_kind": kind,
        "device": device,
        "session": session,
        "t_s": round(now_s(), 6),
        **rounded,
    }


class Family:
    """A process and all that it started; looked up rarely, for that is dear."""

    def __init__(self, root_pid: int) -> None:
        self._root = psutil.Process(root_pid)
        self._members: list[psutil.Process] = []
        self._looked_s: float | None = None

    def __call__(self) -> list[psutil.Process]:
        if self._looked_s is None or now_s() - self._looked_s > FAMILY_EVERY_S:
            self._members = [self._root, *self._root.children(recursive=True)]
            self._looked_s = now_s()
        return self._members


# ---------------------------------------------------------------------------------------------- what the samples say


Stretch = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Energy:
    """Joules over some stretches of time and how they were found: `counter`, or `integrated power`."""

    joules: float
    method: str
    seconds: float


def energy(samples: Sequence[dict[str, Any]], stretches: Sequence[Stretch]) -> Energy | None:
    """Energy of one device over stretches that its samples cover; a counter before integrated power; None without either."""
    counted = [(s["t_s"], s["energy_j"]) for s in samples if "energy_j" in s]
    if len(counted) >= 2:
        return _total(counted, stretches, "counter")
    drawn = [(s["t_s"], s["power_w"]) for s in samples if "power_w" in s]
    if len(drawn) < 2:
        return None
    joules, points = 0.0, [(drawn[0][0], 0.0)]
    for (t0, w0), (t1, w1) in itertools.pairwise(drawn):
        joules += (t1 - t0) * (w0 + w1) / 2
        points.append((t1, joules))
    return _total(points, stretches, "integrated power")


def _total(points: list[tuple[float, float]], stretches: Sequence[Stretch], method: str) -> Energy | None:
    """The growth of a counter over the stretches, between samples taken as a straight line."""
    first, last = points[0][0], points[-1][0]
    inside = [(max(a, first), min(b, last)) for a, b in stretches]
    inside = [(a, b) for a, b in inside if b > a]
    wanted, covered = sum(b - a for a, b in stretches), sum(b - a for a, b in inside)
    if not wanted or covered < 0.9 * wanted:
        return None
    joules = sum(_at(points, b) - _at(points, a) for a, b in inside)
    return Energy(joules=joules * wanted / covered, method=method, seconds=wanted)


def _at(points: list[tuple[float, float]], t: float) -> float:
    right = min(max(bisect.bisect_left(points, (t,)), 1), len(points) - 1)
    (t0, v0), (t1, v1) = points[right - 1], points[right]
    return v0 + (v1 - v0) * (t - t0) / (t1 - t0) if t1 > t0 else v1


def of_devices(records: Sequence[dict[str, Any]], uuids: Sequence[str | None]) -> list[dict[str, Any]]:
    """Without the samples of accelerators that are not among these; a host may have more than a run uses."""
    wanted = [u for u in uuids if u]
    listed = [d for r in records if r["kind"] == "header" for d in r["devices"] if d["kind"] != "cpu" and d["uuid"]]
    others = {
        (d["kind"], d["index"]) for d in listed if not any(d["uuid"].endswith(u.removeprefix("GPU-")) for u in wanted)
    }
    known = bool(wanted) and len(others) < len(listed)
    return [r for r in records if not known or (r.get("device_kind"), r.get("device")) not in others]


def joules_per_image(
    records: Sequence[dict[str, Any]], stretches: Sequence[Stretch], images: int
) -> dict[str, Any] | None:
    """Joules an image over all devices of the kind in use, the accelerators where there are any; None where unknown."""
    samples = [r for r in records if r["kind"] == "sample"]
    kinds = {s["device_kind"] for s in samples}
    kind = next(iter(sorted(kinds - {"cpu"})), "cpu")
    devices = sorted({s["device"] for s in samples if s["device_kind"] == kind})
    found = [energy([s for s in samples if (s["device_kind"], s["device"]) == (kind, d)], stretches) for d in devices]
    known = [e for e in found if e is not None]
    if not images or not known or len(known) < len(found):
        return None
    total = sum(e.joules for e in known)
    return {
        "joules_per_image": total / images, "joules": total, "devices": len(known), "device_kind": kind,
        "method": known[0].method, "mean_power_w": total / known[0].seconds,
    }  # fmt: skip


def noise(records: Sequence[dict[str, Any]], stretch: Stretch, cores: int | None = None) -> dict[str, Any]:
    """What disturbed a stretch: other programs, the hypervisor, throttling, drifting clocks. None: not known here."""
    samples = [r for r in records if r["kind"] == "sample" and stretch[0] <= r["t_s"] <= stretch[1]]
    cpu = [s for s in samples if s["device_kind"] == "cpu"]
    kind = next((s["device_kind"] for s in samples if s["device_kind"] != "cpu"), "cpu")
    used = [s for s in samples if s["device_kind"] == kind]
    others, steal = _mean(cpu, "others_pct"), _mean(cpu, "steal_pct")
    reasons = sorted({why for s in used for why in s.get("throttle", ())})
    return {
        "samples": len(samples),
        "others_cores": None if others is None else others / 100 * (cores or psutil.cpu_count() or 1),
        "steal_pct": steal,
        "throttled": reasons if any("throttle" in s for s in used) else None,
        "clock_drift_pct": drift_pct([s["clock_mhz"] for s in used if "clock_mhz" in s]),
        "temperature_c_max": max((s["temperature_c"] for s in used if "temperature_c" in s), default=None),
    }


def _mean(samples: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [float(s[name]) for s in samples if name in s]
    return sum(values) / len(values) if values else None


def drift_pct(values: Sequence[float]) -> float | None:
    """By how much the last third's mean differs from the first third's, in percent of the latter."""
    third = len(values) // 3
    if not third:
        return None
    first, last = sum(values[:third]) / third, sum(values[-third:]) / third
    return 100 * (last / first - 1) if first else None


def worst(found: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The worst that several stretches saw of each disturbance; None where nothing was looked at."""
    if not found:
        return None

    def most(name: str) -> float | None:
        return max((f[name] for f in found if f[name] is not None), key=abs, default=None)

    reasons = [f["throttled"] for f in found if f["throttled"] is not None]
    return {
        "samples": sum(f["samples"] for f in found),
        "throttled": sorted({why for r in reasons for why in r}) if reasons else None,
        **{name: most(name) for name in ("others_cores", "steal_pct", "clock_drift_pct", "temperature_c_max")},
    }


OTHERS_CORES_LIMIT, STEAL_LIMIT_PCT, DRIFT_LIMIT_PCT = 0.1, 2.0, 2.0


def noise_words(found: dict[str, Any]) -> list[str]:
    """What of it a reader must know, in words; empty when the machine was quiet as far as can be seen."""
    words = []
    if (others := found["others_cores"]) is not None and others > OTHERS_CORES_LIMIT:
        words.append(f"other programs used {others:.2f} cores")
    if (steal := found["steal_pct"]) is not None and steal > STEAL_LIMIT_PCT:
        words.append(f"the hypervisor took {steal:.1f} % of the CPU")
    if found["throttled"]:
        words.append(f"throttled: {', '.join(found['throttled'])}")
    if (drift := found["clock_drift_pct"]) is not None and abs(drift) > DRIFT_LIMIT_PCT:
        words.append(f"the clock drifted by {drift:+.1f} %")
    return words
