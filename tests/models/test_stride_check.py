"""Telling v1 weights from v1.5: by metadata, and by photographs."""

from collections.abc import Callable
from pathlib import Path

import pytest
import simplejpeg
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.small_networks import MEAN, STD
from vernier import models
from vernier.models import weights
from vernier.models.stride_check import stride_variant


@pytest.mark.parametrize(
    ("metadata", "name", "fits"),
    [
        ({"arch": "resnet50 v1 (stride 2 in the first 1x1)"}, "resnet50-v1", True),
        ({"arch": "resnet50 v1 (stride 2 in the first 1x1)"}, "resnet50", False),
        ({"arch": "ResNet50 v1.5"}, "resnet50", True),
        ({"arch": "ResNet50 v1.5"}, "resnet50-v1", False),
        ({"model": "resnet50"}, "resnet50-v1", False),
        ({"model": "resnet50-v1"}, "resnet50-v1", True),
        ({"format": "pt"}, "resnet50", True),
    ],
)
def test_the_metadata_of_a_file_is_compared_with_the_models_stride(
    metadata: dict[str, str], name: str, fits: bool
) -> None:
    state = models.build("resnet50", num_classes=3, width=8).state_dict()
    model = models.build(name, num_classes=3, width=8)
    if fits:
        weights.adapt(state, model, metadata=metadata)
        return
    with pytest.raises(ValueError, match="another stride"):
        weights.adapt(state, model, metadata=metadata)


def test_without_evidence_the_report_says_the_stride_was_assumed() -> None:
    state = models.build("resnet50", num_classes=3, width=8).state_dict()
    _, report = weights.adapt(state, models.build("resnet50-v1", num_classes=3, width=8))
    assert report.notes == ("assumed to be v1: names and shapes do not tell v1 from v1.5",)


def photographs(folder: Path, count: int, first: int = 0) -> Tensor:
    """Centre crops of 224 from a short side of 256, normalised."""
    crops = []
    for path in sorted(folder.glob("*.jpg"))[first : first + count]:
        pixels = torch.from_numpy(simplejpeg.decode_jpeg(path.read_bytes())).permute(2, 0, 1)[None].float()
        scale = 256 / min(pixels.shape[2:])
        size = [round(side * scale) for side in pixels.shape[2:]]
        pixels = functional.interpolate(pixels, size=size, mode="bilinear", antialias=True)
        top, left = ((side - 224) // 2 for side in size)
        crops.append((pixels[0, :, top : top + 224, left : left + 224] / 255 - MEAN) / STD)
    return torch.stack(crops)


def with_v15_statistics(state: dict[str, Tensor], images: Tensor) -> dict[str, Tensor]:
    """What the batch norms of the first strided block would remember, had this network been trained as v1.5."""
    model = models.build("resnet50", num_classes=1000).eval()
    fitted, _ = weights.adapt(state, model)
    model.load_state_dict(fitted)
    block, changed = model.get_submodule("layer2.0"), dict(state)

    def remember(name: str) -> Callable[[nn.Module, tuple[Tensor]], None]:
        def hook(_: nn.Module, inputs: tuple[Tensor]) -> None:
            variance, mean = torch.var_mean(inputs[0], dim=(0, 2, 3))
            changed[f"layer2.0.{name}.running_mean"], changed[f"layer2.0.{name}.running_var"] = mean, variance

        return hook

    for name in ("bn2", "bn3"):
        block.get_submodule(name).register_forward_pre_hook(remember(name))
    with torch.inference_mode():
        block(model.stages[0](model.maxpool(model.relu(model.bn1(model.conv1(images))))))
    return changed


def test_photographs_tell_v1_from_v15(real_data: Callable[[str], Path]) -> None:
    state = weights.read(real_data("resnet50-imagenet") / "resnet50-v1-imagenet.safetensors")
    images = photographs(real_data("coco") / "val2017", 8)
    assert stride_variant(state, images).variant == "v1"
    as_v15 = with_v15_statistics(state, photographs(real_data("coco") / "train2017", 16))
    check = stride_variant(as_v15, images)
    assert check.variant == "v1.5"
    assert check.position > 0.75
    with pytest.raises(ValueError, match=r"The weights are v1 and resnet50 is v1\.5.*Use resnet50-v1"):
        weights.adapt(state, models.build("resnet50", num_classes=1000), images=images)
    _, report = weights.adapt(state, models.build("resnet50-v1", num_classes=1000), images=images)
    assert "photographs say v1 " in report.notes[0]


def test_noise_and_unnormalised_photographs_decide_nothing(real_data: Callable[[str], Path]) -> None:
    state = weights.read(real_data("resnet50-imagenet") / "resnet50-v1-imagenet.safetensors")
    torch.manual_seed(0)
    assert stride_variant(state, torch.randn(8, 3, 128, 128)).variant == "unclear"
    images = photographs(real_data("coco") / "val2017", 8)
    assert stride_variant(state, (images * STD + MEAN) * 255).variant == "unclear"


def test_the_stride_check_needs_photographs_and_bottlenecks() -> None:
    state = models.build("resnet50", num_classes=3, width=8).state_dict()
    with pytest.raises(ValueError, match="at least 8"):
        stride_variant(state, torch.zeros(2, 3, 64, 64))
    with pytest.raises(ValueError, match="look like resnet18"):
        stride_variant(models.build("resnet18", num_classes=3, width=8).state_dict(), torch.zeros(8, 3, 64, 64))
