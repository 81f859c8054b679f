"""Which model weights belong to."""

from pathlib import Path

import pytest

from vernier.lab.finetuning.recognizing import recognise_network
from vernier.models import build
from vernier.models.weights import save_safetensors


@pytest.mark.parametrize(
    ("metadata", "name"),
    [({}, "resnet50"), ({"arch": "ResNet-50 v1"}, "resnet50-v1"), ({"model": "resnet50-v1"}, "resnet50-v1")],
)
def test_weights_are_v15_unless_their_metadata_names_v1(metadata: dict[str, str], name: str, tmp_path: Path) -> None:
    state = build("resnet50", num_classes=3, width=8).state_dict()
    save_safetensors(state, tmp_path / "w.safetensors", metadata)
    assert recognise_network(str(tmp_path / "w.safetensors")) == name
