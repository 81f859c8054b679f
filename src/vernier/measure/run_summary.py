"""The speed of a training run, computed from its events: steady-state throughput, data wait, step times and energy.

Which steps are warm-up and what throughput is, is defined in `throughput`; energy per image in `lab.telemetry`.
"""

import statistics
from collections.abc import Sequence

from vernier.frozen import frozen
from vernier.records.events import Event, StepEvent, sessions
from vernier.records.run import StepTiming, TrainingSpeed
from vernier.records.telemetry import TelemetryRecord

from .energy import EnergyOutcome, energy_per_image
from .estimates import METHOD, rate_estimate
from .summaries import summarize
from .throughput import Window, step_samples, warmup_steps


@frozen
class TimedPart:
    """What was timed as one: a step, or a window of several where the device tells no more."""

    steps: int
    seconds: float
    wait_s: float


@frozen
class SteadySteps:
    """What was timed, in order, without the warm-up of each session; `skipped` counts the warm-up steps."""

    parts: tuple[TimedPart, ...]
    skipped: int
    timing: StepTiming


def steady_steps(events: Sequence[Event]) -> SteadySteps:
    """The steps of all sessions of a run that are past their session's warm-up; a window is skipped as a whole."""
    parts: list[TimedPart] = []
    skipped = 0
    for session in sessions(events):
        timed = [part for event in session for part in _timed_parts(event)]
        first = warmup_steps([part.seconds / part.steps for part in timed])
        skipped += sum(part.steps for part in timed[:first])
        parts += timed[first:]
    timings = [event.step_times for event in events if isinstance(event, StepEvent)]
    timing = "windows" if "windows" in timings else timings[-1] if timings else "host clock"
    return SteadySteps(parts=tuple(parts), skipped=skipped, timing=timing)


def _timed_parts(event: StepEvent) -> list[TimedPart]:
    if event.step_times == "windows":
        return [TimedPart(steps=len(event.step_s), seconds=sum(event.step_s), wait_s=sum(event.wait_s))]
    return [TimedPart(steps=1, seconds=s, wait_s=w) for s, w in zip(event.step_s, event.wait_s, strict=True)]


def summarize_training(
    events: Sequence[Event],
    *,
    global_batch: int,
    devices: int,
    telemetry: Sequence[TelemetryRecord] = (),
    several_hosts: bool = False,
) -> TrainingSpeed | None:
    """Throughput and energy over the steady steps of all sessions of a run; None when no step was recorded.

    `telemetry` is that of this host; so `several_hosts` have no figure for their energy.
    """
    steady = steady_steps(events)
    if not steady.parts:
        return None
    seconds, steps = [part.seconds for part in steady.parts], [part.steps for part in steady.parts]
    wall_s = sum(seconds)
    wait_s = min(wall_s, sum(part.wait_s for part in steady.parts))  # by the host's clock, the steps by the device's
    window = Window(samples=global_batch * sum(steps), wall_s=wall_s, data_wait_s=wait_s, devices=devices)
    rate = rate_estimate(step_samples(seconds, steps), global_batch, sum(steps) / len(steps))
    single = steady.timing != "windows"
    return TrainingSpeed(
        images_per_s_total=window.samples_per_s,
        images_per_s_total_95=(rate.low, rate.high),
        images_per_s_per_device=window.samples_per_s_per_device,
        compute_only_images_per_s_total=window.compute_samples_per_s,
        data_wait_share=window.data_wait_share,
        devices=devices,
        step_times=steady.timing,
        step_s_median=statistics.median(seconds) if single else None,
        step_s=summarize(seconds, unit="s", of="training step, all devices") if single else None,
        steps_measured=sum(steps),
        warmup_steps_excluded=steady.skipped,
        method=METHOD,
        **vars(_energy(sessions(events), telemetry, several_hosts=several_hosts)),
    )


def _energy(
    by_session: list[list[StepEvent]], telemetry: Sequence[TelemetryRecord], *, several_hosts: bool
) -> EnergyOutcome:
    """Joules per image over the step windows of the newest session with steps: each session has a clock of its own."""
    if several_hosts:
        return EnergyOutcome(energy_missing="the run used several hosts, and each reads the sensors of its own devices")
    number = max(n for n, steps in enumerate(by_session) if steps)
    timed = [(event, event.t_s) for event in by_session[number] if event.t_s is not None]
    samples = [row for row in telemetry if row.session == number]
    windows = [(end_s - sum(event.step_s), end_s) for event, end_s in timed]
    if not windows:
        return EnergyOutcome(energy_missing="the step events have no times that samples could be related to")
    return energy_per_image(samples, windows, sum(event.samples for event, _ in timed))
