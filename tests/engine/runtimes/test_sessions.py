"""Engines open a file and compute what PyTorch does, for any batch size."""

from pathlib import Path

import pytest
import torch
from torch import nn

from vernier.engine.inference.export import quiet_exporters, save_onnx
from vernier.engine.runtimes.sessions import open_session


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    pytest.importorskip("onnxscript", reason="needs vernier[onnx]")

    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 5, 3)

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.first(images.float() / 255).flatten(2), self.second(images.float() / 255).flatten(2)

    network, path = TwoHeads().eval(), tmp_path_factory.mktemp("session") / "x.onnx"
    with quiet_exporters():
        save_onnx(network, ("offsets", "logits"), torch.zeros(2, 3, 8, 8, dtype=torch.uint8), path, {})
    return network, path


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_outputs_come_in_order_and_stay_valid_after_the_next_call(engine: str, file: tuple[nn.Module, Path]) -> None:
    pytest.importorskip(engine, reason=f"needs vernier[{engine}]")
    network, path = file
    run, name = open_session(engine, path)
    assert name.startswith(f"{engine} ")
    assert name.endswith(" on CPU")
    images = torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8)
    outputs = run(images)
    run(torch.zeros(5, 3, 8, 8, dtype=torch.uint8))
    with torch.no_grad():
        for output, expected in zip(outputs, network(images), strict=True):
            torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
