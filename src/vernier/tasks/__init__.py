"""What a label means: loss, prediction, metric. The only code that knows."""

from vernier.config import Recipe
from vernier.models import info
from vernier.tasks.base import Task
from vernier.tasks.classification.task import Classify
from vernier.tasks.detection.task import Detect


def task_of(recipe: Recipe) -> Task:
    """The task of a recipe's network."""
    return Classify(recipe) if info(recipe.model.name).ssd is None else Detect(recipe)
