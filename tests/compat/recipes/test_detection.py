"""Detectors: rates, steps, and the two lineages."""

import numpy as np
import pytest

from tests.optim.golden import rates
from vernier import recipes
from vernier.config import Config, derive, override
from vernier.data.augment.boxes import _choose_window, _crop_rule


@pytest.mark.parametrize(
    ("name", "lr", "steps"),
    [
        ("mlperf-ssd", 0.0025, 3664),
        ("mlperf-ssd-1024", 0.08, 114),
        ("habana-ssd-1", 0.012, 917),
        ("habana-ssd-8", 0.096, 115),
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
    assert (torch_like.detect.contested, tf_like.detect.contested) == ("last", "first")
    assert recipes.get("nvidia-ssd300-r50").optim.decay_rule == "norm-and-bias"
    assert rates("nvidia-ssd-dgx1", 0, 40) == pytest.approx([0.0, 0.0876])


@pytest.mark.parametrize(("name", "steps", "total"), [("habana-ssd-1", 917, 58_688), ("habana-ssd-8", 115, 7_360)])
def test_steps_are_those_that_habanas_document_computes(name: str, steps: int, total: int) -> None:
    """ceil(117266 / 128) = 917 and 917 * 64 = 58688; ceil(117266 / (128 * 8)) = 115 and 115 * 64 = 7360."""
    config = override(Config(recipe=recipes.get(name)), "recipe.schedule.epochs", 64.0)
    derived = derive(config, train_samples=recipes.COCO_TRAIN)
    assert (derived.steps_per_epoch, derived.total_steps) == (steps, total)


@pytest.mark.parametrize("name", ["habana-ssd-1", "habana-ssd-8", "google-ssd-tpu32"])
def test_windows_of_the_tensorflow_lineage_are_less_than_twice_as_long_as_wide(name: str) -> None:
    """tf.less(height/width, 2) and tf.less(width/height, 2), in Habana's and in Google's data loader."""
    rule = _crop_rule(recipes.get(name).augment)
    assert rule is not None
    ltrb, shapes = np.array([[0.45, 0.45, 0.55, 0.55]]), []
    for index in range(600):
        left, top, right, bottom = _choose_window(ltrb, 10_000, 10_000, rule, 3, index)
        shapes.append((right - left) / (bottom - top))
    assert min(shapes) > 0.4999
    assert min(shapes) < 0.55  # they come near the bound
    assert 1.8 < max(shapes) < 2.0001
