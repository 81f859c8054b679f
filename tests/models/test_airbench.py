"""The airbench network: whitening filters, initial weights, odd image sizes."""

import torch
from torch.nn import functional

from vernier import models
from vernier.models.airbench import AirbenchNet, _whitening_filters


def airbench(**options: object) -> AirbenchNet:
    torch.manual_seed(0)
    return models.build("airbench94", **{"num_classes": 10, **options})  # type: ignore[return-value]


def test_filters_whiten_the_images_they_were_made_from() -> None:
    """Neighbouring pixels are alike in photographs: the filters take that away."""
    torch.manual_seed(0)
    images = (
        functional.avg_pool2d(torch.randn(64, 3, 34, 34), 3, stride=1) * torch.tensor([4.0, 9.0, 6.0])[:, None, None]
    )
    filters = _whitening_filters(images)
    assert filters.shape == (24, 3, 2, 2)
    values = functional.conv2d(images, filters[:12]).transpose(0, 1).flatten(1)
    covariance = values @ values.T / values.shape[1]
    assert (covariance - torch.diag(covariance.diag())).abs().max() < 0.01
    assert covariance.diag().min() > 0.9  # a little below 1: noise is not blown up
    assert torch.equal(filters[12:], -filters[:12])


def test_grey_images_that_are_all_alike_give_finite_filters() -> None:
    assert torch.isfinite(_whitening_filters(torch.zeros(2, 1, 8, 8))).all()


def test_the_whitening_filters_and_scales_are_not_trained() -> None:
    frozen = {name for name, p in airbench().named_parameters() if not p.requires_grad}
    assert frozen == {"conv1.weight", *(f"layer{s}.0.bn{n}.weight" for s in (1, 2, 3) for n in (1, 2))}


def test_channels_pass_through_a_new_convolution() -> None:
    conv = airbench().layer2[0].conv1  # type: ignore[union-attr, index]
    images = torch.randn(1, 64, 6, 6)
    assert torch.allclose(conv(images)[:, :64], images, atol=1e-6)  # type: ignore[operator]


def test_the_first_outputs_are_small_and_do_not_depend_on_the_width() -> None:
    """The published network divides its outputs by the channels; here the weights of the head are as small."""
    for width in (16, 64):
        net = airbench(width=width)
        assert 0.9 < net.fc.weight.std().item() * net.fc.in_features < 1.1


def test_small_and_odd_images_are_taken() -> None:
    assert airbench(in_channels=1, width=16)(torch.randn(2, 1, 10, 11)).shape == (2, 10)
