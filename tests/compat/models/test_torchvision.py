"""Models of torchvision: their names, image preparation and published files. Nothing is fetched."""

import pytest
import torch

from vernier.data.downloads import pretrained
from vernier.errors import ConfigError
from vernier.models import build, info
from vernier.recipes import load

from . import torchvision_operators

assert torchvision_operators
pytest.importorskip("torchvision", reason="torchvision is not installed", exc_type=ImportError)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torchvision:efficientnet_b0", (224, 224, 256, "bicubic")),
        ("torchvision:resnet18.IMAGENET1K_V1", (224, 224, 256, "bilinear")),
    ],
)
def test_images_are_prepared_as_published(name: str, expected: tuple[int, int, int, str]) -> None:
    data = load(name).recipe.data
    assert (data.image_px, data.eval_px, data.eval_short_side_px, data.interpolation) == expected


@pytest.mark.parametrize(
    ("name", "part"), [("torchvision:resnet81", "Did you mean"), ("torchvision:resnet18.V3", "IMAGENET1K_V1")]
)
def test_a_wrong_name_is_refused_with_the_nearest(name: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        info(name)


def test_torchvision_publishes_files_with_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERNIER_WEIGHTS_MIRROR", "file:///mirror")
    chosen = pretrained("torchvision:efficientnet_b0.IMAGENET1K_V1")
    assert chosen.url == "file:///mirror/efficientnet_b0_rwightman-7f5810bc.pth"
    assert chosen.checksum.value == "7f5810bc"


@pytest.mark.parametrize(
    "name", ["torchvision:vit_b_16", "torchvision:convnext_tiny", "torchvision:mobilenet_v3_small"]
)
def test_a_model_of_torchvision_tells_the_classes_of_the_data(name: str) -> None:
    with torch.device("meta"):
        built = build(name, num_classes=7, image_px=64)
        assert built(torch.empty(2, 3, 64, 64)).shape == (2, 7)
    assert info(name).layout.classifier
