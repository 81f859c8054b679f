"""What there is: recipes and models. `list_recipes` and `list_models`."""

import fnmatch
from typing import TYPE_CHECKING

from vernier import recipes
from vernier.frozen import frozen
from vernier.models import describe, info
from vernier.requests.catalog import Models, Recipes

from .functions import function
from .runs import Records
from .session import Session

if TYPE_CHECKING:
    from vernier.recipes import RecipeRow


def _recipe_rows(_request: Recipes, _session: Session) -> "Records[RecipeRow]":
    """The built-in recipes."""
    return Records(recipes.table())


@frozen
class ModelRow:
    """A model: its parameters, and its cost for one image of `input_px` squared, forward, in multiply-accumulates."""

    name: str
    family: str
    parameters: int
    gmac: float
    input_px: int
    about: str


def model_rows(request: Models, _: Session) -> Records[ModelRow]:
    """The models whose name fits the pattern. Raises ConfigError for a name that does not exist."""
    pattern = request.pattern
    # A name without wildcards must exist; a pattern may match nothing.
    every = describe() if any(character in pattern for character in "*?[") else [info(pattern)]
    return Records(
        ModelRow(
            name=each.name,
            family=each.family,
            parameters=each.params,
            gmac=round(each.gmac, 3),
            input_px=each.input_px,
            about=each.summary,
        )
        for each in every
        if fnmatch.fnmatchcase(each.name, pattern)
    )


list_recipes = function(Recipes, _recipe_rows, "list_recipes")
list_models = function(Models, model_rows, "list_models")
