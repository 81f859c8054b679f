"""Winograd's algorithm: PyTorch's outputs and gradients to rounding, where it is used, and what it needs."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.tiny_training import events_of, run_training, tiny_config
from vernier.compat.devices.mps import Mps
from vernier.config import Config, Model
from vernier.devices.cpu import Cpu
from vernier.engine.execution import _traced
from vernier.engine.training.checkpoints.resume import choose_resume_point
from vernier.engine.training.session import train
from vernier.errors import ConfigError
from vernier.kernels import winograd
from vernier.kernels.winograd import (
    Winograd,
    WinogradConv2d,
    check_kernels,
    convolve,
    input_gradient,
    weight_gradient,
)
from vernier.models import build
from vernier.records.events import StartEvent

from .built import needs_library

pytestmark = needs_library


def pair(inputs: int, outputs: int, *, bias: bool = False) -> tuple[nn.Conv2d, WinogradConv2d]:
    """PyTorch's convolution and a converted one with the same weights, in training."""
    torch.manual_seed(0)
    usual, own = (nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias).train() for _ in range(2))
    own.load_state_dict(usual.state_dict())
    Winograd().convert(own)
    assert isinstance(own, WinogradConv2d)
    return usual, own


def relative_error(value: Tensor, expected: Tensor) -> float:
    return ((value.double() - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize(
    ("count", "inputs", "outputs", "height", "width"),
    [(4, 32, 32, 16, 16), (3, 64, 48, 19, 17), (2, 33, 85, 24, 25), (70, 32, 96, 1, 1), (64, 48, 37, 2, 3)],
)
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_outputs_and_gradients_are_those_of_pytorch(
    count: int, inputs: int, outputs: int, height: int, width: int, layout: torch.memory_format
) -> None:
    torch.manual_seed(1)
    images = torch.randn(count, inputs, height, width).contiguous(memory_format=layout).requires_grad_()
    weight = torch.randn(outputs, inputs, 3, 3).requires_grad_()
    gradient = torch.randn(count, outputs, height, width).contiguous(memory_format=layout)
    output = convolve(images, weight)
    found = (output, *torch.autograd.grad(output, (images, weight), gradient))
    exact = [tensor.detach().double().requires_grad_() for tensor in (images, weight)]
    expected = F.conv2d(*exact, padding=1)
    for value, reference in zip(
        found, (expected, *torch.autograd.grad(expected, exact, gradient.double())), strict=True
    ):
        assert value.shape == reference.shape
        assert relative_error(value, reference) < 1e-5
    assert output.is_contiguous(memory_format=torch.channels_last)


def test_every_copy_of_the_code_computes_convolutions(level: str) -> None:
    check_kernels()


def test_outputs_depend_neither_on_threads_nor_on_the_other_images(set_threads: None) -> None:
    torch.manual_seed(2)
    images, weight = torch.randn(5, 40, 22, 18), torch.randn(72, 40, 3, 3)
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(convolve(images, weight))
    results.append(torch.cat([convolve(image[None], weight) for image in images]))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.fixture
def set_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_compilers_of_networks_know_the_operations() -> None:
    """Shapes without values, gradients, and what `torch.compile` traces."""
    images, weight = torch.randn(4, 32, 16, 16, requires_grad=True), torch.randn(48, 32, 3, 3, requires_grad=True)
    gradient = torch.randn(4, 48, 16, 16)
    torch.library.opcheck(convolve, (images, weight))
    torch.library.opcheck(input_gradient, (gradient, weight.detach()))
    torch.library.opcheck(weight_gradient, (gradient, images.detach()))


def test_a_traced_network_trains_like_an_eager_one() -> None:
    _, own = pair(32, 32, bias=True)
    images = torch.randn(4, 32, 16, 16)
    gradients = []
    for network in (own, _traced(own, images, nullcontext, training=True)):
        own.zero_grad()
        network(images).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in own.parameters() if parameter.grad is not None])
    assert len(gradients[0]) == 2
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_is_used_in_training_only(bias: bool) -> None:
    usual, own = pair(32, 64, bias=bias)
    images = torch.randn(4, 32, 16, 16)
    assert not torch.equal(own(images), usual(images))
    torch.testing.assert_close(own(images), usual(images), rtol=1e-4, atol=1e-4)
    own(images).square().sum().backward()
    usual(images).square().sum().backward()
    for parameter, expected in zip(own.parameters(), usual.parameters(), strict=True):
        assert parameter.grad is not None
        assert expected.grad is not None
        assert relative_error(parameter.grad, expected.grad.double()) < 1e-5
    few = images[:3]  # 48 tiles
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(own(images), usual(images))
    assert torch.equal(own(few), usual(few))
    assert torch.equal(own.eval()(images), usual(images))


def test_only_its_convolutions_are_converted() -> None:
    network = build("resnet50", num_classes=4)
    Winograd().convert(network)
    converted = [name for name, module in network.named_modules() if type(module) is WinogradConv2d]
    assert len(converted) == 13  # 16 blocks, of which 3 have stride 2
    assert all(name.endswith("conv2") for name in converted)
    others = nn.ModuleList(
        [
            nn.Conv2d(32, 32, 3),
            nn.Conv2d(32, 32, 3, padding=1, groups=2),
            nn.Conv2d(32, 32, 3, padding=2, dilation=2),
            nn.Conv2d(32, 32, 3, padding=1, padding_mode="reflect"),
            nn.Conv2d(32, 32, 5, padding=2),
            nn.Conv2d(3, 64, 3, padding=1),
        ]
    )
    with pytest.raises(ConfigError, match="no effect on this model: it has no 3 x 3 convolution with stride 1"):
        Winograd().convert(others)
    assert all(type(module) is nn.Conv2d for module in others)


def test_other_devices_keep_their_convolutions() -> None:
    Winograd().check(Cpu())
    with pytest.raises(ConfigError) as caught:
        Winograd().check(Mps())
    assert caught.value.given == {"machine.convolution": "winograd"}
    assert caught.value.works == [("machine.device", "cpu")]


# ---------------------------------------------------------------------------------------------------------- a training


def winograd_config(shapes: Path) -> Config:
    config = tiny_config(shapes, model=Model(name="resnet8-small", width=32))
    return replace(config, machine=replace(config.machine, convolution="winograd"))


def test_a_training_says_so_and_repeats_to_the_bit(shapes: Path, tmp_path: Path) -> None:
    """Also when it recomputes activations, and when it was interrupted in between."""
    config = winograd_config(shapes)
    recomputing = replace(config, machine=replace(config.machine, activation_checkpointing=True))
    interrupted = replace(config, limits=replace(config.limits, max_steps=7))
    run_training(interrupted, tmp_path / "c")
    runs = [run_training(config, tmp_path / "a").run, run_training(recomputing, tmp_path / "b").run]
    runs.append(train(config, tmp_path / "c", choose_resume_point(config, tmp_path / "c", "auto", pytest.fail)).run)
    weights = []
    for run in runs:
        ran = events_of(run, StartEvent)[0].ran
        assert ran is not None
        assert "fp32 eager, Winograd convolutions" in ran.line()
        weights.append((run.checkpoints.committed()[-1].path / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] == weights[2]


def test_kernels_that_compute_something_else_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = winograd._multiply
    monkeypatch.setattr(winograd, "_multiply", lambda *tensors, backward: right(*tensors, backward=backward) * 1.001)
    with pytest.raises(ConfigError, match=r"differs from PyTorch's convolution by 1\.0e-03"):
        check_kernels()
