"""Trials of `vernier doctor --devices` in this process, on the CPU."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from vernier.config import to_dict
from vernier.devices.cpu import Cpu
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.errors import ConfigError, RunFailed
from vernier.lab.machine.trials import TRIED
from vernier.lab.measured import trial
from vernier.lab.measured.trial import run_trial
from vernier.records.bench import TrialRequest, TrialResult


def tried(name: Any, **machine: Any) -> TrialResult:
    config = replace(TRIED, machine=replace(TRIED.machine, device="cpu", threads=1, **machine))
    return run_trial(TrialRequest(trial=name, config=to_dict(config)), World(Topology()))


def test_a_device_says_what_it_is() -> None:
    identity = tried("identity")
    assert identity.devices[0].name
    assert "collectives gloo" in identity.seen
    assert "step times by host clock" in identity.seen


def test_training_evaluation_copies_and_events_say_what_was_seen() -> None:
    assert tried("train").seen.startswith("loss ")
    assert tried("evaluate").seen.startswith("8 images, top1 ")
    assert tried("copies").seen == "without page-locked memory"
    assert tried("events").seen == "none: step times are known by host clock"


def test_a_precision_that_the_device_refuses_is_refused() -> None:
    with pytest.raises(ConfigError, match="tf32"):
        tried("train", precision="tf32")


def test_a_loss_that_is_no_number_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial.TrainingLoad, "step", lambda load: setattr(load, "loss", torch.tensor(torch.nan)))
    with pytest.raises(RunFailed, match="the loss is nan after 2 steps"):
        tried("train")


def test_a_copy_that_comes_back_changed_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cpu, "upload", lambda device, tensor, target: tensor + 1)
    with pytest.raises(RunFailed, match="came back changed"):
        tried("copies")


def test_events_that_give_no_time_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cpu, "step_times", "device events")
    assert "10 products of 256 x 256 took" in tried("events").seen
    monkeypatch.setattr(Cpu, "elapsed_s", lambda device, start, end: 0.0)
    with pytest.raises(RunFailed, match="took 0 s by the device's events"):
        tried("events")
