"""What a run's events add up to: steady-state throughput, data wait, step times. Made from events alone."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vernier.measure.statistics.estimates import METHOD, rate_estimate
from vernier.measure.statistics.summary_checks import summarize
from vernier.measure.statistics.throughput import Window, warmup_steps
from vernier.measure.telemetry.energy import energy_per_image
from vernier.records.codec import encode
from vernier.records.run import EnergyPerImage
from vernier.records.telemetry import TelemetryRecord


@dataclass(frozen=True)
class Steady:
    """Step times and data waits, in order, without the first steps of each session; how many those were."""

    step_s: tuple[float, ...]
    wait_s: tuple[float, ...]
    skipped: int


def steady_steps(events: list[dict[str, Any]]) -> Steady:
    """The steps of all sessions of a run that are past their session's warm-up."""
    step_s: list[float] = []
    wait_s: list[float] = []
    skipped = 0
    for session in _sessions(events):
        times = [t for e in session for t in e["step_s"]]
        waits = [t for e in session for t in e["wait_s"]]
        first = warmup_steps(times)
        skipped += first
        step_s += times[first:]
        wait_s += waits[first:]
    return Steady(tuple(step_s), tuple(wait_s), skipped)


def summarize_training(
    events: list[dict[str, Any]],
    *,
    global_batch: int,
    devices: int,
    telemetry: Sequence[TelemetryRecord] = (),
) -> dict[str, Any] | None:
    """Throughput and energy over the steady steps of all sessions of a run; None when no step was recorded."""
    steady = steady_steps(events)
    if not steady.step_s:
        return None
    step_s = steady.step_s
    window = Window(
        samples=global_batch * len(step_s), wall_s=sum(step_s), data_wait_s=sum(steady.wait_s), devices=devices
    )
    rate = rate_estimate(step_s, global_batch)
    return {
        "images_per_s_total": window.samples_per_s,
        "images_per_s_total_95": [rate.low, rate.high],
        "images_per_s_per_device": window.samples_per_s_per_device,
        "compute_only_images_per_s_total": window.compute_samples_per_s,
        "data_wait_share": window.data_wait_share,
        "devices": devices,
        "step_s_median": statistics.median(step_s),
        "step_s": encode(summarize(step_s, unit="s", of="training step, all devices")),
        "steps_measured": len(step_s),
        "warmup_steps_excluded": steady.skipped,
        "method": METHOD,
        "energy": encode(_energy(events, telemetry)),
    }


def _energy(events: list[dict[str, Any]], telemetry: Sequence[TelemetryRecord]) -> EnergyPerImage | None:
    """Joules per image over the step windows of the newest session, the one whose clock is that of its samples."""
    session = sum(e["kind"] == "start" for e in events) - 1
    samples = [r for r in telemetry if r.session == session]
    newest = _sessions(events)[-1]
    windows = [(e["t_s"] - sum(e["step_s"]), e["t_s"]) for e in newest if "t_s" in e]
    return energy_per_image(samples, windows, sum(e["samples"] for e in newest if "t_s" in e)) if windows else None


def _sessions(events: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Step events, split where a run was resumed."""
    sessions: list[list[dict[str, Any]]] = [[]]
    for event in events:
        if event["kind"] == "start":
            sessions.append([])
        elif event["kind"] == "step":
            sessions[-1].append(event)
    return [s for s in sessions if s]
