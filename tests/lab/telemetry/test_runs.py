"""What the samples of a run tell: energy and noise, by the sessions of its events."""

from tests.report.run_dirs import encode_telemetry
from vernier.lab.records.telemetry import Sample
from vernier.lab.telemetry import runs
from vernier.measure.sensors import sensors
from vernier.records.events import Event, StartEvent, StepEvent


def step(t_s: float) -> StepEvent:
    return StepEvent(step=2, epoch=1.0, loss=1.0, lr=0.1, step_s=(1.0, 1.0), wait_s=(0.0, 0.0), samples=10, t_s=t_s)


def lines(session: int, others_pct: float) -> list[dict[str, object]]:
    samples = [
        Sample(device_kind="cpu", device=0, t_s=float(t), session=session, energy_j=7.0 * t, others_pct=others_pct)
        for t in range(8)
    ]
    return [encode_telemetry(sample) for sample in samples]


def test_it_is_what_the_core_loads() -> None:
    assert sensors() is runs


def test_energy_is_that_of_the_newest_session() -> None:
    events: list[Event] = [StartEvent(), step(100.0), StartEvent(), step(6.0)]
    energy, missing = runs.energy(events, [*lines(0, 0.0), *lines(1, 0.0)])
    assert missing is None
    assert energy is not None
    assert round(energy.joules_per_image, 3) == 1.4
    assert runs.energy([StartEvent(), step(5.0)], [])[1] == "sensors were not read (machine.telemetry_hz=0)"


def test_noise_of_the_worst_session_is_described() -> None:
    events: list[Event] = [StartEvent(), step(6.0), step(7.0), StartEvent(), step(6.0), step(7.0)]
    (text,) = runs.disturbances(events, [*lines(0, 0.0), *lines(1, 50.0)], 4)
    assert text == "other programs used 2.00 cores"
    assert runs.disturbances(events, [], 4) == []
