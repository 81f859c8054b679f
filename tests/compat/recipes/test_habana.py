"""Habana's recipes: rates, steps and input scaling as published."""

import pytest
import torch

from tests.optim.golden import rates
from vernier import recipes
from vernier.config import Config, derive, differences
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


def test_one_card_has_the_schedule_of_the_release_whose_result_it_carries() -> None:
    """0.13.0's train.py: lr 0.1, StepLR(step_size=30, gamma=0.1); its README: top-1 75.85 %, top-5 92.88 %."""
    assert rates("habana-resnet50-sgd-1", 0, 30, 45, 60) == pytest.approx([0.1, 0.01, 0.01, 0.001])
    assert recipes.get("habana-resnet50-sgd-1").schedule.milestones == (30, 60)
    published = recipes.get("habana-resnet50-sgd-1").published
    assert {p.metric: p.mean for p in published} == {"top1": 75.85, "top5": 92.88}
    assert all((p.device, p.devices, p.precision) == ("Gaudi", 1, "mixed") for p in published)
    later = recipes.get("habana-resnet50-sgd-1-v1.13")
    assert rates(later.name, 0, 30, 60, 80) == pytest.approx([0.1, 0.01, 0.001, 0.0001])
    assert later.published == ()


def test_the_text_and_the_code_of_the_tensorflow_readme_are_two_recipes() -> None:
    """Text: scale from 8% to 100%, aspect ratio from 3/4 to 4/3, MixUp for 250 epochs. Code: 5 %, 1.33, no MixUp."""
    for epochs, mixup in ((90, 0.0), (250, 0.2)):
        code = recipes.get(f"habana-tf-resnext101-{epochs}e")
        text = recipes.get(f"{code.name}-as-documented")
        assert (code.augment.area, code.augment.ratio, code.augment.mixup) == ((0.05, 1.0), (0.75, 1.33), 0.0)
        assert (text.augment.area, text.augment.ratio, text.augment.mixup) == ((0.08, 1.0), (3 / 4, 4 / 3), mixup)
        changed = {name.split(".")[0] for name in differences(code, text)}
        assert changed == {"name", "about", "augment"} | ({"published"} if code.published else set())
