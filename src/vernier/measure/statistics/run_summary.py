"""The speed of a training run, computed from its events: steady-state throughput, data wait, step times and energy.

Which steps are warm-up and what throughput is, is defined in `throughput`; energy per image in `measure.telemetry`.
"""

import statistics
from collections.abc import Sequence

from vernier.frozen import frozen
from vernier.measure.telemetry.energy import energy_per_image
from vernier.records.events import Event, StepEvent, sessions
from vernier.records.run import EnergyPerImage, TrainingSpeed
from vernier.records.telemetry import TelemetryRecord

from .estimates import METHOD, rate_estimate
from .summary_checks import summarize
from .throughput import Window, warmup_steps


@frozen
class SteadySteps:
    """Step times and data waits, in order, without the warm-up of each session; `skipped` counts the warm-up steps."""

    step_s: tuple[float, ...]
    wait_s: tuple[float, ...]
    skipped: int


def steady_steps(events: Sequence[Event]) -> SteadySteps:
    """The steps of all sessions of a run that are past their session's warm-up."""
    step_s: list[float] = []
    wait_s: list[float] = []
    skipped = 0
    for session in sessions(events):
        times = [t for event in session for t in event.step_s]
        waits = [t for event in session for t in event.wait_s]
        first = warmup_steps(times)
        skipped += first
        step_s += times[first:]
        wait_s += waits[first:]
    return SteadySteps(step_s=tuple(step_s), wait_s=tuple(wait_s), skipped=skipped)


def summarize_training(
    events: Sequence[Event], *, global_batch: int, devices: int, telemetry: Sequence[TelemetryRecord] = ()
) -> TrainingSpeed | None:
    """Throughput and energy over the steady steps of all sessions of a run; None when no step was recorded."""
    steady = steady_steps(events)
    step_s = steady.step_s
    if not step_s:
        return None
    window = Window(
        samples=global_batch * len(step_s), wall_s=sum(step_s), data_wait_s=sum(steady.wait_s), devices=devices
    )
    rate = rate_estimate(step_s, global_batch)
    return TrainingSpeed(
        images_per_s_total=window.samples_per_s,
        images_per_s_total_95=(rate.low, rate.high),
        images_per_s_per_device=window.samples_per_s_per_device,
        compute_only_images_per_s_total=window.compute_samples_per_s,
        data_wait_share=window.data_wait_share,
        devices=devices,
        step_s_median=statistics.median(step_s),
        step_s=summarize(step_s, unit="s", of="training step, all devices"),
        steps_measured=len(step_s),
        warmup_steps_excluded=steady.skipped,
        method=METHOD,
        energy=_energy(sessions(events), telemetry),
    )


def _energy(by_session: list[list[StepEvent]], telemetry: Sequence[TelemetryRecord]) -> EnergyPerImage | None:
    """Joules per image over the step windows of the newest session with steps: each session has a clock of its own."""
    number = max(n for n, steps in enumerate(by_session) if steps)
    timed = [(event, event.t_s) for event in by_session[number] if event.t_s is not None]
    samples = [row for row in telemetry if row.session == number]
    windows = [(end_s - sum(event.step_s), end_s) for event, end_s in timed]
    return energy_per_image(samples, windows, sum(event.samples for event, _ in timed)) if windows else None
