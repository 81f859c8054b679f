"""Recipes for small sets."""

import pytest

from vernier import recipes


@pytest.mark.parametrize(
    ("name", "images"),
    [("shapes-quick", 8_000), ("ssd-shapes-quick", 4_000), ("ssd-bccd", 205), ("cifar10", 50_000)],
)
def test_small_sets_have_their_own_number_of_images(name: str, images: int) -> None:
    assert recipes.train_images(recipes.get(name)) == images


def test_cifar10_drops_its_rate_where_the_paper_does() -> None:
    """At 32,000 and 48,000 of 64,000 iterations of 128 images."""
    recipe = recipes.get("cifar10")
    steps = [epoch * 50_000 / recipe.global_batch for epoch in recipe.schedule.milestones]
    assert steps == pytest.approx([32_000, 48_000], rel=0.01)
