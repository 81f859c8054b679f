"""The contract of sensors: a run without a package that reads them says so."""

import pytest

from vernier.measure import run_summary
from vernier.measure.run_summary import summarize_training
from vernier.records.events import StartEvent, StepEvent


def test_without_a_package_that_reads_sensors_the_energy_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_summary, "sensors", lambda: None)
    step = StepEvent(step=20, epoch=1.0, loss=1.0, lr=0.1, step_s=(0.5,) * 20, wait_s=(0.0,) * 20, samples=160)
    speed = summarize_training([StartEvent(), step], global_batch=8, devices=1)
    assert speed is not None
    assert (speed.energy, speed.energy_missing) == (None, "no installed package reads sensors")
