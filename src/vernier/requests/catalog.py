"""Requests of `recipes`, `models` and `completion`: what there is."""

from typing import Literal

from .common import Json
from .declaring import Request, argument, option, request


@request("recipes")
class Recipes(Json):
    """List the built-in recipes, or print one as a TOML file to edit.

    Examples:
        vernier recipes
        vernier recipes shapes-quick > mine.toml
        vernier recipes nvidia-resnet50-90e --speeds
        vernier recipes --device-hours 2500
    """

    words: tuple[str, ...] = argument(
        (),
        help="Recipe (or model) to print; `show NAME` does the same. Without a name, all recipes are listed.",
        metavar="[RECIPE]",
        repeats=True,
        completes=("recipe", "model"),
        edge="shell",
    )
    device_hours: str | None = option(
        None,
        help="Also estimate the hours of each recipe, or of the one named, on one device: from a training run measured "
        "there, or from the throughput at which it trains ResNet-50 at 224 pixels, in images per second.",
        metavar="RUN|IMG_PER_S",
        completes=("run",),
    )
    convert: bool = option(
        False,
        help="If the hours are estimated from a run: convert its throughput to the models of the recipes by "
        "multiply-accumulates.",
        advanced=True,
    )
    speeds: bool = option(
        False,
        help="List published throughputs, latencies and hours to train instead: of one recipe, or all of them.",
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
        help="Model to show, with the recipes that train it; or a quoted pattern such as 'resnet*' to list some.",
        metavar="[MODEL]",
        completes=("model",),
    )


@request("completion")
class Completion(Request):
    """Print a completion script for your shell. It works in shells started afterwards.

    It completes commands, flags, recipes, models, data sets, settings and runs. The script calls the `vernier` that
    you type, so it need not be printed again after an update.

    Examples:
        vernier completion bash > ~/.local/share/bash-completion/completions/vernier
        vernier completion zsh > ~/.zfunc/_vernier
        vernier completion fish > ~/.config/fish/completions/vernier.fish
    """

    shell: Literal["bash", "zsh", "fish"] = argument(
        help="Which shell. For zsh, write the script as _vernier into a folder of your $fpath."
    )
