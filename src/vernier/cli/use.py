"""`vernier eval` and `vernier export`: what is done with a trained model."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from vernier.cli.common import (
    DataFlag,
    EmaFlag,
    JsonFlag,
    NoEmaFlag,
    SetFlag,
    Text,
    Whole,
    apply,
    pathlike,
    print_json,
    wants_average,
)
from vernier.config import Config
from vernier.errors import EXIT_DONE, ConfigError

if TYPE_CHECKING:
    from vernier.engine.load import Trained


def evaluate(
    path: Annotated[Positional[str | None], arg(metavar="RUN|CHECKPOINT", help_behavior_hint="")] = None,
    /,
    *,
    model: Text = None,
    weights: Annotated[str | None, pathlike("FILE")] = None,
    data: DataFlag = None,
    which: Annotated[str, arg(metavar="latest|best|STEP")] = "latest",
    ema: EmaFlag = False,
    no_ema: NoEmaFlag = False,
    flip_tta: bool = False,
    max_eval_steps: Whole = None,
    workers: Whole = None,
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
        which: Which checkpoint of a run.
        flip_tta: Test-time augmentation: add the scores of the mirrored image. Said in the result.
        max_eval_steps: Evaluate on this many batches only.
        workers: Loader threads.
    """
    from vernier.report.console import ConsoleObserver

    averaged = wants_average(ema, no_ema)
    if (path is None) == (weights is None):
        raise ConfigError("Say what to evaluate: a run or checkpoint directory, or --model NAME --weights FILE.")
    with ConsoleObserver() as console:
        from vernier.engine.load import evaluate_trained

        flags = {"data.source": data, "machine.workers": workers, "eval.flip_tta": flip_tta or None}
        if weights is None:
            trained = _trained_run(path or "", which, averaged, model, lambda config: apply(config, flags, settings))
        else:
            trained = _trained_by_others(weights, model, averaged, lambda config: apply(config, flags, settings))
        result = evaluate_trained(trained, data, max_eval_steps, [console])
    if json:
        print_json(result)
    else:
        sys.stdout.write(_evaluated(result))
    return EXIT_DONE


def _trained_run(
    path: str, which: str, ema: bool | None, model: str | None, changed: Callable[[Config], Config]
) -> "Trained":
    from vernier.engine.load import load_trained

    if model is not None:
        raise ConfigError("--model goes with --weights FILE; a run knows its own model.")
    trained = load_trained(Path(path), which=which, averaged=ema)
    before, trained.config = trained.config.recipe.model, changed(trained.config)
    if trained.config.recipe.model != before:
        raise ConfigError("A trained model cannot be changed by --set model.*; data, eval and machine can.")
    return trained


def _trained_by_others(
    weights: str, model: str | None, ema: bool | None, changed: Callable[[Config], Config]
) -> "Trained":
    from vernier.engine.load import foreign_config, load_foreign

    if model is None:
        raise ConfigError("--weights needs --model NAME (see `vernier models`): a file of weights does not say.")
    return load_foreign(Path(weights), changed(foreign_config(model)), averaged=ema)


def _evaluated(result: dict[str, Any]) -> str:
    part = "" if result["exact"] else "  PART of the set"
    tta = "  with flip test-time augmentation" if result["flip_tta"] else ""
    step = "" if result["step"] is None else f"weights of step {result['step']:,}, "
    notes = "".join(f"{note}\n" for note in result["notes"])
    return (
        f"top-1 {result['top1']:.2f} %  top-5 {result['top5']:.2f} %  loss {result['loss']:.4f}  on {result['samples']:,} "
        f"images of {result['data']}{part}{tta}\n{'averaged ' if result['averaged'] else ''}{step}{result['weights']}; "
        f"{result['images_per_s_total']:,.0f} img/s\n{notes}"
    )


def export(
    path: Annotated[Positional[str], arg(metavar="RUN|CHECKPOINT")],
    /,
    *,
    format: Literal["safetensors", "torchvision"] = "safetensors",
    out: Annotated[str | None, pathlike("FILE")] = None,
    which: Annotated[str, arg(metavar="latest|best|STEP")] = "latest",
    ema: EmaFlag = False,
    no_ema: NoEmaFlag = False,
    json: JsonFlag = False,
) -> int:
    """Write a run's weights to one file for use elsewhere; nothing is overwritten.

    Args:
        path: A run directory, or one of its checkpoints.
        format: safetensors, with classes, normalisation and result in its metadata; or torchvision's state dict (.pth).
        out: The file; left out: named after the run, in this folder.
        which: Which checkpoint of a run.
    """
    from vernier.engine.load import export as write

    made = write(Path(path), format, Path(out) if out else None, which=which, averaged=wants_average(ema, no_ema))
    if json:
        print_json({"path": str(made), "format": format})
    else:
        sys.stdout.write(f"{made}\n")
    return EXIT_DONE
