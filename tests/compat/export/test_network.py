"""Exported networks: how they are written, run, and compared with PyTorch. The command is tested in tests/cli."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.engine.inference.loading import load_trained
from tests.tiny_training import run_training, tiny_config
from vernier.compat.export.network import compare_outputs
from vernier.compat.export.onnx import FORMAT
from vernier.config import Model, Schedule
from vernier.engine.inference.export import export
from vernier.errors import ConfigError, RunFailed


@pytest.mark.parametrize("model", ["resnet8-small", "convnext-tiny"])
def test_an_exported_model_computes_what_pytorch_does(model: str, shapes: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    config = tiny_config(shapes, model=Model(name=model, width=8), schedule=Schedule(epochs=0.2))
    trained = load_trained(run_training(config, tmp_path / "runs").run.path)
    check = export(trained, "onnx", tmp_path / "x.onnx").check
    assert check is not None
    assert check.same_top1 == check.images > 0
    with pytest.raises(ConfigError, match="torchvision cannot build"):
        export(trained, "torchvision", tmp_path / "x.pth")


class TwoHeads(nn.Module):
    """As a detector: boxes and scores."""

    names = ("offsets", "logits")

    def __init__(self) -> None:
        super().__init__()
        self.offsets, self.scores = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 5, 3)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = images.float()
        return self.offsets(x).flatten(2), self.scores(x).flatten(2)


def test_networks_with_several_outputs_are_compared_output_by_output(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    images = torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8)
    network = TwoHeads().eval()
    FORMAT.write(network, TwoHeads.names, images, tmp_path / "x", {})
    run, runtime = FORMAT.open(tmp_path / "x")
    with torch.no_grad():
        expected = network(images)
    check = compare_outputs(expected, run(images), runtime, "here")
    assert check.same_top1 is None
    assert check.max_difference < 1e-3


def test_a_network_that_computes_something_else_is_refused() -> None:
    expected = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(RunFailed, match="the same class for 1 of 2"):
        compare_outputs((expected,), (torch.tensor([[1.0, 2.0], [1.9999, 2.0]]),), "it", "here")
    with pytest.raises(RunFailed, match=r"largest difference 0\.01"):
        compare_outputs((expected,), (expected + 0.01,), "it", "here")
    with pytest.raises(RunFailed, match="not compute what PyTorch does"):
        compare_outputs((expected,), (expected * float("nan"),), "it", "here")
