"""Activation checkpointing: the same gradients and statistics, with fewer values kept."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vernier import models
from vernier.models.drop_path import PathMasks
from vernier.models.recomputing import recompute_activations

RECOMPUTED: dict[str, dict[str, Any]] = {
    "resnet8-small": {"width": 16},
    "resnet18": {"width": 16, "drop_path": 0.5},
    "se-resnext101-32x4d": {"width": 32, "blurpool": True},
    "ssd-small": {"image_px": 64},
    "convnext-tiny": {"width": 16, "drop_path": 0.5},
}


def train_once(name: str, *, recomputes: bool, autocast: bool = False) -> tuple[dict[str, Tensor], int]:
    """State and gradients after one step of training mode, and the bytes that were kept for the backward pass."""
    torch.manual_seed(1)
    model = models.build(name, num_classes=5, **RECOMPUTED[name]).to(memory_format=torch.channels_last)
    images = torch.randn(4, 3, 64, 64)
    PathMasks(model, 4, torch.device("cpu")).draw(7)
    if recomputes:
        recompute_activations(model)
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            outputs = model(images)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        loss = sum(output.float().square().mean() for output in outputs)
    loss.backward()  # type: ignore[union-attr]
    gradients = {f"{name}.grad": p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {**model.state_dict(), **gradients}, sum(kept.values())


@pytest.mark.parametrize("name", RECOMPUTED)
@pytest.mark.parametrize("autocast", [False, True])
def test_gradients_and_statistics_are_the_same_bit_for_bit(name: str, autocast: bool) -> None:
    usual, kept = train_once(name, recomputes=False, autocast=autocast)
    again, kept_again = train_once(name, recomputes=True, autocast=autocast)
    assert usual.keys() == again.keys()
    assert [key for key in usual if not torch.equal(usual[key], again[key])] == []
    assert kept_again < 0.6 * kept


def test_stochastic_depth_is_part_of_the_comparison() -> None:
    """The masks of the network above leave out some branches, so that repeated masks are visible in gradients."""
    model = models.build("resnet18", num_classes=5, **RECOMPUTED["resnet18"])
    PathMasks(model, 4, torch.device("cpu")).draw(7)
    masks = torch.cat([buffer.flatten() for name, buffer in model.named_buffers() if name.endswith("mask")])
    assert {0.0} < set(masks.tolist())


def test_frozen_batch_norms_stay_frozen() -> None:
    model = models.build("resnet8-small", num_classes=5, width=16)
    recompute_activations(model)
    frozen = [m for m in model.layer1.modules() if isinstance(m, nn.BatchNorm2d)]  # type: ignore[union-attr]
    for norm in frozen:
        norm.eval()
    before = [norm.running_mean.clone() for norm in frozen if norm.running_mean is not None]
    model(torch.randn(2, 3, 32, 32)).sum().backward()
    assert all(torch.equal(norm.running_mean, old) for norm, old in zip(frozen, before, strict=True))  # type: ignore[arg-type]
    assert all(norm.track_running_stats for norm in frozen)


def test_nothing_runs_twice_without_gradients() -> None:
    model = models.build("resnet8-small", num_classes=5, width=16)
    recompute_activations(model)
    calls = []
    model.conv1.register_forward_hook(lambda *_: calls.append(1))  # type: ignore[union-attr, operator]
    with torch.no_grad():
        model(torch.randn(1, 3, 32, 32))
    model(torch.randn(1, 3, 32, 32)).sum().backward()
    assert len(calls) == 3
