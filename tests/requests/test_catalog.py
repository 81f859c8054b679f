"""What `recipes`, `models`, `doctor` and `completion` take."""

import pytest

from vernier.api.functions import _options_in_python
from vernier.cli.parser import parse
from vernier.errors import ConfigError
from vernier.requests.catalog import Models, Recipes


def test_a_recipe_is_named_with_or_without_show() -> None:
    assert parse(Recipes, ["shapes-quick"], "recipes")[0].words == ("shapes-quick",)
    assert parse(Recipes, ["show", "shapes-quick", "--json"], "recipes")[0].words == ("show", "shapes-quick")
    assert parse(Recipes, [], "recipes")[0] == Recipes()


def test_python_has_the_rows_and_not_what_is_printed() -> None:
    assert _options_in_python(Recipes) == []


def test_without_a_pattern_every_model_is_listed() -> None:
    assert parse(Models, [], "models")[0].pattern == "*"
    with pytest.raises(ConfigError, match="b"):
        parse(Models, ["a", "b"], "models")
