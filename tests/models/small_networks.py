"""Networks, constants and comparisons that tests of models share."""

import torch
from torch import Tensor

from vernier import models
from vernier.models.resnet import ResNet

CLASSIFIERS = [entry for entry in models.describe() if not entry.detector]
MEAN, STD = torch.tensor([0.485, 0.456, 0.406])[:, None, None], torch.tensor([0.229, 0.224, 0.225])[:, None, None]


def tiny(**options: object) -> ResNet:
    return models.build("resnet8-small", **{"num_classes": 4, "width": 4, **options})


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
