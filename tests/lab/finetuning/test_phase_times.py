"""How long a training will take, from its own steps."""

from pathlib import Path

import pytest

from tests.tiny_training import tiny_config
from vernier.config import Schedule
from vernier.lab.finetuning.phase_times import time_phases


def test_the_total_is_that_of_the_steps_of_both_phases_and_the_evaluations(shapes: Path) -> None:
    config = tiny_config(shapes, schedule=Schedule(epochs=2.0, head_epochs=1.0))
    times = time_phases(config)
    training_s = 10 * times.head_step_s + 10 * times.step_s
    evaluation_s = 2 * 50 / 16 * min(times.head_step_s, times.step_s)
    assert times.total_s(config) == pytest.approx(training_s + evaluation_s)
    assert times.steps == 4


def test_without_a_phase_of_the_head_all_steps_are_alike(shapes: Path) -> None:
    times = time_phases(tiny_config(shapes))
    assert times.head_step_s == times.step_s
    assert times.steps == 2
