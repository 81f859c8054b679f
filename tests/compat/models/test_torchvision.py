"""Models of torchvision: their names, image preparation and published files. Nothing is fetched."""

from pathlib import Path

import pytest
import torch

import vernier as v
from vernier.api.session import Session
from vernier.data.downloads import pretrained
from vernier.errors import ConfigError
from vernier.lab.api.finetuning import explain_finetuning
from vernier.lab.requests.finetuning import Finetune
from vernier.models import build, info
from vernier.recipes import load
from vernier.requests.wording import Words

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


def test_fine_tuning_starts_from_the_published_weights(shapes: Path) -> None:
    """Explained only: the files have checksums, so a test cannot make one."""
    request = Finetune(folder=str(shapes), model="torchvision:mobilenet_v3_small")
    choices = {
        each.name: each.value
        for each in explain_finetuning(request, Session(Words(Finetune, request), quiet=True)).plan.choices
    }
    assert choices["weights"] == "torchvision:mobilenet_v3_small.DEFAULT"
    assert choices["image size"] == "224 pixels"


@pytest.mark.slow
def test_it_is_fine_tuned_from_a_file(shapes: Path, tmp_path: Path) -> None:
    weights = tmp_path / "weights.pth"
    torch.save(build("torchvision:mobilenet_v3_small", num_classes=1000).state_dict(), weights)
    settings = {"machine.threads": 1, "machine.workers": 0}
    run = v.finetune(
        shapes, model="torchvision:mobilenet_v3_small", weights=weights, image_px=32, epochs=1, quiet=True,
        out=tmp_path, settings=settings,
    )  # fmt: skip
    assert v.load(run.model_file).predict(min(shapes.rglob("*.jpg"))).label in v.load(run).classes
