"""`vernier export`: a model written to one file that describes itself, with a model card."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from vernier.cli.flags import (
    DataFlag,
    EmaFlag,
    JsonFlag,
    NoEmaFlag,
    OptionalFile,
    QuietFlag,
    SetFlag,
    Switch,
    WhichFlag,
    apply_flags,
    choose_averaged,
)
from vernier.cli.launching import load_torch
from vernier.cli.output import inform, print_json, say, set_quiet, show
from vernier.config import Config
from vernier.errors import EXIT_DONE

from .choosing import ClassesFlag, ModelFlag, ModelPath, WeightsFlag, check_model_path, choose_model

NORMALISED = "The network takes normalised images (float32) instead of uint8 pixels."


def export(
    path: ModelPath = None,
    /,
    *,
    model: ModelFlag = None,
    weights: WeightsFlag = None,
    classes: ClassesFlag = None,
    format: Literal["safetensors", "torchvision", "onnx", "torch-export"] = "safetensors",
    out: OptionalFile = None,
    which: WhichFlag = "latest",
    ema: EmaFlag = False,
    no_ema: NoEmaFlag = False,
    data: DataFlag = None,
    normalised_input: Annotated[Switch, arg(help=NORMALISED)] = False,
    card: bool = True,
    settings: SetFlag = (),
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Write a model to one file for use elsewhere, and model_card.md beside it; nothing is overwritten.

    The file says what it is: network, classes, how images are prepared, result. `vernier eval FILE`, `vernier predict
    FILE` and `vernier bench infer FILE` need nothing more.

    A network (onnx, torch-export) is run on real validation images and compared with PyTorch before it gets its name.

    Args:
        format: Weights alone: safetensors, or torchvision's state dict (.pth). Networks: onnx, or
            torch-export (.pt2); they take uint8 pixels and any batch size.
        out: The file to write. Default: named after the recipe, in the current folder.
        which: Which checkpoint of a run.
        data: Data set or folder with the images to check a network on. Default: the run's own. With --weights, class
            names are taken from it too.
        card: Write the model card: recipe, data, result, limits, how the file was checked.

    Examples:
        vernier export runs/RUN
        vernier export runs/RUN --which best --format onnx --out shapes.onnx
        vernier export runs/RUN --format torchvision --out shapes.pth
        vernier export --model resnet50 --weights resnet50-11ad3fa6.pth --classes imagenet.txt
    """
    set_quiet(quiet)
    check_model_path(path, weights)
    load_torch()
    from vernier.api.models import export_choice
    from vernier.engine.inference.export import check_flags, on_cpu
    from vernier.engine.inference.trained import load_model
    from vernier.report.model_card import describe_check

    target = Path(out) if out else None
    check_flags(format, target, data=data if weights is None else None, normalised_input=normalised_input)

    def changed(config: Config) -> Config:
        return on_cpu(apply_flags(config, {"data.source": None if weights is None else data}, settings))

    choice = choose_model(
        path,
        weights,
        model=model,
        classes=classes,
        which=which,
        averaged=choose_averaged(ema, no_ema),
        changed=changed,
        names_from_data=True,
    )
    trained = load_model(choice)
    exported = export_choice(choice, trained, format, target, data, normalised_input, card=card)
    check, card_path = exported.check, exported.card
    if json:
        print_json({"path": exported.path, "format": format, "card": card_path, "check": check, "notes": trained.notes})
        return EXIT_DONE
    for note in trained.notes:
        say(note)
    if check is not None:
        inform(describe_check(check))
    if card_path is not None:
        inform(f"card: {card_path}")
    show(str(exported.path))
    return EXIT_DONE
