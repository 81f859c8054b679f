"""Convolution kernels that plug in: checked against the device, then used; what happens without them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from tests.tiny_training import run_training, tiny_config
from vernier import plugins
from vernier.config import Config, override
from vernier.devices import Device
from vernier.devices.cpu import Cpu
from vernier.engine import convolutions
from vernier.engine.convolutions import use_kernels
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.engine.training.checkpoints.resume import ResumePoint, run_config
from vernier.errors import ConfigError


def test_kernels_see_the_device_before_they_change_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    class Kernels:
        def check(self, device: Device) -> None:
            calls.append(device)

        def suits(self, model: nn.Module, image_px: int) -> bool:
            return image_px >= 64

        def convert(self, model: nn.Module) -> None:
            calls.append(model)

    monkeypatch.setattr(convolutions, "load_plugin", lambda *names: Kernels)
    device, model, world = Cpu(), nn.Conv2d(3, 4, 3), World(Topology())
    named = override(Config(), "machine.convolution", "winograd")
    assert use_kernels(named, model, device, world) == named
    assert calls == [device, model]
    # By default the kernels decide, once settings leave them the choice.
    large, small = (override(Config(), "data.image_px", px) for px in (64, 63))
    assert use_kernels(large, model, device, world).machine.convolution == "winograd"
    assert calls[2:] == [device, device, model]
    assert use_kernels(small, model, device, world).machine.convolution == "torch"
    for name, value in (("precision", "bf16"), ("mode", "compile"), ("channels_last", False), ("reduction", "exact")):
        other = override(large, f"machine.{name}", value)
        assert use_kernels(other, model, device, world).machine.convolution == "torch"
    assert calls[-1] is device


def test_a_run_resumes_with_the_convolutions_that_it_began_with(shapes: Path, tmp_path: Path) -> None:
    config = tiny_config(shapes)
    run = run_training(config, tmp_path).run
    point = ResumePoint(run, run.checkpoints.newest())
    assert run_config(run).machine.convolution == "torch"  # what auto was: the images are small
    assert point.keep_convolution(config).machine.convolution == "torch"
    written = json.loads((run.path / "config.json").read_text())
    for recorded, kept in (("winograd", "winograd"), (None, "torch")):  # None: a version without the setting
        written["machine"]["convolution"] = recorded
        tree = written | {"machine": {k: v for k, v in written["machine"].items() if v is not None}}
        (run.path / "config.json").write_text(json.dumps(tree))
        assert point.keep_convolution(config).machine.convolution == kept
    named = override(config, "machine.convolution", "torch")
    assert point.keep_convolution(named) == named


def test_without_the_kernels_a_training_run_is_refused_with_what_works_and_the_default_trains(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = plugins.entry_points
    groups = ("vernier.convolutions", "vernier.decoders")
    monkeypatch.setattr(
        plugins, "entry_points", lambda group, **more: () if group in groups else installed(group=group)
    )
    plugins.plugin_names.cache_clear()
    config = tiny_config(shapes)
    with pytest.raises(ConfigError, match="no installed package offers it") as caught:
        run_training(replace(config, machine=replace(config.machine, convolution="winograd")), tmp_path / "winograd")
    assert caught.value.given == {"machine.convolution": "winograd"}
    assert caught.value.works == [("machine.convolution", "torch")]
    run_training(config, tmp_path / "torch")
    plugins.plugin_names.cache_clear()
