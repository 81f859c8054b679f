"""Networks where recipes are expected."""

import pytest

from vernier import models, recipes
from vernier.config import check_config, config_warnings
from vernier.errors import ConfigError
from vernier.models import is_detector


@pytest.mark.parametrize("name", models.names())
def test_every_network_has_plain_settings_as_published(name: str) -> None:
    config = recipes.load(name)
    entry, recipe = models.info(name), config.recipe
    assert models.shown_name(recipe.model) == recipe.name == name
    assert (recipe.data.image_px, recipe.data.eval_px, recipe.data.source) == (entry.input_px, entry.input_px, "")
    check_config(config, detector=is_detector(name))
    assert config_warnings(config, detector=is_detector(name)) == ()


def test_another_network_comes_as_published_and_names_the_recipe() -> None:
    config = recipes.change(recipes.load("shapes-quick"), {"model.name": "resnet50"}, ()).config
    assert models.shown_name(config.recipe.model) == "resnet50"
    assert (config.recipe.data.image_px, config.recipe.data.eval_px) == (224, 224)
    assert config.recipe.name == "shapes-quick-resnet50"
    assert config.recipe.optim == recipes.get("shapes-quick").optim


def test_a_network_of_the_same_size_keeps_the_image_sizes_of_the_recipe() -> None:
    config = recipes.change(recipes.load("torchvision-resnet50-v2"), {"model.name": "resnet18"}, ()).config
    assert (config.recipe.data.image_px, config.recipe.data.eval_px) == (176, 224)
    assert config.recipe.published == ()


def test_setting_the_network_is_the_same_as_the_flag() -> None:
    by_flag = recipes.change(recipes.load("cifar10"), {"model.name": "resnet50"}, ())
    by_set = recipes.change(recipes.load("cifar10"), {}, ("model.name=resnet50",))
    assert by_flag == by_set


def test_a_width_that_was_set_stays_and_is_named() -> None:
    config = recipes.change(recipes.load("shapes-quick"), {"model.name": "resnet50"}, ("model.width=32",)).config
    assert models.shown_name(config.recipe.model) == "resnet50, width 32"


def test_a_detector_is_no_network_for_a_classifiers_recipe() -> None:
    with pytest.raises(ConfigError, match="Give ssd300-resnet34 as the recipe"):
        recipes.change(recipes.load("cifar10"), {"model.name": "ssd300-resnet34"}, ())


def test_changes_are_in_the_name_of_the_run() -> None:
    config = recipes.change(recipes.load("shapes-quick"), {}, ("model.width=64", "data.image_px=32")).config
    assert config.recipe.name == "shapes-quick-width64-32px"
    assert recipes.reference(config.recipe) == recipes.get("shapes-quick")
