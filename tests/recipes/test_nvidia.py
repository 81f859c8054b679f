"""NVIDIA's recipes: rates and steps as published."""

import pytest

from tests.optim.golden import rates
from vernier import recipes
from vernier.config import Config, derive


@pytest.mark.parametrize(
    ("name", "lr", "steps"),
    [
        ("nvidia-resnet50-90e", 2.048, 625),
        ("nvidia-resnet50-90e-4096", 4.096, 312),
        ("nvidia-resnet50-90e-896", 0.896, 1429),
        ("nvidia-resnext101-90e", 1.024, 1251),
    ],
)
def test_peak_rates_and_steps_on_imagenet(name: str, lr: float, steps: int) -> None:
    derived = derive(Config(recipe=recipes.get(name)), train_samples=recipes.IMAGENET_TRAIN)
    assert derived.lr == pytest.approx(lr)
    assert derived.steps_per_epoch == steps


def test_the_rate_rises_by_epochs_and_then_follows_a_cosine() -> None:
    assert rates("nvidia-resnet50-90e", 0, 8, 45) == pytest.approx([0.256, 2.048, 1.180313], abs=1e-6)
