"""What is refused before anything is loaded, each in one sentence with a remedy."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import REPO
from vernier.config import Machine
from vernier.engine.runtimes import requirements
from vernier.engine.runtimes.requirements import PACKAGES, check_engine, installed_engines
from vernier.errors import ConfigError
from vernier.measure import environment


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
        ({"precision": "bf16"}, ("machine.precision", "fp32")),
        ({"procs": 2}, ("machine.procs", 1)),
    ],
)
def test_what_an_engine_cannot_do_is_refused(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], works: tuple[str, object]
) -> None:
    _installed(monkeypatch)
    with pytest.raises(ConfigError) as caught:
        check_engine(replace(Machine(engine="onnxruntime"), **settings))  # type: ignore[arg-type]
    assert works in caught.value.works
    refused = set(settings) - {"engine"}
    assert {f"machine.{name}": settings[name] for name in refused}.items() <= caught.value.given.items()


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, openvino=None, onnxscript=None)
    with pytest.raises(ConfigError, match=r"openvino, onnxscript: pip install -U 'vernier\[openvino\]'"):
        check_engine(Machine(engine="openvino"))
    assert installed_engines() == []
    check_engine(Machine(engine="auto"))  # which is PyTorch then
    with pytest.raises(ConfigError, match=r"machine\.int8 = true needs onnxscript: pip install"):
        check_engine(Machine(engine="auto", int8=True))


def test_an_old_version_is_named_with_the_one_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, onnxruntime="1.15.1")
    with pytest.raises(ConfigError, match=r"onnxruntime 1\.22 or newer, and 1\.15\.1 is installed: pip install"):
        check_engine(Machine(engine="onnxruntime"))
    assert installed_engines() == ["openvino"]


def test_the_extras_have_the_same_versions() -> None:
    project = (REPO / "pyproject.toml").read_text()
    for packages in PACKAGES.values():
        for package, lowest in packages.items():
            assert f'"{package}>={".".join(map(str, lowest))}"' in project


def test_refusing_imports_neither_torch_nor_an_engine() -> None:
    imported = re.findall(r"^(?:from|import) (\w+)", Path(requirements.__file__).read_text(), re.MULTILINE)
    assert set(imported) == {"re", "vernier"}
