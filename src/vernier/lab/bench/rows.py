"""The rows of a benchmark: one per configuration, pooled over its rounds, and efficiency for scaling benchmarks.

With several rounds the process is the unit: the interval is that of the rounds' mean step times, so differences between
processes count. With one round it is the interval within that process, and its basis says so.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from vernier.lab.records.bench import (
    Arithmetic,
    BenchRow,
    ConfigurationLabels,
    FailedRow,
    Failure,
    Round,
    Scaling,
    StepResult,
    StepRow,
)
from vernier.lab.statistics.comparison import Trace, compare
from vernier.lab.statistics.quantiles import summarize_latency
from vernier.lab.statistics.runs import mean_of_runs
from vernier.lab.telemetry.noise import worst_noise
from vernier.measure.estimates import rate_estimate
from vernier.measure.published import published_speeds
from vernier.records.environment import Environment
from vernier.records.profile import PhaseTimes
from vernier.records.statistics import Comparison, Estimate
from vernier.wording import plural

from .measuring import describe_steps, mean_phases

_BUSY = 0.5
"""From this fraction of its cores on, other programs are measured rather than the machine."""


def pool_rounds(name: str, labels: ConfigurationLabels, rounds: Sequence[Round]) -> BenchRow:
    """One configuration over its rounds; without a figure in any of them, the last failure."""
    results = [r.result for r in rounds if r.configuration == name]
    if steps := [r for r in results if isinstance(r, StepResult)]:
        return _pool_steps(name, labels, steps)
    # A row with figures from some rounds is kept above: one failed round costs that round only.
    failure = results[-1]
    assert isinstance(failure, Failure)
    return FailedRow(**vars(labels), configuration=name, status=failure.status, why=failure.why)


def _pool_steps(name: str, labels: ConfigurationLabels, results: list[StepResult]) -> StepRow:
    first = results[0]
    images, devices = first.images_per_step, first.figures.devices
    step_s = [s for r in results for s in r.raw.step_s]
    wait_s = [w for r in results for w in r.raw.wait_s]
    total = _pool_rate(results, images)
    # None: a fixed number of steps was requested, so there was no target to reach.
    precise = [r.figures.reached_precision for r in results]
    # Used only if every process has them: a mean over some processes does not belong to the rate of all.
    joules = [r.energy.joules_per_image for r in results if r.energy]
    compile_s = [r.compilation.seconds for r in results if first.execution != "eager"]
    latency = first.figures.latency_s
    disturbed = worst_noise([r.noise for r in results if r.noise])
    peaks = [r.peak_memory_bytes for r in results if r.peak_memory_bytes is not None]
    reports = [r.engine for r in results if r.engine]
    return StepRow(
        phases=_pool_phases([r.figures.phases for r in results if r.figures.phases]),
        warmup=tuple(r.figures.warmup for r in results),
        steady=all(r.figures.warmup.steady for r in results),
        reached_precision=None if None in precise else all(precise),
        flops=_pool_arithmetic(results, total.value / devices),
        joules_per_image=statistics.fmean(joules) if len(joules) == len(results) else None,
        energy_missing=next((r.energy_missing for r in results if r.energy is None), None),
        compile_s=statistics.fmean(compile_s) if compile_s else None,
        latency_s=summarize_latency(step_s, of=latency.of) if latency else None,
        crowded=_describe_crowding(first.environment, devices),
        published_speeds=published_speeds(first.ran, total.value) or None,
        process_images_per_s=tuple(images * len(r.raw.step_s) / sum(r.raw.step_s) for r in results),
        images_per_cpu_s=_rate_of_cpu(results, images),
        busy=_describe_others(results),
        **describe_steps(step_s, wait_s, total, images=images, devices=devices),
        **vars(labels),
        configuration=name,
        rounds=len(results),
        compute_threads=first.environment.compute_threads,
        noise=tuple(disturbed.sentences()) if disturbed else (),
        disturbed=disturbed,
        method=first.method,
        ran=first.ran,
        # Where `auto` chose differently in other processes, the report of the first one names all of them.
        engine_report=replace(reports[0], engine=" and ".join(dict.fromkeys(r.engine for r in reports)))
        if reports
        else None,
        peak_memory_bytes=max(peaks, default=None),
    )


def _rate_of_cpu(results: Sequence[StepResult], images: int) -> float | None:
    """Images per second of CPU time; None on accelerators, of several processes at once, and of older versions."""
    cpu_s = [r.raw.cpu_s for r in results if r.raw.cpu_s]
    computes_here = results[0].environment.device_kind == "cpu" and results[0].figures.devices == 1
    if not computes_here or len(cpu_s) < len(results):
        return None
    return images * sum(len(r.raw.step_s) for r in results) / sum(cpu_s)


def _describe_others(results: Sequence[StepResult]) -> str | None:
    """Other programs that used at least half of a machine that computes on its CPU."""
    cores, device = results[0].environment.cpu.cores_logical, results[0].environment.device_kind
    others = statistics.fmean(r.noise.others_cores or 0.0 if r.noise else 0.0 for r in results)
    if device != "cpu" or not cores or others < _BUSY * cores:
        return None
    return f"others used {others:.1f} of {plural(cores, 'core')}"


def _describe_crowding(environment: Environment, processes: int) -> str | None:
    """A note when CPU processes share cores; None when each has one of its own, or computes elsewhere."""
    cores = environment.cpu.cores_logical
    if environment.device_kind != "cpu" or not cores or processes <= cores:
        return None
    return f"{processes} processes share {cores} cores: as many devices would not"


def _pool_phases(phases: list[PhaseTimes]) -> PhaseTimes | None:
    """Mean seconds per phase over all processes; None where no step was split."""
    names = phases[0].seconds if phases else ()
    means = mean_phases({name: tuple(p.seconds.get(name, 0.0) for p in phases) for name in names})
    return means and replace(means, steps=sum(p.steps for p in phases))


def _pool_arithmetic(results: list[StepResult], images_per_s: float) -> Arithmetic | None:
    """Arithmetic at this rate per device."""
    measured = next((r.flops for r in results if r.flops), None)
    return measured and replace(measured, gflop_per_s_per_device=images_per_s * measured.gflop_per_image)


def _pool_rate(results: list[StepResult], images: int) -> Estimate:
    """All images over all time; with several processes the interval is that of their mean step times."""
    step_s = [r.raw.step_s for r in results]
    if len(step_s) == 1:
        rate = rate_estimate(step_s[0], images)
        return replace(rate, n=1, basis=f"one process: {rate.basis}", method=None)
    # Total images over total time; a mean of the processes' rates would weigh the fast ones too much.
    value, count = images * sum(map(len, step_s)) / sum(map(sum, step_s)), len(step_s)
    # Logarithms of times, one row of one value per process. Slow in time is the low end of the rate.
    log_s = np.log([[statistics.fmean(steps) for steps in step_s]])
    mean, fast, slow = (float(ends[0]) for ends in mean_of_runs(log_s))
    if not math.isfinite(slow):
        return Estimate(
            value=value, low=None, high=None, n=count, basis=f"{count} processes are equal to the last digit"
        )
    low, high = value * math.exp(mean - slow), value * math.exp(mean - fast)
    return Estimate(value=value, low=low, high=high, n=count, basis=f"{count} processes")


# -------------------------------------------------------------------------------------------------------------- scaling


def add_scaling(rows: Sequence[BenchRow], rounds: Sequence[Round], scaling: Scaling) -> list[BenchRow]:
    """The rows with speed-up and efficiency against the configuration with the fewest processes.

    Efficiency is the speed-up over the ratio of processes times threads. Where the same processes were also measured
    without gradient exchange, the rate is compared with theirs too.
    """
    measured = [r for r in rows if isinstance(r, StepRow)]
    if not measured:
        return list(rows)
    base = min(measured, key=lambda r: (r.procs, r.threads or 0))
    # Reversed: of several rows with the same layout the first one wins.
    apart = {_labels(r, exchange=None): r for r in reversed(measured) if r.exchange}
    return [
        _scaled(row, base, apart.get(_labels(row)), rounds, scaling) if isinstance(row, StepRow) else row
        for row in rows
    ]


def _scaled(row: StepRow, base: StepRow, apart: StepRow | None, rounds: Sequence[Round], scaling: Scaling) -> StepRow:
    # Cores, not processes: one process with two threads uses as much of the machine as two with one.
    times = row.procs * (row.threads or 1) / (base.procs * (base.threads or 1))
    speedup, ends = _speedup(row, base, rounds)
    row = replace(
        row,
        speedup=speedup,
        efficiency=speedup / times,
        scaling=scaling,
        efficiency_95=ends and (ends[0] / times, ends[1] / times),
        base=row is base,
        crowded=row.crowded or _describe_fewer_cores(row, base),
    )
    if apart is None or row.exchange:
        return row
    share, ends = _speedup(row, apart, rounds)
    return replace(row, of_apart=share, of_apart_95=ends)


def add_precision_speedup(rows: Sequence[BenchRow], rounds: Sequence[Round]) -> list[BenchRow]:
    """The rows with their rate as a multiple of that of the same configuration in fp32, where both were measured."""
    full = {_labels(r): r for r in rows if isinstance(r, StepRow) and r.precision == "fp32"}
    # Otherwise every fp32 row would be reported as 1.00 times itself.
    if not any(isinstance(r, StepRow) and r.precision != "fp32" for r in rows):
        return list(rows)
    with_times = []
    for row in rows:
        if isinstance(row, StepRow) and (base := full.get(_labels(row, precision="fp32"))) is not None:
            times, ends = _speedup(row, base, rounds)
            row = replace(row, times_fp32=times, times_fp32_95=ends)
        with_times.append(row)
    return with_times


def _labels(row: StepRow, **changed: Any) -> ConfigurationLabels:
    """The labels of a row, some of them changed: the key under which it finds the row it is compared with."""
    labels = {field.name: getattr(row, field.name) for field in fields(ConfigurationLabels)}
    return ConfigurationLabels(**{**labels, **changed})


def _speedup(row: StepRow, base: StepRow, rounds: Sequence[Round]) -> tuple[float, tuple[float, float] | None]:
    """The rate as a multiple of the base's, and its interval; None where there is none."""
    if row is base:
        # A comparison with itself would have no interval, as its differences are all 0.
        return 1.0, (1.0, 1.0)
    c = compare_rounds(rounds, row.configuration, base.configuration)
    return c.ratio, None if c.low is None or c.high is None else (c.low, c.high)


def _describe_fewer_cores(row: StepRow, base: StepRow) -> str | None:
    """A note when a process computes on fewer cores than one of the base."""
    own, other = row.compute_threads, base.compute_threads
    # Requested threads are counted in the efficiency; only a default that shrank needs a note.
    if row.threads is not None or not own or not other or own >= other:
        return None
    cores = plural(own, "core")
    return f"{cores} per process, where procs {base.procs} has {other}: as many devices would have as many each"


def compare_rounds(rounds: Sequence[Round], configuration: str, base: str) -> Comparison:
    """The speed of one configuration over that of another, round by round; both have steps."""

    def traces(name: str) -> list[Trace]:
        return [
            Trace(step_s=r.result.raw.step_s, samples_per_step=r.result.images_per_step, round=str(r.round))
            for r in rounds
            if r.configuration == name and isinstance(r.result, StepResult)
        ]

    # Named by round: `compare` then uses differences within rounds, in which a drift of the machine cancels.
    return compare(traces(base), traces(configuration))
