"""Networks as plain modules; what is done with them from Python is in tests/api/test_models.py."""

from pathlib import Path

import pytest
import torch

from vernier.engine.inference.network import create_network
from vernier.errors import ConfigError
from vernier.models import build, weights


def test_a_detector_has_an_output_for_the_background(tmp_path: Path) -> None:
    network, note = create_network("ssd-small", classes=4)
    assert note == ""
    assert network(torch.zeros(1, 3, 128, 128))[1].shape[-1] == 5
    weights.save_torch(network.state_dict(), tmp_path / "d.pth", {})
    same, note = create_network("ssd-small", tmp_path / "d.pth", classes=4)
    assert torch.equal(same.state_dict()["conf.0.weight"], network.state_dict()["conf.0.weight"])
    assert "d.pth" in note
    other, note = create_network("ssd-small", tmp_path / "d.pth", classes=2)
    assert other(torch.zeros(1, 3, 128, 128))[1].shape[-1] == 3
    assert "start fresh" in note


def test_the_catalogue_says_how_many_classes_a_published_network_has() -> None:
    assert create_network("resnet20-cifar")[0](torch.zeros(1, 3, 32, 32)).shape == (1, 10)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    torch.save(build("resnet14-small", num_classes=3).state_dict(), tmp_path / "w.pth")
    with pytest.raises(ConfigError, match=r"do not fit resnet8-small: .*They look like resnet14-small"):
        create_network("resnet8-small", tmp_path / "w.pth")
