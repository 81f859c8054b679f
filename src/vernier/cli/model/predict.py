"""`vernier predict`: a trained model applied to images."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from vernier.cli.flags import EmaFlag, JsonFlag, NoEmaFlag, OptionalDir, RunPath, WhichFlag, choose_averaged
from vernier.cli.output import print_result, progress_bar
from vernier.errors import EXIT_DONE, EXIT_FAILED


def predict(
    path: RunPath,
    images: Annotated[Positional[tuple[str, ...]], arg(metavar="IMAGE|DIR...", help_behavior_hint="(required)")],
    /,
    *,
    out: OptionalDir = None,
    min_score: float = 0.3,
    which: WhichFlag = "latest",
    ema: EmaFlag = False,
    no_ema: NoEmaFlag = False,
    json: JsonFlag = False,
) -> int:
    """Apply a trained model to images: the five most likely classes, or objects with boxes.

    With --out: predictions.json, and pictures (boxes drawn on every image, or one sheet of classes with bars). Images
    are prepared exactly as in evaluation. Exit code 1 when an image could not be read; the others are predicted.

    Args:
        path: A run directory, or one of its checkpoints.
        images: Image files, or folders in which to look for them.
        out: Folder for predictions.json and pictures.
        min_score: Hide objects scoring below this; predictions.json keeps all.
        which: Which checkpoint of a run.

    Examples:
        vernier predict runs/RUN photo.jpg
        vernier predict runs/RUN photos --out predicted
        vernier predict runs/RUN photos --json
    """
    from vernier.engine.inference.predict import predict as run
    from vernier.engine.inference.trained import load_trained
    from vernier.report.predictions import PredictionWriter

    trained = load_trained(Path(path), which=which, averaged=choose_averaged(ema, no_ema))
    shown = PredictionWriter(trained.classes, trained.origin, Path(out) if out else None, min_score)
    with progress_bar("predict") as progress:
        for prediction, done, total in run(trained, [Path(i) for i in images]):
            shown.add(prediction)
            progress(done, total)
    shown.close()
    print_result(shown.document(), json, lambda _: shown.lines())
    return EXIT_FAILED if shown.failed else EXIT_DONE
