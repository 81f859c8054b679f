"""Every setting has a line of help, and defaults that its own range allows."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from vernier.config import Config, config_from_tree, to_dict


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


def test_settings_never_change() -> None:
    assert all(
        cls.__dataclass_params__.frozen for cls in {type(Config()), type(Config().recipe), type(Config().machine)}
    )
