"""The speed of a training run, computed from its events: steady-state throughput, data wait, step times and energy.

Which steps are warm-up and what throughput is, is defined in `throughput`; energy per image is a plug-in's (`sensors`).
"""

import statistics
from collections.abc import Sequence

from vernier.records.events import Event, StepEvent, sessions
from vernier.records.run import StepTiming, TrainingSpeed

from .estimates import METHOD, rate_estimate, summarize
from .sensors import Lines, sensors
from .throughput import Window, step_samples, warmup_steps


def summarize_training(
    events: Sequence[Event],
    *,
    global_batch: int,
    devices: int,
    telemetry: Lines = (),
    several_hosts: bool = False,
) -> TrainingSpeed | None:
    """Throughput and energy over the steady steps of all sessions of a run; None when no step was recorded.

    `telemetry` is that of this host; so `several_hosts` have no figure for their energy.
    """
    parts, skipped, timing = _steady_parts(events)
    if not parts:
        return None
    package, energy = sensors(), None
    if several_hosts:
        missing: str | None = "the run used several hosts, and each reads the sensors of its own devices"
    elif package is None:
        missing = "no installed package reads sensors"
    else:
        energy, missing = package.energy(events, telemetry)
    steps, seconds, waits = zip(*parts, strict=True)
    wall_s = sum(seconds)
    wait_s = min(wall_s, sum(waits))  # by the host's clock, the steps by the device's
    window = Window(samples=global_batch * sum(steps), wall_s=wall_s, data_wait_s=wait_s, devices=devices)
    rate = rate_estimate(step_samples(seconds, steps), global_batch, sum(steps) / len(steps))
    single = timing != "windows"
    return TrainingSpeed(
        images_per_s_total=window.samples_per_s,
        images_per_s_total_95=(rate.low, rate.high),
        images_per_s_per_device=window.samples_per_s_per_device,
        compute_only_images_per_s_total=window.compute_samples_per_s,
        data_wait_share=window.data_wait_share,
        devices=devices,
        step_times=timing,
        step_s_median=statistics.median(seconds) if single else None,
        step_s=summarize(seconds, unit="s", of="training step, all devices") if single else None,
        steps_measured=sum(steps),
        warmup_steps_excluded=skipped,
        method=METHOD,
        energy=energy,
        energy_missing=missing,
    )


def _steady_parts(events: Sequence[Event]) -> tuple[list[tuple[int, float, float]], int, StepTiming]:
    """What was timed past the warm-up of each session, as steps, seconds and wait for data: a step, or a window if the
    device does not time single steps; how many steps the warm-up has; and how steps were timed."""
    parts: list[tuple[int, float, float]] = []
    skipped = 0
    for session in sessions(events):
        # Steps that compile are no steady ones, wherever in the session they are.
        timed = [part for event in session if not event.compilations for part in _timed_parts(event)]
        skipped += sum(len(event.step_s) for event in session if event.compilations)
        first = warmup_steps([seconds / steps for steps, seconds, _ in timed])
        skipped += sum(part[0] for part in timed[:first])  # a window is skipped as a whole
        parts += timed[first:]
    timings = [event.step_times for event in events if isinstance(event, StepEvent)]
    return parts, skipped, "windows" if "windows" in timings else timings[-1] if timings else "host clock"


def _timed_parts(event: StepEvent) -> list[tuple[int, float, float]]:
    if event.step_times == "windows":
        return [(len(event.step_s), sum(event.step_s), sum(event.wait_s))]
    return [(1, s, w) for s, w in zip(event.step_s, event.wait_s, strict=True)]
