"""Warnings about configurations that are allowed and probably not meant."""

import pytest

from vernier import recipes
from vernier.config import Config, config_warnings, override_from_text
from vernier.models import is_detector


def warnings_of(recipe: str, *settings: str) -> tuple[str, ...]:
    config = Config(recipe=recipes.get(recipe))
    for setting in settings:
        config = override_from_text(config, setting)
    return config_warnings(config, detector=is_detector(config.recipe.model.name))


LATE_MILESTONE = "habana-ssd-1"  # its documents name a milestone after its end


@pytest.mark.parametrize("name", sorted({*recipes.names()} - {LATE_MILESTONE}))
def test_built_in_recipes_are_as_meant(name: str) -> None:
    assert warnings_of(name) == ()


@pytest.mark.parametrize(
    ("recipe", "setting", "words"),
    [
        ("nvidia-resnet50-90e", "schedule.epochs=10", "the warm-up takes 8 of 10 epochs"),
        ("cifar10", "schedule.epochs=20", "no milestone is reached in 20 epochs"),
        ("cifar10", "schedule.epochs=100", "not all milestones are reached"),
        ("ffcv-resnet50-16e", "schedule.epochs=5", "never leaves 160 px"),
        ("ffcv-resnet50-16e", "schedule.epochs=11", "and does not reach"),
        ("habana-resnet50-lars", "schedule.epochs=10", "the rate would reach its end at epoch"),
        ("shapes-quick", "data.eval_px=224", "training images have 64 px and evaluation images 224 px"),
        ("shapes-quick", "schedule.end_lr=0.5", "rises from 0.05"),
    ],
)
def test_what_is_probably_not_meant_is_said(recipe: str, setting: str, words: str) -> None:
    extra = ("data.eval_short_side_px=256",) if "eval_px" in setting else ()
    assert any(words in line for line in warnings_of(recipe, *extra, setting)), warnings_of(recipe, setting)


def test_batch_norm_over_few_images_of_a_virtual_shard_is_a_warning() -> None:
    exact = ("machine.reduction=exact", "global_batch=24")
    (warning,) = warnings_of("shapes-quick", *exact)
    assert "each of 12 virtual shards has 2 images" in warning
    assert warnings_of("shapes-quick", *exact, "virtual_shards=3") == ()
    assert warnings_of("shapes-quick", "global_batch=24") == ()
