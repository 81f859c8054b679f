"""Flags that choose a model for `eval`, `predict` and `export`: a run, a checkpoint, an exported file, or weights."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from vernier import recipes
from vernier.cli.flags import NetworkFlag, OptionalFile, optional
from vernier.cli.launching import fetch_with_bar
from vernier.config import MACHINE_FILE
from vernier.data.preparing.pretrained import is_pretrained
from vernier.errors import ConfigError

if TYPE_CHECKING:
    from vernier.engine.inference.trained import Change, ModelChoice, Trained

ModelPath = Annotated[
    Positional[str | None],
    optional(
        "[RUN|CHECKPOINT|FILE]",
        help="A run directory, one of its checkpoints, or a file that `vernier export` wrote.",
    ),
]
ModelFlag = Annotated[
    NetworkFlag,
    arg(help="With --weights: the network they belong to (see `vernier models`). Left out: as the file says."),
]
WeightsFlag = Annotated[
    OptionalFile,
    arg(
        help="Weights of others instead of a run: a safetensors or torch file, which is never run as code, or "
        "published ones by name: torchvision:resnet50-v2."
    ),
]
ClassesFlag = Annotated[
    OptionalFile,
    arg(help="With --weights: a text file with the class names, one per line, in the order of the outputs."),
]


def check_model_path(path: str | None, weights: str | None) -> Path:
    """Where the model is. Raises ConfigError for none, for two, and for what does not exist; loads nothing.

    Published weights by name are fetched where they are not in the cache.
    """
    if (path is None) == (weights is None):
        raise ConfigError("Which model? Give a run, a checkpoint or an exported file, or --model NAME --weights FILE.")
    if weights is not None and is_pretrained(weights):
        return fetch_with_bar(weights)
    chosen = Path(path or weights or "").expanduser()
    if weights is not None and not chosen.is_file():
        problem = "is a folder, not a weights file" if chosen.is_dir() else "does not exist"
        raise ConfigError(
            f"--weights {weights} {problem}. Give a .safetensors, .pth, .pt or .th file, or published weights by name, "
            "such as torchvision:resnet50-v2."
        )
    if not chosen.exists():
        raise ConfigError(f"{path} does not exist. Give a run directory, a checkpoint or an exported file.")
    return chosen


def with_machine_notes(trained: "Trained", flags: Mapping[str, object], settings: tuple[str, ...]) -> "Trained":
    """The model with notes about the machine file among the flags that its settings are from."""
    notes = recipes.change(trained.config, flags, settings).notes if flags.get(MACHINE_FILE) else ()
    return replace(trained, notes=(*trained.notes, *notes))


def choose_model(
    path: str | None,
    weights: str | None,
    *,
    model: str | None,
    classes: str | None,
    which: str = "latest",
    averaged: bool | None = None,
    changed: "Change | None" = None,
    names_from_data: bool = False,
    split: str | None = None,
) -> "ModelChoice":
    """The model that the flags name. Raises ConfigError for none, for two, and for files that do not exist."""
    chosen = check_model_path(path, weights)
    if model is not None:
        from vernier.models import info

        info(model)
    from vernier.engine.inference.trained import ModelChoice, read_class_names

    return ModelChoice(
        path=chosen,
        model=model,
        which=which,
        averaged=averaged,
        changed=changed,
        class_names=None if classes is None else read_class_names(Path(classes).expanduser()),
        names_from_data=names_from_data,
        split=split,
    )
