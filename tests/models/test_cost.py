"""Counting parameters and multiply-accumulates."""

import torch
from torch import nn

from vernier import models
from vernier.models.cost import cost


def test_counting_cost_leaves_the_model_alone() -> None:
    model = models.build("resnet8-small", num_classes=3, drop_path=0.5).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state = torch.get_rng_state()
    assert cost(model, (3, 32, 32)) == cost(model.eval(), (3, 32, 32))
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


def test_cost_of_one_convolution_by_hand() -> None:
    assert cost(nn.Conv2d(3, 8, 3, padding=1, groups=1), (3, 10, 20)).macs == 10 * 20 * 8 * 3 * 9
