"""The sensors of a run, as the core finds them: the entry point of `vernier.telemetry` (see `measure.sensors`)."""

from collections.abc import Sequence

from vernier.lab.records.telemetry import decode_telemetry
from vernier.measure.sensors import Lines
from vernier.records.events import Event, sessions
from vernier.records.run import EnergyPerImage

from .energy import energy_per_image
from .noise import measure_noise, worst_noise
from .sampler import Sampler

sampler = Sampler


def energy(events: Sequence[Event], lines: Lines) -> tuple[EnergyPerImage | None, str | None]:
    """Joules per image over the step windows of the newest session with steps: each session has a clock of its own."""
    by_session = sessions(events)
    number = max(n for n, steps in enumerate(by_session) if steps)
    timed = [(event, event.t_s) for event in by_session[number] if event.t_s is not None]
    samples = [row for row in decode_telemetry(lines) if row.session == number]
    windows = [(end_s - sum(event.step_s), end_s) for event, end_s in timed]
    if not windows:
        return None, "the step events have no times that samples could be related to"
    outcome = energy_per_image(samples, windows, sum(event.samples for event, _ in timed))
    return outcome.energy, outcome.energy_missing


def disturbances(events: Sequence[Event], lines: Lines, cores: int | None) -> list[str]:
    """The worst noise of all sessions in words, each from its first step to its last."""
    telemetry, noises = decode_telemetry(lines), []
    for number, steps in enumerate(sessions(events)):
        times = [e.t_s for e in steps if e.t_s is not None]
        samples = [r for r in telemetry if r.session == number]  # t_s of different sessions cannot be compared
        if times and samples:
            noises.append(measure_noise(samples, (min(times), max(times)), cores))
    worst = worst_noise(noises)
    return worst.sentences() if worst else []
