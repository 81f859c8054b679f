"""What a run's events add up to: steady-state throughput, data wait, step times. Made from events alone."""

import statistics
from typing import Any

from vernier.measure.throughput import Window, warmup_steps


def summarize_training(events: list[dict[str, Any]], *, global_batch: int, devices: int) -> dict[str, Any] | None:
    """Throughput over the steady steps of all sessions of a run; None when no step was recorded."""
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
    if not step_s:
        return None
    window = Window(samples=global_batch * len(step_s), wall_s=sum(step_s), data_wait_s=sum(wait_s), devices=devices)
    return {
        "images_per_s_total": window.samples_per_s,
        "images_per_s_per_device": window.samples_per_s_per_device,
        "compute_only_images_per_s_total": window.compute_samples_per_s,
        "data_wait_share": window.data_wait_share,
        "devices": devices,
        "step_s_median": statistics.median(step_s),
        "steps_measured": len(step_s),
        "warmup_steps_excluded": skipped,
    }


def _sessions(events: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Step events, split where a run was resumed."""
    sessions: list[list[dict[str, Any]]] = [[]]
    for event in events:
        if event["kind"] == "start":
            sessions.append([])
        elif event["kind"] == "step":
            sessions[-1].append(event)
    return [s for s in sessions if s]
