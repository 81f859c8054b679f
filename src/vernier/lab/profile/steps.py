"""Profiles a range of steps with torch's profiler and writes kernels, trace and step times to a folder.

Steps are numbered as the run numbers them, from 1, and both ends of a range are in it; after a resume too. What
profiling itself cost is measured against the steps around the range and reported with the figures.
"""

import gzip
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import record_function

from vernier.clock import now_s
from vernier.lab.phases import PhaseClock
from vernier.lab.reading.csv_tables import csv_text
from vernier.lab.records.telemetry import decode_telemetry
from vernier.lab.telemetry.noise import measure_noise
from vernier.measure.profiles import StepRange
from vernier.measure.sensors import Lines
from vernier.measure.throughput import warmup_steps
from vernier.records.codec import encode
from vernier.records.profile import (
    KernelCall,
    KernelTime,
    PhaseTimes,
    ProfileSummary,
    ProfilingOverhead,
)
from vernier.records.what_ran import WhatRan
from vernier.store import write_atomically, write_json

METHOD = "vernier-profile-1"
_NOISE_MARGIN_S = 0.5
"""Some steps take less time than the sensors need for a few samples."""
PHASES = ("data", "copy", "forward", "backward", "optimizer", "communication")
_COMMUNICATION = ("nccl", "hccl", "gloo:", "c10d::")
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")  # Kineto's categories of work on an accelerator
_PREFIX = "vernier::"  # keeps the marks of phases apart from PyTorch's operations
_TRACE_ROUNDING_US = 0.002  # a start and a duration, each rounded to a nanosecond

TraceEvent = dict[str, Any]
"""One entry of `traceEvents` in a Chrome trace, as parsed."""


class StepProfiler:
    """Profiles the steps of a range and writes files about them to a folder. Call `begin` and `end` around every step.

    While it is attached the device is synchronised after every step, so that durations are true. Wrap the parts of a
    step in `phase`.
    """

    def __init__(self, steps: StepRange, folder: Path, synchronize: Callable[[], None], rank: int = 0) -> None:
        self._steps, self._folder, self._synchronize, self._rank = steps, folder, synchronize, rank
        self._clock = PhaseClock(synchronize, lambda name: record_function(f"{_PREFIX}{name}"))
        self._profile: Any = None
        """Torch's profiler from the first step of the range to the last."""
        self._began_s = self._first_s = self._last_s = 0.0
        self._durations: dict[int, float] = {}
        self._kernels: list[KernelTime] = []
        self._communication_ms = 0.0

    def phase(self, name: str) -> AbstractContextManager[Any]:
        return self._clock(name) if self._profile else nullcontext()

    def begin(self, step: int) -> None:
        if step == self._steps.first:
            self._profile = torch.profiler.profile()  # of all activities that this build supports
            self._profile.start()
        self._synchronize()
        # After the start of the profiler and what was queued before: neither is part of the step.
        self._began_s = now_s()

    def end(self, step: int) -> None:
        self._synchronize()
        self._durations[step] = now_s() - self._began_s
        if step == self._steps.first:
            self._first_s = self._began_s
        if self._profile:
            self._clock.next_step()
        if step == self._steps.last:
            # Before the profiler stops and writes its files: noise is reported for the steps only.
            self._last_s = now_s()
            self._profile.stop()
            self._write_trace()

    def _path(self, name: str, suffix: str) -> Path:
        return self._folder / f"{name}.rank{self._rank}.{suffix}"

    def _write_trace(self) -> None:
        trace = self._path("trace", "json.gz")
        # The suffix .gz makes PyTorch compress it.
        self._profile.export_chrome_trace(str(trace))
        with gzip.open(trace, "rt", encoding="utf-8") as f:
            events = json.load(f)["traceEvents"]
        self._kernels = kernel_table([*host_operations(events), *device_kernels(events)])
        self._communication_ms = _communication_ms(events)
        self._write_table("kernels", KernelTime, self._kernels)
        self._write_table("calls", KernelCall, kernel_calls(events))
        self._profile = None

    def _write_table(self, name: str, row_type: type, rows: Iterable[KernelTime | KernelCall]) -> None:
        columns = [field.name for field in fields(row_type)]
        write_atomically(self._path(name, "csv"), csv_text(columns, map(encode, rows)))

    def close(self, ran: WhatRan | None = None, sensors: Callable[[], Lines] = tuple) -> ProfileSummary | None:
        """Write the durations of all steps and the summary; None where the range was never completed.

        `sensors` gives the samples that were taken meanwhile, from which the noise is measured.
        """
        if self._profile:  # ended inside the range
            self._profile.stop()
            return None
        profiled = {s: d for s, d in self._durations.items() if self._steps.first <= s <= self._steps.last}
        # The run ended before the range began.
        if len(profiled) < self._steps.last - self._steps.first + 1:
            return None
        rows = [
            {"iteration": s, "seconds": d, "profiled": "yes" if s in profiled else "no"}
            for s, d in self._durations.items()
        ]
        write_atomically(self._path("iterations", "csv"), csv_text(("iteration", "seconds", "profiled"), rows))
        profiled_s, others_s = list(profiled.values()), [d for s, d in self._durations.items() if s not in profiled]
        path = self._path("profile", "json")
        # Of the profiled steps and the moments around them.
        span = (self._first_s - _NOISE_MARGIN_S, self._last_s + _NOISE_MARGIN_S)
        noise = measure_noise(decode_telemetry(sensors()), span)
        summary = ProfileSummary(
            method=METHOD,
            steps=(self._steps.first, self._steps.last),
            rank=self._rank,
            where_the_time_goes=phase_times(self._clock.by_phase(), profiled_s),
            communication_busy_ms=self._communication_ms,
            overhead=profiling_overhead(profiled_s, others_s),
            top=tuple(self._kernels[:10]),
            ran=ran,
            noise=noise if noise.samples else None,
            # The summary lists itself, though it is written only below.
            files=tuple(sorted({path.name, *(p.name for p in self._folder.glob(f"*.rank{self._rank}.*"))})),
        )
        write_json(path, encode(summary))
        return summary


# ------------------------------------------------------------------------------------------------------------- figures


def host_operations(events: Iterable[TraceEvent]) -> list[KernelCall]:
    """Host operations with the time that is their own, not that of operations they call.

    From the trace, which has every call: torch's own table merges an operation into a caller of the same name.
    """
    # By thread and start; of two that start together the longer one is the caller and must come first.
    spans = sorted(
        (e for e in events if e.get("cat") == "cpu_op"),
        key=lambda e: (e.get("pid", 0), e.get("tid", 0), e["ts"], -e.get("dur", 0)),
    )
    own_us = [float(e.get("dur", 0)) for e in spans]
    # Indices of the operations that are still running at this start, outermost first.
    callers: list[int] = []
    for i, span in enumerate(spans):
        while callers and not _is_within(span, spans[callers[-1]]):
            callers.pop()
        # From the direct caller only: its own callers lose the caller's whole duration already.
        if callers:
            own_us[callers[-1]] -= span.get("dur", 0)
        callers.append(i)
    # Rounded durations of callees may add up to slightly more than their caller's.
    own_ms = (max(0.0, us) / 1000 for us in own_us)
    return [replace(_call(span), duration_ms=ms) for span, ms in zip(spans, own_ms, strict=True)]


def _is_within(span: TraceEvent, caller: TraceEvent) -> bool:
    """Whether it ran in the same thread and while the other did; ends are written with nanoseconds."""
    same_thread = all(span.get(key) == caller.get(key) for key in ("pid", "tid"))
    ends_us = span["ts"] + span.get("dur", 0), caller["ts"] + caller.get("dur", 0)
    return same_thread and caller["ts"] <= span["ts"] and ends_us[0] <= ends_us[1] + _TRACE_ROUNDING_US


def device_kernels(events: Iterable[TraceEvent]) -> list[KernelCall]:
    """Kernels and copies on accelerators, from the trace, which has their grids and blocks."""
    return [_call(e) for e in events if e.get("cat") in _ON_DEVICE]


def kernel_calls(events: Iterable[TraceEvent]) -> list[KernelCall]:
    """Every call with its start: kernels and copies of accelerators, and operations of the host."""
    calls = sorted((e for e in events if e.get("cat") in (*_ON_DEVICE, "cpu_op")), key=lambda e: e["ts"])
    return [_call(event, calls[0]["ts"]) for event in calls]


def _call(event: TraceEvent, began_us: float = 0) -> KernelCall:
    arguments, on_host = event.get("args", {}), event["cat"] == "cpu_op"

    def launch_shape(name: str) -> str | None:
        return "x".join(map(str, sizes)) if (sizes := arguments.get(name)) else None

    return KernelCall(
        start_ms=(event.get("ts", 0) - began_us) / 1000,
        duration_ms=event.get("dur", 0) / 1000,
        device="cpu" if on_host else f"device {arguments.get('device', 0)}",
        stream=None if on_host or "stream" not in arguments else str(arguments["stream"]),
        grid=launch_shape("grid"),
        block=launch_shape("block"),
        registers=arguments.get("registers per thread"),
        shared_memory_bytes=arguments.get("shared memory"),
        name=event["name"],
    )


def _communication_ms(events: Iterable[TraceEvent]) -> float:
    """Milliseconds of all collectives, also of those that overlap computing."""
    collectives = (e for e in events if str(e.get("name", "")).lower().startswith(_COMMUNICATION))
    return sum((e.get("dur", 0) / 1000 for e in collectives), 0.0)


def kernel_table(calls: Iterable[KernelCall]) -> list[KernelTime]:
    """One row per name, device and launch shape, longest total time first."""
    grouped: dict[tuple[str, str, str | None, str | None], list[float]] = defaultdict(list)
    for c in calls:
        grouped[c.device, c.name, c.grid, c.block].append(c.duration_ms)
    # Fractions are of one device's total: host and devices work at the same time.
    totals: dict[str, float] = defaultdict(float)
    for (device, *_), times in grouped.items():
        totals[device] += sum(times)
    rows = []
    for (device, name, grid, block), times in grouped.items():
        total = sum(times)
        row = KernelTime(
            name=name,
            device=device,
            calls=len(times),
            total_ms=total,
            mean_ms=total / len(times),
            min_ms=min(times),
            max_ms=max(times),
            share=total / totals[device] if totals[device] else 0.0,
            grid=grid,
            block=block,
        )
        rows.append(row)
    return sorted(rows, key=lambda row: -row.total_ms)


def phase_times(by_phase: dict[str, list[float]], step_s: list[float]) -> PhaseTimes:
    """Seconds and share of each phase over the profiled steps; `idle` is the rest."""
    total = sum(step_s)
    # Known phases in the order of a step, then any others.
    seconds = {name: sum(by_phase[name]) for name in [*PHASES, *by_phase] if name in by_phase}
    seconds["idle"] = max(0.0, total - sum(seconds.values()))
    return PhaseTimes(
        steps=len(step_s),
        seconds=seconds,
        share={name: s / total for name, s in seconds.items()},
        note="with the profiler on, synchronised at every phase",
    )


def profiling_overhead(profiled_s: list[float], others_s: list[float]) -> ProfilingOverhead | None:
    """How much longer a profiled step took than the steady ones around it; None with fewer than three of those."""
    # Warm-up steps are slow and would hide the overhead.
    steady_s = others_s[warmup_steps(others_s) :]
    if len(steady_s) < 3:
        return None
    profiled, other = statistics.median(profiled_s), statistics.median(steady_s)
    return ProfilingOverhead(
        ratio=profiled / other,
        profiled_step_s_median=profiled,
        other_step_s_median=other,
        n_profiled=len(profiled_s),
        n_others=len(steady_s),
    )
