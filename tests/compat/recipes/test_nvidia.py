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


@pytest.mark.parametrize("epochs", [50, 90, 250])
def test_the_text_and_the_scripts_are_two_recipes(epochs: int) -> None:
    """Text: warm-up by the training's length, no decay on batch norms. Scripts: 8 epochs, projections are decayed."""
    scripts, text = (recipes.get(f"nvidia-resnet50-{epochs}e{end}") for end in ("", "-as-documented"))
    assert (scripts.schedule.warmup_epochs, scripts.optim.decay_rule) == (8, "nvidia-name")
    assert (text.schedule.warmup_epochs, text.optim.decay_rule) == (pytest.approx(epochs / 18), "norm-only")
    assert text.schedule.warmup_form == "line"
    assert text.published == ()
    assert (text.optim.weight_decay, text.optim.lr, text.optim.momentum) == (3.0517578125e-05, 0.256, 0.875)
