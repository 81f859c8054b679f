"""The variability study's recipe."""

import pytest

from tests.optim.golden import rates
from vernier import recipes
from vernier.config import Config, derive


@pytest.mark.parametrize(
    ("name", "lr", "steps"),
    [
        ("study-resnet50", 0.2, 5004),
    ],
)
def test_peak_rates_and_steps_on_imagenet(name: str, lr: float, steps: int) -> None:
    derived = derive(Config(recipe=recipes.get(name)), train_samples=recipes.IMAGENET_TRAIN)
    assert derived.lr == pytest.approx(lr)
    assert derived.steps_per_epoch == steps


def test_the_warm_up_has_goyals_form() -> None:
    assert rates("study-resnet50", 0, 4, 5, 25) == pytest.approx([0.05, 0.2 * 0.85, 0.2, 0.02])
