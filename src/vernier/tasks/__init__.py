"""Tasks: what a label means. Loss, prediction and metric of classification and detection.

`base` is the contract the engine uses; `classification` and `detection` fulfil it. May import `config`, `data`,
`models` and `records`. The training loop and evaluation are in `engine`, the networks in `models`, augmentation in
`data.augment`.
"""

from vernier.config import Machine, Recipe, check_recipe
from vernier.models import is_detector

from .base import Task
from .classification import Classify
from .detection.task import Detect


def task_of(recipe: Recipe, machine: Machine | None = None) -> Task:
    """Create the task that the recipe's network is made for. Raises ConfigError for settings that do not fit it.

    `machine` has the size of the cache for data at an address; not needed where no data is opened.
    """
    detector = is_detector(recipe.model.name)
    check_recipe(recipe, detector=detector)
    return Detect(recipe) if detector else Classify(recipe, None if machine is None else machine.shard_cache_gb)
