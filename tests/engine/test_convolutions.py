"""Convolution kernels that plug in: checked against the device, then used; what happens without them."""

from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from tests.tiny_training import run_training, tiny_config
from vernier import plugins
from vernier.devices import Device
from vernier.devices.cpu import Cpu
from vernier.engine import convolutions
from vernier.engine.convolutions import use_kernels
from vernier.errors import ConfigError


def test_kernels_see_the_device_before_they_change_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    class Kernels:
        def check(self, device: Device) -> None:
            calls.append(device)

        def convert(self, model: nn.Module) -> None:
            calls.append(model)

    monkeypatch.setattr(convolutions, "load_plugin", lambda *names: Kernels)
    device, model = Cpu(), nn.Conv2d(3, 4, 3)
    use_kernels("winograd", model, device)
    assert calls == [device, model]


def test_without_the_kernels_a_training_run_is_refused_with_what_works_and_the_default_trains(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = plugins.entry_points
    groups = ("vernier.convolutions", "vernier.decoders")
    monkeypatch.setattr(
        plugins, "entry_points", lambda group, **more: () if group in groups else installed(group=group)
    )
    config = tiny_config(shapes)
    with pytest.raises(ConfigError, match="no installed package offers it") as caught:
        run_training(replace(config, machine=replace(config.machine, convolution="winograd")), tmp_path / "winograd")
    assert caught.value.given == {"machine.convolution": "winograd"}
    assert caught.value.works == [("machine.convolution", "torch")]
    run_training(config, tmp_path / "torch")
