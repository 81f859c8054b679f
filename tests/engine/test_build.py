"""The device and the network of a configuration."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.tiny_training import tiny_config
from vernier.compat.devices.mps import Mps
from vernier.config import Config, Machine, override
from vernier.devices.cpu import Cpu
from vernier.engine.build import build_model, build_model_for_data, local_torch_device, prepare_device, threads_notes
from vernier.errors import ConfigError
from vernier.references import use
from vernier.tasks import task_of

CPU = torch.device("cpu")


def test_the_network_has_the_classes_of_the_data_and_the_same_weights_for_the_same_seed(shapes: Path) -> None:
    config = tiny_config(shapes)
    task = task_of(config.recipe)
    source = task.open("train")
    first, again = (build_model_for_data(config, task, source, CPU).state_dict() for _ in range(2))
    other = build_model_for_data(override(config, "seed", 2), task, source, CPU).state_dict()
    assert first["fc.weight"].shape[0] == 10
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["conv1.weight"], other["conv1.weight"])


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("model.num_classes", 7, r"model.num_classes = 7, but the data has 10 classes \(arrow, crescent, cross, ...\)"),
        ("data.mean", (0.5,), r"1 and 3 values.*3 for color"),
        ("data.std", (0.5,), r"3 and 1 value"),
    ],
)
def test_a_network_that_does_not_fit_the_data_is_refused(
    shapes: Path, setting: str, value: object, message: str
) -> None:
    config = override(tiny_config(shapes), setting, value)

    def build() -> None:
        task = task_of(config.recipe)
        build_model_for_data(config, task, task.open("train"), CPU)

    with pytest.raises(ConfigError, match=message):
        build()


def test_the_memory_layout_is_the_machines(shapes: Path) -> None:
    config = tiny_config(shapes)
    for channels_last in (True, False):
        machine = replace(config.machine, channels_last=channels_last)
        weight = build_model(replace(config, machine=machine), 10, 3, CPU).state_dict()["conv1.weight"]
        assert weight.is_contiguous(memory_format=torch.channels_last) is channels_last


def test_a_device_without_the_channels_last_layout_gets_contiguous_weights(
    shapes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cpu, "channels_last", False)
    weight = build_model(tiny_config(shapes), 10, 3, CPU).state_dict()["conv1.weight"]
    assert weight.is_contiguous()
    assert not weight.is_contiguous(memory_format=torch.channels_last)


def test_the_device_gets_the_threads_of_the_machine() -> None:
    before = torch.get_num_threads()
    try:
        device, threads = prepare_device(Config(machine=Machine(device="cpu", threads=1)))
        assert (device.name, threads, torch.get_num_threads()) == ("cpu", 1, 1)
        assert local_torch_device(device) == CPU
    finally:
        torch.set_num_threads(before)


def test_a_number_of_threads_that_is_not_used_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    (note,) = threads_notes(Config(), 2)
    assert "OMP_NUM_THREADS=3 is not used: 2 threads" in note
    assert use("machine.threads", 3) in note
    assert threads_notes(Config(), 3) == ()
    assert threads_notes(override(Config(), "machine.threads", 2), 2) == ()


class NoCollectives(Cpu):
    backend = None


def test_exact_reduction_has_one_thread_unless_more_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cores of a process depend on the number of processes, and sums on the number of threads."""
    before = torch.get_num_threads()
    monkeypatch.setattr("vernier.engine.build.allowed_cores", lambda: [0, 1, 2])
    config = Config(machine=Machine(device="cpu", reduction="exact"))
    two = override(config, "machine.threads", 2)
    try:
        assert [prepare_device(each, exact=True)[1] for each in (config, two)] == [1, 2]
        assert torch.are_deterministic_algorithms_enabled()
        assert prepare_device(config)[1] == 3
    finally:
        torch.set_num_threads(before)
        torch.use_deterministic_algorithms(False)
    (note,) = threads_notes(config, 1)
    assert f"{use('machine.threads', slot='N')}, the same N for every number of processes" in note
    assert threads_notes(two, 2) == ()


def test_exact_reduction_is_refused_where_it_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(machine=Machine(device="cpu", reduction="exact"))
    with pytest.raises(ConfigError, match="does not work with") as error:
        prepare_device(override(config, "machine.mode", "trace"), exact=True)
    assert ("machine.mode", "eager") in error.value.works
    monkeypatch.setattr("vernier.engine.build.resolve", lambda _: NoCollectives())
    with pytest.raises(ConfigError, match=r"cpu has no collectives.*machine.reduction=ddp"):
        prepare_device(config, exact=True)
    monkeypatch.setattr("vernier.engine.build.resolve", lambda _: Mps())
    with pytest.raises(ConfigError, match=r"machine.reduction = exact: Metal kernels are not guaranteed to repeat"):
        prepare_device(config, exact=True)
