"""ConvNeXt: weights of torchvision, timm and the authors by their names, initial weights, and stochastic depth.

The forward pass is compared with an independent one in `test_resnet`, checkpointing is tested in `test_recomputing`.
"""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.models.reference_nets import NETWORKS
from vernier import models
from vernier.models import weights
from vernier.models.convnext import ConvNext
from vernier.models.drop_path import DropPath


def convnext(**options: object) -> ConvNext:
    return models.build("convnext-tiny", **{"num_classes": 5, "width": 8, **options})  # type: ignore[return-value]


def renamed(state: dict[str, Tensor], blocks: str, down: str, layers: dict[str, str]) -> dict[str, Tensor]:
    """A state dict with the names of other code, written as its modules are; scales of branches have one axis."""
    theirs = {}
    for name, tensor in state.items():
        match = re.fullmatch(r"features\.(\d)\.(\d+)\.(.+)", name)
        if match is None:
            theirs[name] = tensor
            continue
        part, number, rest = int(match[1]), match[2], match[3]
        prefix = (blocks if part % 2 else down).format(part // 2, number)
        for own, other in layers.items():
            rest = re.sub(rf"^{own}(?=$|\.)", other, rest)
        theirs[f"{prefix}.{rest}"] = tensor.flatten() if rest == "gamma" else tensor
    return theirs


def timm(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """timm 1.0, models/convnext.py: convnext_tiny.fb_in1k."""
    layers = {"block.0": "conv_dw", "block.2": "norm", "block.3": "mlp.fc1", "block.5": "mlp.fc2"}
    layers["layer_scale"] = "gamma"
    theirs = renamed(state, "stages.{}.blocks.{}", "stages.{}.downsample.{}", layers)
    pairs = {"stages.0.downsample.": "stem.", "classifier.0.": "head.norm.", "classifier.2.": "head.fc."}
    return {_replaced(name, pairs): tensor for name, tensor in theirs.items()}


def facebook(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """github.com/facebookresearch/ConvNeXt, models/convnext.py."""
    layers = {"block.0": "dwconv", "block.2": "norm", "block.3": "pwconv1", "block.5": "pwconv2"}
    layers["layer_scale"] = "gamma"
    theirs = renamed(state, "stages.{}.{}", "downsample_layers.{}.{}", layers)
    pairs = {"classifier.0.": "norm.", "classifier.2.": "head."}
    return {_replaced(name, pairs): tensor for name, tensor in theirs.items()}


def _replaced(name: str, pairs: dict[str, str]) -> str:
    return next((new + name.removeprefix(old) for old, new in pairs.items() if name.startswith(old)), name)


@pytest.mark.parametrize(("source", "rename"), [("torchvision", dict), ("timm", timm), ("facebook", facebook)])
def test_third_party_weights_give_the_same_logits(
    source: str, rename: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> None:
    torch.manual_seed(0)
    trained, fresh = convnext(), convnext()
    for parameter in trained.parameters():
        parameter.data.normal_(0, 0.3)
    theirs = rename(trained.state_dict())
    assert weights.identify(theirs) == "convnext-tiny"
    fitted, report = weights.adapt({f"module.{name}": tensor for name, tensor in theirs.items()}, fresh)
    assert (report.source, report.dropped, report.missing) == (source, (), ())
    fresh.load_state_dict(fitted)
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(fresh(images), trained(images))
        torch.testing.assert_close(
            fresh(images), NETWORKS["convnext-tiny"](fitted, images, False), rtol=1e-3, atol=1e-3
        )


def test_the_names_are_timms() -> None:
    """Some of the keys of convnext_tiny.fb_in1k, as published."""
    keys = set(timm(models.build("convnext-tiny", num_classes=1000).state_dict()))
    assert len(keys) == 182
    assert {
        "stem.0.weight",
        "stem.1.bias",
        "stages.0.blocks.0.gamma",
        "stages.1.downsample.0.weight",
        "stages.3.downsample.1.bias",
        "stages.2.blocks.8.conv_dw.weight",
        "stages.2.blocks.8.norm.weight",
        "stages.3.blocks.2.mlp.fc1.bias",
        "stages.3.blocks.2.mlp.fc2.weight",
        "head.norm.weight",
        "head.fc.weight",
    } <= keys


def test_a_new_classifier_keeps_the_norm_before_it() -> None:
    trained, fresh = convnext(num_classes=9), convnext()
    with pytest.raises(ValueError, match="9 classes and the model has 5"):
        weights.adapt(trained.state_dict(), fresh)
    fitted, report = weights.adapt(trained.state_dict(), fresh, reset_head=True)
    assert report.missing == report.dropped == ("classifier.2.weight", "classifier.2.bias")
    assert torch.equal(fitted["classifier.0.weight"], trained.state_dict()["classifier.0.weight"])


def test_another_width_is_named_in_the_error() -> None:
    with pytest.raises(ValueError, match="do not fit convnext-tiny") as error:
        weights.adapt(convnext(width=16).state_dict(), convnext())
    assert error.value.works == [("model.width", 16)]  # type: ignore[attr-defined]


def test_initial_weights() -> None:
    torch.manual_seed(1)
    model = convnext(width=96)
    linear = model.get_parameter("features.3.0.block.3.weight")
    assert linear.std().item() == pytest.approx(0.02, rel=0.02)
    assert not model.get_parameter("features.3.0.block.3.bias").any()
    x = torch.randn(1, 96, 4, 4)
    torch.testing.assert_close(model.features[1](x), x, atol=1e-4, rtol=0)  # blocks begin as the identity


def test_drop_path_grows_linearly_from_none_to_the_last_block() -> None:
    rates = [module.rate for module in convnext(drop_path=0.34).modules() if isinstance(module, DropPath)]
    assert rates == pytest.approx([0.02 * number for number in range(18)])
