"""`vernier predict`: a trained model applied to images."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from vernier.api.starting import machine_file
from vernier.cli.flags import (
    DataFlag,
    EmaFlag,
    EngineFlag,
    Int8Flag,
    JsonFlag,
    MachineFlag,
    NoEmaFlag,
    OptionalDir,
    QuietFlag,
    SetFlag,
    WhichFlag,
    apply_flags,
    choose_averaged,
)
from vernier.cli.launching import load_torch
from vernier.cli.output import inform, print_result, progress_bar, say, set_quiet
from vernier.config import MACHINE_FILE, Config, refuse_training_settings
from vernier.engine.runtimes.requirements import check_engine
from vernier.errors import EXIT_DONE, EXIT_FAILED, ConfigError

from .choosing import ClassesFlag, ModelFlag, ModelPath, WeightsFlag, choose_model, with_machine_notes


def predict(
    path: ModelPath = None,
    images: Annotated[Positional[tuple[str, ...]], arg(metavar="IMAGE|DIR...", help_behavior_hint="(required)")] = (),
    /,
    *,
    model: ModelFlag = None,
    weights: WeightsFlag = None,
    classes: ClassesFlag = None,
    data: DataFlag = None,
    out: OptionalDir = None,
    min_score: float = 0.3,
    which: WhichFlag = "latest",
    machine: MachineFlag = None,
    engine: EngineFlag = None,
    int8: Int8Flag = False,
    ema: EmaFlag = False,
    no_ema: NoEmaFlag = False,
    settings: SetFlag = (),
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Apply a trained model to images: the five most likely classes, or objects with boxes.

    The model is a run, a checkpoint, a file that `vernier export` wrote, or weights of others (--weights FILE).
    With --out: predictions.json, and pictures (boxes drawn on every image, or one sheet of classes with bars). Images
    are prepared exactly as in evaluation. Exit code 1 when an image could not be read; the others are predicted.

    Args:
        images: Image files, or folders in which to look for them.
        data: With --weights: data set or folder to take the class names from.
        out: Folder for predictions.json and pictures.
        min_score: Hide objects scoring below this; predictions.json keeps all.
        which: Which checkpoint of a run.

    Examples:
        vernier predict runs/RUN photo.jpg
        vernier predict runs/RUN photos --out predicted
        vernier predict runs/RUN photos --engine auto
        vernier predict --model resnet50 --weights resnet50-11ad3fa6.pth --classes imagenet.txt photo.jpg
    """
    set_quiet(quiet)
    if weights is not None and path is not None:
        images = (path, *images)  # there is no run to name in front of the images
        path = None
    if not images:
        raise ConfigError("Which images? Give files or folders after the model: vernier predict RUN photo.jpg")
    if data is not None and weights is None:
        raise ConfigError("--data names the classes of --weights FILE; a run has its own. Leave out --data.")
    flags = {MACHINE_FILE: machine_file(machine, "infer"), "machine.engine": engine, "machine.int8": int8 or None}
    check_engine(apply_flags(Config(), flags, ()).machine)
    refuse_training_settings(settings)
    from vernier.data.sources.files import find_images

    files = find_images([Path(image).expanduser() for image in images])
    load_torch()
    from vernier.engine.inference import predict as predicting
    from vernier.engine.inference.trained import load_model
    from vernier.report.predictions import PredictionWriter

    choice = choose_model(
        path,
        weights,
        model=model,
        classes=classes,
        which=which,
        averaged=choose_averaged(ema, no_ema),
        changed=lambda config: apply_flags(config, {"data.source": data, **flags}, settings),
        names_from_data=True,
    )
    trained = predicting.with_engine_for(with_machine_notes(load_model(choice), flags, settings), files)
    shown = PredictionWriter(
        trained.classes,
        trained.origin,
        Path(out) if out else None,
        min_score,
        prepared=trained.prepared,
        notes=trained.notes,
    )
    with progress_bar("predict") as progress:
        for prediction, done, total in predicting.predict(trained, files):
            shown.add(prediction)
            progress(done, total)
    shown.close()
    if not json:
        inform(f"prepared: {trained.prepared}")
        say(*trained.notes)
    print_result(shown.document(), json, lambda _: shown.lines())
    return EXIT_FAILED if shown.failed else EXIT_DONE
