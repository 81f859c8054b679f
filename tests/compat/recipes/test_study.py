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
    assert rates("study-resnet50", 0, 4, 5) == pytest.approx([0.05, 0.2 * 0.85, 0.2])


def test_the_rate_drops_where_the_script_says() -> None:
    """run-resnet.sh: --lr-decay 30 60 80; 25 35 40 45 50 is the commented-out schedule of K-FAC."""
    assert recipes.get("study-resnet50").schedule.milestones == (30, 60, 80)
    assert rates("study-resnet50", 6, 30, 60, 80) == pytest.approx([0.2, 0.02, 0.002, 0.0002])
