"""Recipes, models and this machine from Python."""

import pytest

import vernier as v
from vernier import recipes
from vernier.api.catalog import ModelRow
from vernier.models import names


def test_recipes_are_rows_with_their_published_results() -> None:
    rows = {row.name: row for row in v.list_recipes()}
    assert list(rows) == list(recipes.names())
    assert rows["nvidia-resnet50-90e"].published[0].mean == 77.23


def test_models_are_rows_and_a_table_of_pandas() -> None:
    rows = v.list_models()
    assert [row.name for row in rows] == list(names())
    assert v.list_models("resnet50") == [row for row in rows if row.name == "resnet50"]
    assert [row.name for row in v.list_models("resnet50*")] == ["resnet50", "resnet50-v1"]
    assert v.list_models("zzz*") == []
    pandas = pytest.importorskip("pandas")
    table = v.list_models("ssd*").to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert set(table.columns) == set(ModelRow.__annotations__)


@pytest.mark.parametrize("pattern", ["resnet5*", "resnet5?", "resnet5[0-9]"])
def test_patterns_are_told_from_names(pattern: str) -> None:
    assert "resnet50" in [row.name for row in v.list_models(pattern)]
    with pytest.raises(v.ConfigError):  # a name, which does not exist
        v.list_models(pattern.partition("5")[0] + "5")


def test_names_that_do_not_exist_are_refused_with_near_ones() -> None:
    with pytest.raises(v.ConfigError, match="resnet50"):
        v.list_models("resnet5")
