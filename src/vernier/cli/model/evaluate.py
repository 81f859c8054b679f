"""`vernier eval`, `predict` and `export`: what is done with a trained model."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from vernier.cli.flags import (
    DataFlag,
    EmaFlag,
    JsonFlag,
    ModeFlag,
    NoEmaFlag,
    OptionalInt,
    OptionalText,
    SetFlag,
    apply_flags,
    choose_averaged,
    optional,
)
from vernier.cli.launching import console_of, joined, start_processes, with_procs
from vernier.cli.output import print_json, progress_bar, say
from vernier.config import Config
from vernier.errors import EXIT_DONE, EXIT_FAILED, ConfigError

if TYPE_CHECKING:
    from vernier.engine.inference.trained import Trained

NORMALISED = "The network takes images that are normalised already (float32), instead of uint8 pixels."


def evaluate(
    path: Annotated[Positional[str | None], arg(metavar="RUN|CHECKPOINT", help_behavior_hint="")] = None,
    /,
    *,
    model: OptionalText = None,
    weights: Annotated[str | None, optional("FILE")] = None,
    data: DataFlag = None,
    split: Annotated[Literal["val", "test", "train"], optional("val|test|train")] = "val",
    which: Annotated[str, arg(metavar="latest|best|STEP|all")] = "latest",
    procs: OptionalInt = None,
    mode: ModeFlag = None,
    ema: EmaFlag = False,
    no_ema: NoEmaFlag = False,
    flip_tta: bool = False,
    out: Annotated[str | None, optional("DIR")] = None,
    max_eval_steps: OptionalInt = None,
    workers: OptionalInt = None,
    settings: SetFlag = (),
    json: JsonFlag = False,
) -> int:
    """Evaluate a run (finished, running or interrupted), a checkpoint directory, or anybody's weights: every image once.

    For weights of others: vernier eval --model resnet50 --weights FILE --data PATH

    Args:
        path: A run directory, or one of its checkpoints.
        model: With --weights: which network they are of (see `vernier models`).
        weights: A file of weights instead of a run: safetensors or torch, never run as code.
        data: Another data set or folder than the run's own.
        split: Which part of the data.
        which: Which checkpoint of a run; all: every one, in order.
        procs: Processes, one a device; the result is the same to the last digit.
        mode: How the network is executed; left out: as in training, and eager for weights of others.
        out: Where to write what was predicted: detections.json of a detector, in the form of COCO's results.
        flip_tta: Test-time augmentation: add the scores of the mirrored image. Said in the result.
        max_eval_steps: Evaluate on this many batches only.
        workers: Loader threads.
    """
    averaged = choose_averaged(ema, no_ema)
    if (path is None) == (weights is None):
        raise ConfigError("Say what to evaluate: a run or checkpoint directory, or --model NAME --weights FILE.")
    asked = apply_flags(Config(), {"machine.procs": procs}, tuple(s for s in settings if s.startswith("machine.")))
    asked, to_start = with_procs(asked)
    if to_start:
        return start_processes(to_start)
    flags = {
        "data.source": data, "machine.workers": workers, "eval.flip_tta": flip_tta or None,
        "machine.procs": asked.machine.procs, "machine.mode": mode,
    }  # fmt: skip

    def changed(config: Config) -> Config:
        return apply_flags(config, flags, settings)

    results = []
    with joined(asked) as world, console_of(world) as console:
        from vernier.engine.inference.trained import checkpoint_steps, evaluate_trained

        for step in checkpoint_steps(Path(path or "")) if which == "all" else [which]:
            if weights is None:
                trained = _trained_run(path or "", step, averaged, model, changed)
            else:
                trained = _trained_by_others(weights, model, averaged, changed)
            folder = None if out is None else Path(out) / (f"step-{step}" if which == "all" else "")
            watchers = [console] if console else []
            results.append(
                evaluate_trained(trained, data, max_eval_steps, [*watchers], split=split, out=folder, world=world)
            )
            if not json and world.first:
                sys.stdout.write(_evaluated(results[-1]))
    if json and world.first:
        print_json(results if which == "all" else results[0])
    return EXIT_DONE


def _trained_run(
    path: str, which: str, ema: bool | None, model: str | None, changed: Callable[[Config], Config]
) -> "Trained":
    from vernier.engine.inference.trained import load_trained

    if model is not None:
        raise ConfigError("--model goes with --weights FILE; a run knows its own model.")
    return load_trained(Path(path), which=which, averaged=ema, changed=changed)


def _trained_by_others(
    weights: str, model: str | None, ema: bool | None, changed: Callable[[Config], Config]
) -> "Trained":
    from vernier.engine.inference.trained import foreign_config, load_foreign

    if model is None:
        raise ConfigError("--weights needs --model NAME (see `vernier models`): a file of weights does not say.")
    return load_foreign(Path(weights), changed(foreign_config(model)), averaged=ema)


def _evaluated(result: dict[str, Any]) -> str:
    from vernier.report.live.console import figures

    part = "" if result["exact"] else "  PART of the set"
    tta = "  with flip test-time augmentation" if result["flip_tta"] else ""
    step = "" if result["step"] is None else f"weights of step {result['step']:,}, "
    notes = "".join(f"{note}\n" for note in result["notes"])
    return (
        f"{figures(result)}  on {result['samples']:,} "
        f"images of {result['data']}{part}{tta}\n{'averaged ' if result['averaged'] else ''}{step}{result['weights']}; "
        f"{result['images_per_s_total']:,.0f} img/s\n{notes}{_by_class(result)}"
        + "".join(f"wrote {path}\n" for path in result["written"])
    )


def _by_class(result: dict[str, Any], most: int = 20) -> str:
    """AP of a detector's classes, the worst first where there are many."""
    known = [c for c in result.get("classes", []) if c["AP"] is not None]
    shown = sorted(known, key=lambda c: c["AP"])[:most] if len(known) > most else known
    head = f"the {most} weakest of {len(known)} classes:\n" if len(known) > most else ""
    return head + "".join(f"  {c['name']:<20} AP {c['AP']:.4f}  AP50 {c['AP50']:.4f}\n" for c in shown)


def predict(
    path: Annotated[Positional[str], arg(metavar="RUN|CHECKPOINT")],
    images: Annotated[Positional[tuple[str, ...]], arg(metavar="IMAGE|DIR...")],
    /,
    *,
    out: Annotated[str | None, optional("DIR")] = None,
    min_score: float = 0.3,
    which: Annotated[str, arg(metavar="latest|best|STEP")] = "latest",
    ema: EmaFlag = False,
    no_ema: NoEmaFlag = False,
    json: JsonFlag = False,
) -> int:
    """Apply a trained model to images: the five most likely classes, or objects with boxes.

    With --out: predictions.json, and pictures (boxes drawn on every image, or one sheet of classes with bars). Images
    are prepared exactly as in evaluation. Ends with exit code 1 when an image could not be read; the others are done.

    Args:
        path: A run directory, or one of its checkpoints.
        images: Image files, or folders in which to look for them.
        out: Folder for predictions.json and pictures.
        min_score: Least score of an object that is shown; predictions.json has all.
        which: Which checkpoint of a run.
    """
    from vernier.engine.inference.predict import predict as run
    from vernier.engine.inference.trained import load_trained
    from vernier.records.codec import encode
    from vernier.report.predictions import PredictionWriter

    trained = load_trained(Path(path), which=which, averaged=choose_averaged(ema, no_ema))
    shown = PredictionWriter(trained.classes, trained.origin, Path(out) if out else None, min_score)
    with progress_bar("predict") as progress:
        for prediction, done, total in run(trained, [Path(i) for i in images]):
            shown.add(prediction.path, prediction.found, prediction.error)
            progress(done, total)
    shown.close()
    if json:
        print_json(encode(shown.document()))
    else:
        sys.stdout.write("\n".join(shown.lines()) + "\n")
    return EXIT_FAILED if shown.failed else EXIT_DONE


def export(
    path: Annotated[Positional[str], arg(metavar="RUN|CHECKPOINT")],
    /,
    *,
    format: Literal["safetensors", "torchvision", "onnx", "torch-export"] = "safetensors",
    out: Annotated[str | None, optional("FILE")] = None,
    which: Annotated[str, arg(metavar="latest|best|STEP")] = "latest",
    ema: EmaFlag = False,
    no_ema: NoEmaFlag = False,
    data: DataFlag = None,
    normalised_input: Annotated[FlagCreatePairsOff[bool], arg(help=NORMALISED)] = False,
    card: bool = True,
    json: JsonFlag = False,
) -> int:
    """Write a run's model to one file for use elsewhere, and model_card.md beside it; nothing is overwritten.

    A network (onnx, torch-export) is run on real validation images and compared with PyTorch before it gets its name.

    Args:
        path: A run directory, or one of its checkpoints.
        format: Weights alone: safetensors, with classes, normalisation and result in its metadata, or torchvision's state
            dict (.pth). Networks: onnx, or torch-export (.pt2); they take uint8 pixels and any batch size.
        out: The file; left out: named after the run, in this folder.
        which: Which checkpoint of a run.
        data: Data set or folder with the images to check a network on; left out: the run's own.
        card: Write the model card: recipe, data, result, limits, how the file was checked.
    """
    from dataclasses import asdict

    from vernier.engine.inference.export import export as write
    from vernier.report.model_card import checked, write_card

    made = write(
        Path(path), format, Path(out) if out else None, which=which, averaged=choose_averaged(ema, no_ema), data=data,
        normalised_input=normalised_input,
    )  # fmt: skip
    check = asdict(made.check) if made.check else None
    written = (
        write_card(made.path, made.checkpoint, averaged=made.averaged, takes=made.takes, check=check) if card else None
    )
    if json:
        print_json(
            {"path": str(made.path), "format": format, "card": str(written) if written else None, "check": check}
        )
        return EXIT_DONE
    if check is not None:
        say(checked(check))
    if written is not None:
        say(f"card: {written}")
    sys.stdout.write(f"{made.path}\n")
    return EXIT_DONE
