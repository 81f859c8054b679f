import pytest
from torch import nn

from vernier.devices.cpu import Cpu
from vernier.lab.machine import probe


def test_a_probe_has_some_steps_after_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    small = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 1000))
    monkeypatch.setattr(probe, "build", lambda name, num_classes: small)
    speed = probe.probe_training(Cpu(), "fp32", seconds=0)
    assert (speed.steps, speed.device, speed.batch, speed.px) == (2, "cpu", 8, 224)
    assert speed.slowest <= speed.images_per_s <= speed.fastest
