"""A profile of some steps: which operations and kernels took how long, where a step's time goes, memory over time.

Steps are numbered as the run numbers them, from 1, and both ends of a range are in it; after a resume too. What profiling itself
cost is measured against the steps around the range and stands beside the figures.
"""

import gzip
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, record_function

from vernier.clock import now_s
from vernier.measure.phases import PhaseClock
from vernier.measure.profile.summary import Range
from vernier.measure.statistics.throughput import warmup_steps
from vernier.measure.study.files import csv_text
from vernier.store import write_atomically, write_json

METHOD = "vernier-profile-1"
KERNEL_COLUMNS = ("name", "device", "calls", "total_ms", "mean_ms", "min_ms", "max_ms", "share", "grid", "block")
PHASES = ("data", "copy", "forward", "backward", "optimizer", "communication")
_COMMUNICATION = ("nccl", "hccl", "gloo:", "c10d::")
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_PREFIX = "vernier::"


class StepProfiler:
    """Told where each step begins and ends, profiles those of a range and writes files about them to a folder.

    While it is attached the device is synchronised after every step, so that durations are true. `phase` goes around the
    parts of a step.
    """

    def __init__(self, wanted: Range, folder: Path, synchronize: Callable[[], None], rank: int = 0) -> None:
        self._wanted, self._folder, self._synchronize, self._rank = wanted, folder, synchronize, rank
        self._clock = PhaseClock(synchronize, lambda name: record_function(f"{_PREFIX}{name}"))
        self._profile: Any = None
        self._active = False
        self._began_s = 0.0
        self._durations: dict[int, float] = {}
        self._kernels: list[dict[str, Any]] = []
        self._communication_ms = 0.0

    def phase(self, name: str) -> AbstractContextManager[Any]:
        return self._clock(name) if self._active else _Plain()

    def begin(self, step: int) -> None:
        if step == self._wanted.first:
            activities = [
                a
                for a in ProfilerActivity.__members__.values()
                if a in torch.profiler.supported_activities()  # type: ignore[no-untyped-call]
            ]
            self._profile = torch.profiler.profile(activities=activities, profile_memory=True)
            self._profile.start()
            self._active = True
        self._synchronize()
        self._began_s = now_s()

    def end(self, step: int) -> None:
        self._synchronize()
        self._durations[step] = now_s() - self._began_s
        if self._active:
            self._clock.next_step()
        if step == self._wanted.last:
            self._profile.stop()
            self._active = False
            self._write_trace()

    # --------------------------------------------------------------------------------------------------------- files

    def _name(self, what: str, suffix: str) -> Path:
        return self._folder / f"{what}.rank{self._rank}.{suffix}"

    def _write_trace(self) -> None:
        trace = self._name("trace", "json.gz")
        self._profile.export_chrome_trace(str(trace))
        with gzip.open(trace, "rt", encoding="utf-8") as f:
            events = json.load(f)["traceEvents"]
        self._kernels = kernel_table([*operations(self._profile.events()), *device_kernels(events)])
        self._communication_ms = sum(
            e.get("dur", 0) / 1000 for e in events if str(e.get("name", "")).lower().startswith(_COMMUNICATION)
        )
        write_atomically(self._name("kernels", "csv"), csv_text(KERNEL_COLUMNS, self._kernels))
        memory = memory_timeline(events)
        write_atomically(self._name("memory", "csv"), csv_text(("t_ms", "device", "allocated_bytes"), memory))
        self._profile = None

    def close(self) -> dict[str, Any] | None:
        """Write the durations of all steps and the summary; None where the range was never reached."""
        if self._active or self._profile is not None:  # cut short inside the range
            self._profile.stop()
            return None
        profiled = {s: d for s, d in self._durations.items() if self._wanted.first <= s <= self._wanted.last}
        if len(profiled) < self._wanted.last - self._wanted.first + 1:
            return None
        rows = [
            {"iteration": s, "seconds": d, "profiled": "yes" if s in profiled else "no"}
            for s, d in self._durations.items()
        ]
        write_atomically(self._name("iterations", "csv"), csv_text(("iteration", "seconds", "profiled"), rows))
        others = [d for s, d in self._durations.items() if s not in profiled]
        found = {
            "method": METHOD, "steps": [self._wanted.first, self._wanted.last], "rank": self._rank,
            "where_the_time_goes": where_time_goes(self._clock.by_phase(), list(profiled.values())),
            "communication_busy_ms": self._communication_ms,
            "overhead": overhead(list(profiled.values()), others),
            "top": self._kernels[:10],
            "files": sorted({self._name("profile", "json").name, *(p.name for p in self._folder.glob(f"*.rank{self._rank}.*"))}),
        }  # fmt: skip
        write_json(self._name("profile", "json"), found)
        return found


class _Plain:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: Any) -> None: ...


# ------------------------------------------------------------------------------------------------------------- figures


def operations(events: Iterable[Any]) -> list[dict[str, Any]]:
    """Host operations with the time that is their own, not that of operations they call."""
    return [
        {"name": e.name, "device": "cpu", "ms": e.self_cpu_time_total / 1000, "grid": None, "block": None}
        for e in events
        if e.device_type == DeviceType.CPU and not e.is_user_annotation and not e.name.startswith(("[", _PREFIX))
    ]


def device_kernels(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Kernels and copies on accelerators, from the trace, which knows their grids and blocks."""
    return [
        {
            "name": e["name"], "device": f"device {e.get('args', {}).get('device', 0)}", "ms": e.get("dur", 0) / 1000,
            "grid": _shape(e, "grid"), "block": _shape(e, "block"),
        }
        for e in events
        if e.get("cat") in _ON_DEVICE
    ]  # fmt: skip


def _shape(event: dict[str, Any], name: str) -> str | None:
    found = event.get("args", {}).get(name)
    return "x".join(map(str, found)) if found else None


def kernel_table(calls: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a name, device and launch shape, dearest first; `share` is of all time on that device."""
    grouped: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for c in calls:
        grouped[c["device"], c["name"], c["grid"], c["block"]].append(c["ms"])
    totals: dict[str, float] = defaultdict(float)
    for (device, *_), values in grouped.items():
        totals[device] += sum(values)
    rows = [
        {
            "name": name, "device": device, "calls": len(values), "total_ms": sum(values), "mean_ms": sum(values) / len(values),
            "min_ms": min(values), "max_ms": max(values), "share": sum(values) / totals[device] if totals[device] else 0.0,
            "grid": grid, "block": block,
        }
        for (device, name, grid, block), values in grouped.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda r: -r["total_ms"])


def memory_timeline(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Bytes that PyTorch's allocators hold, after every change, on each device; the host is `cpu`."""
    found = [e for e in events if e.get("name") == "[memory]"]
    first = min((e["ts"] for e in found), default=0.0)
    return [
        {
            "t_ms": (e["ts"] - first) / 1000,
            "device": "cpu" if e["args"]["Device Type"] == 0 else f"device {e['args']['Device Id']}",
            "allocated_bytes": e["args"]["Total Allocated"],
        }
        for e in sorted(found, key=lambda e: e["ts"])
    ]


def where_time_goes(by_phase: dict[str, list[float]], step_s: list[float]) -> dict[str, Any]:
    """Seconds and share of each phase over the profiled steps; `idle` is what no phase claims. Communication that overlaps
    the backward pass is not a phase of its own: see `communication_busy_ms`."""
    total = sum(step_s)
    seconds = {name: sum(by_phase[name]) for name in [*PHASES, *by_phase] if name in by_phase}
    seconds["idle"] = max(0.0, total - sum(seconds.values()))
    return {
        "steps": len(step_s), "seconds": seconds, "share": {name: s / total for name, s in seconds.items()},
        "note": "with the profiler on, synchronised at every phase",
    }  # fmt: skip


def overhead(profiled_s: list[float], others_s: list[float]) -> dict[str, Any] | None:
    """How much longer a profiled step took than the steady ones around it; None where there are too few of those."""
    steady = others_s[warmup_steps(others_s) :]
    if len(steady) < 3:
        return None
    with_it, without = statistics.median(profiled_s), statistics.median(steady)
    return {
        "ratio": with_it / without, "profiled_step_s_median": with_it, "other_step_s_median": without,
        "n_profiled": len(profiled_s), "n_others": len(steady),
    }  # fmt: skip
