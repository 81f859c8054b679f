"""Compiled and _traced networks learn what the eager one learns; what they cost is counted; nothing is left behind."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
import torch
from torch import nn

from tests.conftest import Done
from vernier.config import Config, Machine, from_dict
from vernier.devices.cpu import Cpu
from vernier.engine.execution import Execution, _fold_batch_norms, _padded, _traced, borrowed, evaluating
from vernier.errors import ConfigError
from vernier.lab.measured.workloads import InferenceLoad
from vernier.models import build
from vernier.records.events import StepEvent
from vernier.store import RunDir

STEPS = 50
AGREES = 1e-3
"""Relative difference of losses over 50 steps: kernels round differently, and rounding grows with every step."""


def _model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )


def _batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    chance = torch.Generator().manual_seed(5)
    return [
        (torch.randn(8, 3, 16, 16, generator=chance), torch.randint(0, 4, (8,), generator=chance)) for _ in range(STEPS)
    ]


def _no_cast() -> Any:
    return Cpu().autocast("fp32")


def _curve(mode: str) -> tuple[list[float], Execution]:
    model = _model()
    execution = Execution(model, Machine(mode=mode, channels_last=False), Cpu())  # type: ignore[arg-type]
    batches = _batches()
    network = execution.training_network(batches[0][0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    losses = []
    for images, labels in batches:
        loss = nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses, execution


@pytest.fixture(scope="module")
def eager() -> tuple[list[float], Execution]:
    return _curve("eager")


def _scores(execution: Execution, count: int) -> torch.Tensor:
    forward = execution.evaluation_network(8)
    with evaluating(execution.model, Cpu()):
        images = torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(9))
        scores: torch.Tensor = forward(images)
    return scores


def test_a_traced_network_learns_the_same(eager: tuple[list[float], Execution]) -> None:
    losses, execution = _curve("trace")
    assert losses == pytest.approx(eager[0], rel=AGREES)
    assert torch.allclose(_scores(execution, 5), _scores(eager[1], 5), rtol=1e-2, atol=1e-3)
    assert execution.compilation.graphs == 2  # one in training, one in evaluation
    assert execution.compilation.seconds > 0


def test_tracing_leaves_statistics_modes_and_chance_alone() -> None:
    model = _model()
    before = {name: b.clone() for name, b in model.named_buffers()}
    seed = torch.get_rng_state()
    _traced(model, torch.zeros(2, 3, 16, 16), _no_cast, training=True)
    _traced(model, torch.zeros(2, 3, 16, 16), _no_cast, training=False)
    assert all(torch.equal(b, before[name]) for name, b in model.named_buffers())
    assert model.training
    assert torch.equal(seed, torch.get_rng_state())


def test_borrowed_weights_reach_a_traced_network_and_go_back() -> None:
    execution = Execution(_model(), Machine(mode="trace", channels_last=False), Cpu())
    own = _scores(execution, 3)
    others = {name: torch.zeros_like(t) for name, t in execution.model.state_dict().items()}
    with borrowed(execution.model, others):
        assert not _scores(execution, 3).any()
    assert torch.equal(_scores(execution, 3), own)


def test_a_short_batch_is_padded_and_what_was_padded_is_cut_off() -> None:
    shapes = []

    def network(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shapes.append(len(images))
        return images.sum((1, 2, 3)), images

    sums, same = _padded(network, torch.ones(3, 1, 2, 2), 8)
    assert shapes == [8]
    assert sums.tolist() == [4.0, 4.0, 4.0]
    assert len(same) == 3


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_a_padded_batch_has_the_layout_of_a_whole_one(layout: torch.memory_format, channels: int) -> None:
    """Another layout would be compiled for again."""
    whole = torch.randn(8, channels, 4, 6).contiguous(memory_format=layout)
    strides = [_padded(lambda images: torch.tensor(images.stride()), whole[:n], 8)[:4].tolist() for n in (8, 4)]
    assert strides[0] == strides[1] == list(whole.stride())
    assert torch.equal(_padded(lambda images: images, whole[:3], 8), whole[:3])


class StaticShapesFake(Cpu):
    """A FAKE of a device that compiles for every shape, such as Gaudi."""

    static_shapes = True


def test_a_device_with_static_shapes_never_sees_a_short_batch() -> None:
    seen: list[int] = []
    model = _model()
    model.register_forward_pre_hook(lambda _, images: seen.append(len(images[0])))
    short = _scores(Execution(model, Machine(channels_last=False), StaticShapesFake()), 3)
    assert seen == [8]
    assert torch.allclose(short, _scores(Execution(model, Machine(channels_last=False), Cpu()), 3), atol=1e-6)


def test_a_network_that_cannot_be_traced_is_refused() -> None:
    from vernier.errors import ConfigError

    class Awkward(nn.Module):
        def forward(self, images: torch.Tensor) -> Any:
            return "no tensor"

    with pytest.raises(ConfigError, match="cannot be traced") as error:
        _traced(Awkward(), torch.zeros(1, 3, 4, 4), _no_cast, training=True)
    assert error.value.works == [("machine.mode", "eager"), ("machine.mode", "compile")]


needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")


@pytest.mark.slow
@needs_compiler
def test_a_compiled_network_learns_the_same_and_compiles_once(eager: tuple[list[float], Execution]) -> None:
    losses, execution = _curve("compile")
    assert losses == pytest.approx(eager[0], rel=AGREES)
    assert torch.allclose(_scores(execution, 8), _scores(eager[1], 8), rtol=1e-2, atol=1e-3)
    _scores(execution, 3)
    assert execution.compilation.graphs == 2
    assert execution.compilation.recompilations == 0
    assert execution.compilation.seconds > 0


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("way", ["default", "reduce-overhead", "max-autotune"])
def test_the_way_to_compile_reaches_pytorch_and_other_backends_refuse_it(
    way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = create_autospec(torch.compile, side_effect=lambda model, **_: model)
    monkeypatch.setattr(torch, "compile", calls)
    machine = Machine(mode="compile", compile=way)
    Execution(_model(), machine, Cpu())
    assert calls.call_args.kwargs["mode"] == way
    assert way in ("default", *torch._inductor.list_mode_options())

    class Elsewhere(Cpu):
        compile_backend = "elsewhere"

    if way == "default":
        Execution(_model(), machine, Elsewhere())
        return
    with pytest.raises(ConfigError) as refused:
        Execution(_model(), machine, Elsewhere())
    assert refused.value.given["machine.compile"] == way


def test_a_frozen_network_has_its_weights_in_its_kernels() -> None:
    frozen = Execution(_model(), Machine(mode="compile", channels_last=False), Cpu(), frozen=True)
    eager = _scores(Execution(_model(), Machine(channels_last=False), Cpu()), 8)
    assert torch.allclose(_scores(frozen, 8), eager, atol=1e-5)
    with torch.no_grad():
        for parameter in frozen.model.parameters():
            parameter.zero_()
    assert torch.allclose(_scores(frozen, 8), eager, atol=1e-5)


@pytest.mark.slow
@needs_compiler
def test_inference_is_measured_with_frozen_weights(shapes: Path) -> None:
    tree = {
        "model": {"name": "resnet8-small", "width": 8},
        "data": {"source": str(shapes), "eval_px": 32, "eval_short_side_px": 32},
    }
    config = from_dict(Config, {"recipe": tree, "machine": {"mode": "compile", "threads": 1, "eval_batch": 8}})
    load = InferenceLoad(config)
    try:
        images = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8)
        load.run(images)
        with torch.no_grad():
            for parameter in load._model.parameters():
                parameter.zero_()
        load.run(images)
        assert load.predicted.abs().max() > 0, "a network of zeros would say zero"
    finally:
        load.close()


@pytest.mark.slow
@needs_compiler
def test_two_processes_learn_the_same_compiled_and_the_result_is_evaluated_frozen(
    vernier: Callable[..., Done], tiny: list[str]
) -> None:
    """The last batch of the evaluation is short: no further graph, in training or out of it."""
    few = [
        *tiny,
        "--procs",
        "2",
        "--max-steps",
        "4",
        "--set",
        "limits.log_every_steps=1",
        "--resume",
        "never",
        "--json",
    ]
    runs = {mode: vernier("train", *few, "--mode", mode) for mode in ("eager", "compile")}
    assert [run.code for run in runs.values()] == [0, 0], runs["compile"].err
    losses = {mode: _losses(run.json()["run"]) for mode, run in runs.items()}
    assert len(losses["compile"]) == 4
    assert losses["compile"] == pytest.approx(losses["eager"], rel=AGREES)
    assert runs["compile"].json()["compilation"]["graphs"] == 2
    assert runs["compile"].json()["compilation"]["recompilations"] == 0
    frozen = vernier("eval", runs["compile"].json()["run"], "--mode", "compile", "--json").json()
    assert (frozen["compilation"]["graphs"], frozen["compilation"]["recompilations"]) == (1, 0)
    assert frozen["top1"] == runs["compile"].json()["result"]["top1"]
    assert frozen["loss"] == pytest.approx(runs["compile"].json()["result"]["loss"], rel=AGREES)


def _losses(run: str) -> list[float]:
    return [e.loss for e in RunDir.open(Path(run)).history() if isinstance(e, StepEvent)]


@pytest.mark.parametrize(("engine", "norms"), [("torch", 1), ("auto", 0)])
def test_batch_norms_are_folded_only_where_the_fastest_was_requested(engine: Any, norms: int) -> None:
    """Otherwise an evaluation would not repeat the figures of its training to the last digit."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    execution = Execution(model, Machine(engine=engine), Cpu(), frozen=True)
    execution.evaluation_network(1)
    network = execution._inference_network()
    assert sum(isinstance(module, nn.BatchNorm2d) for module in network.modules()) == norms
    assert len(list(model.modules())) == 3


@pytest.mark.parametrize("name", ["resnet8-small", "resnet50", "ssd-small", "ssd-fpn-resnet18"])
def test_folded_networks_compute_the_same_without_any_batch_norm(name: str) -> None:
    torch.manual_seed(0)
    px = 64
    network = build(name, num_classes=5, width=8, image_px=px if name.startswith("ssd") else None)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):  # as after a training: statistics that are not 0 and 1
            nn.init.uniform_(module.running_mean, -1, 1)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
    images = torch.randn(2, 3, px, px)
    folded = _fold_batch_norms(network)
    with torch.inference_mode():
        expected, outputs = network.eval()(images), folded(images)
    for e, o in zip(*((x if isinstance(x, tuple) else (x,)) for x in (expected, outputs)), strict=True):
        torch.testing.assert_close(o, e, rtol=1e-3, atol=1e-4)
    assert any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())


def test_a_network_without_batch_norms_is_not_copied() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    assert _fold_batch_norms(network) is network
