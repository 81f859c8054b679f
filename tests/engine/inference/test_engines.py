"""Engines of other packages: offered by name, checked before anything is loaded, and used."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from vernier import plugins
from vernier.config import Config, Machine, override
from vernier.engine.inference.engines import find_engine, installed_engines
from vernier.errors import ConfigError

ENGINE = """
from vernier.errors import ConfigError

class Engine:
    def why_not(self):
        return ""

    def check(self, machine):
        if machine.precision != "fp32":
            raise ConfigError("slides computes in fp32")
"""


@pytest.fixture
def slide_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that offers the engine `slides`."""
    monkeypatch.setattr(plugins, "_loaded", plugins._loaded.__wrapped__)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "slide_rule.py").write_text(ENGINE)
    metadata = tmp_path / "slide_rule-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: slide_rule\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[vernier.engines]\nslides = slide_rule:Engine\n")
    plugins.plugin_names.cache_clear()
    yield
    plugins.plugin_names.cache_clear()


@pytest.mark.usefixtures("slide_rule")
def test_an_engine_of_another_package_is_a_value_of_the_setting() -> None:
    machine = override(Config(), "machine.engine", "slides").machine
    assert type(find_engine(machine)).__name__ == "Engine"
    assert "slides" in installed_engines()
    with pytest.raises(ConfigError, match="slides computes in fp32"):
        find_engine(Machine(engine="slides", precision="bf16"))


def test_without_the_package_the_names_that_work_are_listed() -> None:
    with pytest.raises(ConfigError, match="not one of: torch, auto, onnxruntime, openvino"):
        override(Config(), "machine.engine", "slides")


def test_pytorch_needs_no_engine_and_has_no_int8() -> None:
    assert find_engine(Machine()) is None
    with pytest.raises(ConfigError) as caught:
        find_engine(Machine(int8=True))
    assert ("machine.engine", "auto") in caught.value.works
