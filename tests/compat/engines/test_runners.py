"""What is refused before anything is loaded, each in one sentence with a remedy."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.conftest import REPO
from vernier.compat.engines import runners
from vernier.compat.engines.runners import OnnxRuntime, OpenVino
from vernier.compat.export.network import quiet_exporters
from vernier.compat.export.onnx import FORMAT
from vernier.config import Machine
from vernier.engine.inference.engines import find_engine, installed_engines
from vernier.errors import ConfigError
from vernier.measure import environment

ENGINES = {"onnxruntime": OnnxRuntime, "openvino": OpenVino}


def _installed(monkeypatch: pytest.MonkeyPatch, **versions: str | None) -> None:
    """These versions instead of those that are here."""
    usual = {"onnx": "1.23.2", "onnxscript": "0.7.2", "onnxruntime": "1.31.1", "openvino": "2026.4.1", **versions}
    monkeypatch.setattr(environment, "installed_version", usual.get)


@pytest.mark.parametrize(
    ("settings", "works"),
    [
        ({"engine": "torch", "int8": True}, ("machine.engine", "onnxruntime")),
        ({"engine": "openvino", "int8": True}, ("machine.engine", "auto")),
        ({"device": "cuda"}, ("machine.engine", "torch")),
        ({"mode": "compile"}, ("machine.mode", "eager")),
        ({"precision": "bf16"}, ("machine.precision", "fp32")),  # its CPU provider has no such kernels
        ({"engine": "openvino", "precision": "fp16"}, ("machine.precision", "fp32")),
        ({"engine": "auto", "precision": "bf16"}, ("machine.precision", "fp32")),
        ({"engine": "torch", "allow_lower_precision": True}, ("machine.engine", "auto")),
        ({"engine": "openvino", "allow_lower_precision": True}, ("machine.engine", "auto")),
        ({"engine": "auto", "int8": True, "allow_lower_precision": True}, ("machine.engine", "auto")),
        ({"procs": 2}, ("machine.procs", 1)),
    ],
)
def test_what_an_engine_cannot_do_is_refused(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], works: tuple[str, object]
) -> None:
    _installed(monkeypatch)
    with pytest.raises(ConfigError) as caught:
        find_engine(replace(Machine(engine="onnxruntime"), **settings))  # type: ignore[arg-type]
    assert works in caught.value.works
    refused = set(settings) - {"engine"} - ({"int8"} if "allow_lower_precision" in settings else set())
    assert {f"machine.{name}": settings[name] for name in refused}.items() <= caught.value.given.items()


def test_onnxruntime_has_no_convolution_in_bf16_on_a_cpu(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    import onnx
    import onnxruntime

    kind = onnx.TensorProto.BFLOAT16
    inputs = [onnx.helper.make_tensor_value_info(name, kind, [1, 4, 8, 8][:4]) for name in ("x",)]
    weight = onnx.helper.make_tensor("w", kind, [4, 4, 3, 3], [0.0] * 144)
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"])
    output = onnx.helper.make_tensor_value_info("y", kind, [1, 4, 6, 6])
    graph = onnx.helper.make_graph([node], "g", inputs, [output], [weight])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)], ir_version=10)
    # If this begins to work, the engine can offer bf16.
    with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, openvino=None, onnxscript=None)
    with pytest.raises(ConfigError, match=r"openvino, onnxscript: pip install -U 'vernier\[openvino\]'"):
        find_engine(Machine(engine="openvino"))
    assert installed_engines() == []
    find_engine(Machine(engine="auto"))  # which is PyTorch then
    with pytest.raises(ConfigError, match=r"machine\.int8 = true needs onnxscript: pip install"):
        find_engine(Machine(engine="auto", int8=True))


def test_an_old_version_is_named_with_the_one_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, onnxruntime="1.15.1")
    with pytest.raises(ConfigError, match=r"onnxruntime 1\.22 or newer, and 1\.15\.1 is installed: pip install"):
        find_engine(Machine(engine="onnxruntime"))
    assert installed_engines() == ["openvino"]


def test_the_extras_have_the_same_versions() -> None:
    project = (REPO / "pyproject.toml").read_text()
    for engine in ENGINES.values():
        for package, lowest in engine.packages.items():
            assert f'"{package}>={".".join(map(str, lowest))}"' in project


def test_refusing_imports_neither_torch_nor_an_engine() -> None:
    imported = re.findall(r"^(?:from|import) (\w+)", Path(runners.__file__).read_text(), re.MULTILINE)
    assert set(imported) == {"re", "pathlib", "typing", "vernier"}


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
        FORMAT.write(network, ("offsets", "logits"), torch.zeros(2, 3, 8, 8, dtype=torch.uint8), path, {})
    return network, path


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_outputs_come_in_order_and_stay_valid_after_the_next_call(engine: str, file: tuple[nn.Module, Path]) -> None:
    pytest.importorskip(engine, reason=f"needs vernier[{engine}]")
    network, path = file
    run, name = ENGINES[engine]().open(path)
    assert name.startswith(f"{engine} ")
    assert name.endswith(" on CPU")
    images = torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8)
    outputs = run(images)
    run(torch.zeros(5, 3, 8, 8, dtype=torch.uint8))
    with torch.no_grad():
        for output, expected in zip(outputs, network(images), strict=True):
            torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
