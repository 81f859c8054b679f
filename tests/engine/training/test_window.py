"""Collecting steps until they are reported."""

import torch

from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.engine.training.window import LOG_EVERY_S, StepWindow


def add(window: StepWindow, *losses: float, step_s: float = 0.1) -> None:
    for loss in losses:
        window.add(torch.tensor(loss), step_s, 0.01, 0.05)


def test_with_a_number_of_steps_it_is_full_then_and_never_overdue() -> None:
    window = StepWindow(3)
    add(window, 1.0, 2.0, step_s=10 * LOG_EVERY_S)
    assert (window.is_full, window.overdue) == (False, False)
    add(window, 3.0)
    assert (window.is_full, window.overdue) == (True, False)


def test_without_a_number_of_steps_the_time_decides() -> None:
    window = StepWindow(0)
    add(window, 1.0, step_s=LOG_EVERY_S / 2)
    assert (window.is_full, window.overdue) == (False, False)
    add(window, 1.0, step_s=LOG_EVERY_S)
    assert (window.is_full, window.overdue) == (False, True)


def test_losses_are_those_of_each_step_and_are_gone_after_clearing() -> None:
    window = StepWindow(2)
    add(window, 1.0, 2.0)
    assert window.mean_losses(World(Topology())) == [1.0, 2.0]
    window.clear()
    assert (window.step_s, window.wait_s, window.own_s, window.losses) == ([], [], [], [])
