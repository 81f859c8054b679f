"""`vernier export`: a run's model written to one file, with a model card."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from vernier.cli.flags import (
    DataFlag,
    EmaFlag,
    JsonFlag,
    NoEmaFlag,
    OptionalFile,
    RunPath,
    Switch,
    WhichFlag,
    choose_averaged,
)
from vernier.cli.output import print_json, say
from vernier.errors import EXIT_DONE

NORMALISED = "The network takes normalised images (float32) instead of uint8 pixels."


def export(
    path: RunPath,
    /,
    *,
    format: Literal["safetensors", "torchvision", "onnx", "torch-export"] = "safetensors",
    out: OptionalFile = None,
    which: WhichFlag = "latest",
    ema: EmaFlag = False,
    no_ema: NoEmaFlag = False,
    data: DataFlag = None,
    normalised_input: Annotated[Switch, arg(help=NORMALISED)] = False,
    card: bool = True,
    json: JsonFlag = False,
) -> int:
    """Write a run's model to one file for use elsewhere, and model_card.md beside it; nothing is overwritten.

    A network (onnx, torch-export) is run on real validation images and compared with PyTorch before it gets its name.

    Args:
        path: A run directory, or one of its checkpoints.
        format: Weights alone: safetensors, with classes, normalisation and result in its metadata, or torchvision's
            state dict (.pth). Networks: onnx, or torch-export (.pt2); they take uint8 pixels and any batch size.
        out: The file to write. Default: named after the recipe, in the current folder.
        which: Which checkpoint of a run.
        data: Data set or folder with the images to check a network on. Default: the run's own.
        card: Write the model card: recipe, data, result, limits, how the file was checked.

    Examples:
        vernier export runs/RUN
        vernier export runs/RUN --which best --format onnx --out shapes.onnx
        vernier export runs/RUN --format torchvision --out shapes.pth
    """
    from vernier.engine.inference.export import export as write
    from vernier.report.model_card import describe_check, write_card

    exported = write(
        Path(path),
        format,
        Path(out) if out else None,
        which=which,
        averaged=choose_averaged(ema, no_ema),
        data=data,
        normalised_input=normalised_input,
    )
    check, card_path = exported.check, None
    if card:
        card_path = write_card(
            exported.path, exported.checkpoint, averaged=exported.averaged, takes=exported.takes, check=check
        )
    if json:
        print_json({"path": exported.path, "format": format, "card": card_path, "check": check})
        return EXIT_DONE
    if check is not None:
        say(describe_check(check))
    if card_path is not None:
        say(f"card: {card_path}")
    sys.stdout.write(f"{exported.path}\n")
    return EXIT_DONE
