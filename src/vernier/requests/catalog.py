"""Requests of `recipes` and `models`: what there is."""

from .common import Json
from .declaring import argument, option, request


@request("recipes")
class Recipes(Json):
    """List the built-in recipes, or print one as a TOML file to edit.

    Examples:
        vernier recipes
        vernier recipes shapes-quick > mine.toml
        vernier recipes nvidia-resnet50-90e --speeds
    """

    words: tuple[str, ...] = argument(
        (),
        "Recipe (or model) to print; `show NAME` does the same. Without a name, all recipes are listed.",
        metavar="[RECIPE]",
        repeats=True,
        edge="shell",
    )
    speeds: bool = option(
        False,
        "List published throughputs, latencies and hours to train instead: of one recipe, or all of them.",
        edge="shell",
    )


@request("models")
class Models(Json):
    """List the models with their parameters and their cost per image, or show one.

    Examples:
        vernier models
        vernier models resnet50
        vernier models 'resnet*'
    """

    pattern: str = argument(
        "*",
        "Model to show, with the recipes that train it; or a quoted pattern such as 'resnet*' to list some.",
        metavar="[MODEL]",
    )
