"""What there is: recipes and models. `list_recipes` and `list_models`."""

import fnmatch
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from vernier import recipes
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.models import describe, info
from vernier.plugins import needed_plugin
from vernier.references import given, use
from vernier.requests.catalog import Models, Recipes

from .functions import function
from .runs import Records
from .session import Session

if TYPE_CHECKING:
    from vernier.recipes import RecipeRow


def recipe_rows(request: Recipes, session: Session, name: str | None = None) -> "Records[RecipeRow]":
    """The built-in recipes, or the one of a name; with estimated hours on one device if that was asked for."""
    if request.convert and request.device_hours is None:
        raise ConfigError(f"{given('convert', True)} needs {use('device_hours', slot='RUN')}.")
    if name is not None:
        recipes.get(name)
    rows = Records(row for row in recipes.table() if name in (None, row.name))
    return rows if request.device_hours is None else _with_hours(rows, request.device_hours, request.convert, session)


HoursEstimate = Callable[..., tuple[list[tuple[float, tuple[float, float]]], list[str]]]
"""What the entry point of `vernier.hours_estimates` is: called with the names of recipes, a run or a throughput, and
`convert`; gives hours of one device for each recipe with their range, and notes on what they are based on."""


def _with_hours(rows: "Records[RecipeRow]", run_or_rate: str, convert: bool, session: Session) -> "Records[RecipeRow]":
    """Add the estimated hours on one device, and report what they are based on."""
    estimate = needed_plugin("vernier.hours_estimates", "device_hours", run_or_rate)
    hours, notes = estimate([row.name for row in rows], run_or_rate, convert=convert)
    session.warn(*notes)
    return Records(
        replace(row, estimated_device_hours=value, estimated_device_hours_range=between)
        for row, (value, between) in zip(rows, hours, strict=True)
    )


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


list_recipes = function(Recipes, recipe_rows, "list_recipes")
list_models = function(Models, model_rows, "list_models")
