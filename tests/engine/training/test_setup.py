"""From a configuration to a job."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vernier import recipes
from vernier.config import Config
from vernier.engine.training.setup import prepare


def test_what_was_changed_in_the_annotations_is_said_before_training(real_data: Callable[[str], Path]) -> None:
    recipe = recipes.named("ssd-shapes-quick")
    recipe = replace(recipe, data=replace(recipe.data, source=str(real_data("bccd"))))
    job = prepare(Config(recipe=recipe))
    job.close()
    assert "1 box(es) without area inside their image were left out" in job.notes
    assert job.train_source.classes == ("Platelets", "RBC", "WBC")
