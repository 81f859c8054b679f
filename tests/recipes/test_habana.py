"""Habana's recipes: rates, steps and input scaling as published."""

import pytest
import torch

from tests.optim.golden import rates
from vernier import recipes
from vernier.config import Config, derive
from vernier.data.augment.normalize import Normalizer


@pytest.mark.parametrize(
    ("name", "lr", "steps"),
    [
        ("habana-resnet50-sgd-8", 0.8, 625),
        ("habana-resnet50-lars", 9.0, 625),
        ("habana-tf-resnext101-90e", 0.128, 10009),
        ("habana-tf-resnext101-90e-64", 8.192, 156),
    ],
)
def test_peak_rates_and_steps_on_imagenet(name: str, lr: float, steps: int) -> None:
    derived = derive(Config(recipe=recipes.get(name)), train_samples=recipes.IMAGENET_TRAIN)
    assert derived.lr == pytest.approx(lr)
    assert derived.steps_per_epoch == steps


def test_rates_are_those_of_the_published_commands() -> None:
    published = [0.1, 0.275, 0.45, 0.625, 0.8, 0.08, 0.008, 0.0008]
    assert rates("habana-resnet50-sgd-8", 0, 1, 2, 3, 4, 30, 60, 80) == pytest.approx(published)
    assert rates("habana-tf-resnext101-90e", 8)[0] / 0.128 == pytest.approx(0.98063, abs=1e-5)


def test_the_tensorflow_recipe_subtracts_the_mean_only() -> None:
    recipe = recipes.get("habana-tf-resnext101-90e")
    grey = torch.full((1, 3, 1, 1), 200, dtype=torch.uint8)
    scaled = Normalizer(recipe.data, torch.device("cpu"))(grey).flatten()
    torch.testing.assert_close(scaled, torch.tensor([200 - 123.68, 200 - 116.78, 200 - 103.94]))
