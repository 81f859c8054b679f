"""How images are prepared for weights of others."""

import json
from pathlib import Path

import pytest

from vernier.data.downloads import TORCHVISION
from vernier.engine.inference.preparation import _FILES, foreign_config, published_as
from vernier.models import names


@pytest.mark.parametrize(
    ("file", "network", "px", "short_side", "interpolation"),
    [
        ("resnet50-11ad3fa6.pth", "resnet50", 224, 232, "bilinear"),
        ("resnet50-0676ba61.pth", "resnet50", 224, 256, "bilinear"),
        ("resnext101_64x4d-173b62eb.pth", "resnext101-64x4d", 224, 232, "bilinear"),
        ("resnet50_a1_0-14fe96d1.pth", "resnet50", 288, 288, "bicubic"),
        ("resnet50.a1_in1k.safetensors", "resnet50", 288, 288, "bicubic"),
        ("resnet50.ra_in1k.pth.tar", "resnet50", 288, 303, "bicubic"),
        ("resnext50_32x4d.a3_in1k.pth", "resnext50-32x4d", 224, 235, "bicubic"),
        ("resnet20-12fca82f.th", "resnet20-cifar", 32, 32, "bilinear"),
    ],
)
def test_a_published_file_is_known_by_its_name(
    file: str, network: str, px: int, short_side: int, interpolation: str
) -> None:
    published = published_as(Path("/anywhere") / file)
    assert published is not None
    assert published.network == network
    data = foreign_config(network, published).recipe.data
    assert (data.eval_px, data.eval_short_side_px, data.interpolation) == (px, short_side, interpolation)


def test_every_published_file_is_of_a_network_of_the_catalogue() -> None:
    assert {Path(file).stem for file in TORCHVISION.values()} <= _FILES.keys()
    for file in _FILES:
        published = published_as(Path(f"{file}.pth"))
        assert published is not None
        assert published.network in names(), file


@pytest.mark.parametrize("file", ["resnet50.pth", "resnet50-aaaaaaaa.pth", "model.safetensors", "resnet50-11ad3fa6x"])
def test_other_names_say_nothing(file: str, tmp_path: Path) -> None:
    assert published_as(tmp_path / file) is None


def test_timms_configuration_beside_a_file_is_used(tmp_path: Path) -> None:
    config = {
        "architecture": "resnet50",
        "pretrained_cfg": {
            "tag": "ra4_e3600_r224_in1k",
            "input_size": [3, 224, 224],
            "test_input_size": [3, 288, 288],
            "crop_pct": 0.95,
            "test_crop_pct": 1.0,
            "interpolation": "bicubic",
            "mean": [0.5, 0.5, 0.5],
            "std": [0.5, 0.5, 0.5],
            "label_names": ["a", "b"],
        },
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    published = published_as(tmp_path / "model.safetensors")
    assert published is not None
    assert (published.network, published.eval_px, published.short_side_px) == ("resnet50", 288, 288)
    assert (published.mean, published.classes) == ((0.5, 0.5, 0.5), ("a", "b"))
    assert "ra4_e3600" in published.by


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"architecture": "vit", "pretrained_cfg": {}}', '{"model": 3}'])
def test_other_configurations_beside_a_file_are_ignored(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    assert published_as(tmp_path / "model.safetensors") is None


def test_weights_of_others_are_evaluated_at_their_own_size() -> None:
    large, small = foreign_config("resnet50").recipe.data, foreign_config("resnet20-cifar").recipe.data
    assert (large.eval_px, large.eval_short_side_px) == (224, 256)
    assert (small.eval_px, small.eval_short_side_px) == (32, 32)
