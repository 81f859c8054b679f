"""Modern recipes: rates, steps and averages as published."""

import pytest

from tests.optim.golden import curve, rates
from vernier import recipes
from vernier.config import Config, derive


@pytest.mark.parametrize(
    ("name", "lr", "steps"),
    [
        ("torchvision-resnet50-v2", 0.5, 1251),
        ("ffcv-resnet50-16e", 1.7, 312),
        ("rsb-resnet50-a3", 0.008, 625),
        ("convnext-tiny-300e", 0.004, 312),
    ],
)
def test_peak_rates_and_steps_on_imagenet(name: str, lr: float, steps: int) -> None:
    derived = derive(Config(recipe=recipes.get(name)), train_samples=recipes.IMAGENET_TRAIN)
    assert derived.lr == pytest.approx(lr)
    assert derived.steps_per_epoch == steps


def test_torchvisions_warm_up_begins_at_one_percent() -> None:
    assert rates("torchvision-resnet50-v2", 0, 4, 5) == pytest.approx([0.005, 0.401, 0.5])


def test_the_rate_of_convnext_rises_for_20_epochs_and_ends_at_one_millionth() -> None:
    assert rates("convnext-tiny-300e", 0, 2, 20) == pytest.approx([0.0, 0.0004, 0.004])
    assert list(curve("convnext-tiny-300e")["rates"].values())[-1] == pytest.approx(1e-6, rel=1e-4)


def test_torchvisions_average_is_stretched_over_its_steps() -> None:
    ema = recipes.get("torchvision-resnet50-v2").ema
    assert ema.decay == pytest.approx(1 - 2e-5 * 1024 * 32 / 600)
    assert (ema.every_steps, ema.copy_epochs, ema.warmup) == (32, 5, False)
