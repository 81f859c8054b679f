"""Every setting has a line of help, and defaults that its own range allows."""

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from vernier.config import Config, Recipe, config_from_tree, optimizers, to_dict


def _options(value: Any, path: str = "") -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    for field in dataclasses.fields(value):
        name = f"{path}.{field.name}" if path else field.name
        inner = getattr(value, field.name)
        if dataclasses.is_dataclass(inner):
            yield from _options(inner, name)
        else:
            yield name, field


def test_every_setting_has_one_line_of_help() -> None:
    options = dict(_options(Config()))
    assert len(options) > 100
    without = [
        name for name, field in options.items() if not field.metadata.get("doc") or "\n" in field.metadata["doc"]
    ]
    assert without == []


def test_the_defaults_are_a_configuration_that_can_be_written_and_read() -> None:
    assert config_from_tree(to_dict(Config())) == Config()


@pytest.mark.parametrize("name", optimizers())
def test_every_optimizer_is_written_and_read_with_its_own_settings_alone(name: str) -> None:
    config = Config(recipe=Recipe(optim=optimizers()[name]()))
    tree = to_dict(config)["recipe"]["optim"]
    assert tree.keys() == {field.name for field in dataclasses.fields(optimizers()[name])}
    assert tree["name"] == name
    assert config_from_tree(to_dict(config)) == config
    assert all(field.metadata["doc"] for field in dataclasses.fields(optimizers()[name]))


def test_optimizers_are_found_without_importing_torch() -> None:
    """`vernier --help`, recipes and reports are quick because of it."""
    script = "import sys; from vernier.config import Config, described_settings; Config(), described_settings()"
    subprocess.run([sys.executable, "-c", f"{script}; assert 'torch' not in sys.modules"], check=True, timeout=60)


def test_settings_never_change() -> None:
    assert all(
        cls.__dataclass_params__.frozen for cls in {type(Config()), type(Config().recipe), type(Config().machine)}
    )
