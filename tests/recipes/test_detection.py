"""Detectors: rates, steps, and the two lineages."""

import pytest

from tests.optim.golden import rates
from vernier import recipes
from vernier.config import Config, derive


@pytest.mark.parametrize(
    ("name", "lr", "steps"),
    [
        ("mlperf-ssd", 0.0025, 3664),
        ("mlperf-ssd-1024", 0.08, 114),
        ("habana-ssd-1", 0.012, 916),
        ("habana-ssd-8", 0.096, 114),
        ("nvidia-ssd-dgx1", 0.0876, 122),
        ("nvidia-ssd300-r50", 0.0416, 229),
    ],
)
def test_peak_rates_and_steps_of_detectors_on_coco(name: str, lr: float, steps: int) -> None:
    derived = derive(Config(recipe=recipes.get(name)), train_samples=recipes.COCO_TRAIN)
    assert derived.lr == pytest.approx(lr)
    assert derived.steps_per_epoch == steps


def test_the_two_lineages_of_ssd_differ_where_they_should() -> None:
    torch_like, tf_like = recipes.get("mlperf-ssd"), recipes.get("habana-ssd-1")
    assert (torch_like.augment.crop, torch_like.augment.jitter, torch_like.detect.match) == ("ssd", "mlperf", "above")
    assert (tf_like.augment.crop, tf_like.augment.jitter, tf_like.detect.match) == ("ssd-tf", "tf", "at-least")
    assert recipes.get("nvidia-ssd300-r50").optim.decay_rule == "norm-and-bias"
    assert rates("nvidia-ssd-dgx1", 0, 40) == pytest.approx([0.0, 0.0876])
