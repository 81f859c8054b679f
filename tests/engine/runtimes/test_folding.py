"""Batch norms folded into convolutions: the same outputs, the model itself unchanged."""

import pytest
import torch
from torch import nn

from vernier.engine.runtimes.folding import fold_batch_norms
from vernier.models import build


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
    folded = fold_batch_norms(network)
    with torch.inference_mode():
        expected, outputs = network.eval()(images), folded(images)
    for e, o in zip(*((x if isinstance(x, tuple) else (x,)) for x in (expected, outputs)), strict=True):
        torch.testing.assert_close(o, e, rtol=1e-3, atol=1e-4)
    assert any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())


def test_a_network_without_batch_norms_is_not_copied() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    assert fold_batch_norms(network) is network
