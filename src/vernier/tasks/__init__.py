"""What a label means: loss, prediction, metric. The only code that knows."""

from vernier.config import Recipe
from vernier.tasks.base import Task
from vernier.tasks.classify import Classify


def task_of(recipe: Recipe) -> Task:
    """The task of a recipe's network."""
    return Classify(recipe)
