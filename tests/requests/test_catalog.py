"""What `recipes`, `models`, `doctor` and `completion` take."""

import pytest

from vernier.api.functions import options_in_python
from vernier.cli.parser import parse
from vernier.errors import ConfigError
from vernier.requests.catalog import Completion, Models, Recipes


def test_a_recipe_is_named_with_or_without_show() -> None:
    assert parse(Recipes, ["shapes-quick"], "recipes")[0].words == ("shapes-quick",)
    assert parse(Recipes, ["show", "shapes-quick", "--json"], "recipes")[0].words == ("show", "shapes-quick")
    assert parse(Recipes, [], "recipes")[0] == Recipes()


def test_python_has_the_rows_and_not_what_is_printed() -> None:
    assert [option.name for option in options_in_python(Recipes)] == ["device_hours", "convert"]
    assert Recipes(device_hours=2500).device_hours == "2500"  # type: ignore[arg-type]


def test_without_a_pattern_every_model_is_listed() -> None:
    assert parse(Models, [], "models")[0].pattern == "*"
    with pytest.raises(ConfigError, match="b"):
        parse(Models, ["a", "b"], "models")


def test_a_shell_has_to_be_one_that_there_is_a_script_for() -> None:
    assert parse(Completion, ["zsh"], "completion")[0].shell == "zsh"
    with pytest.raises(ConfigError) as refused:
        parse(Completion, ["tcsh"], "completion")
    assert refused.value.given == {"shell": "tcsh"}
