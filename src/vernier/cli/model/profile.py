"""`vernier profile`: flags to a profile run, and its output. The profile is `engine.measured.profile_run`'s."""

import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from vernier.cli.flags import (
    DataFlag,
    DeviceFlag,
    JsonFlag,
    ModeFlag,
    OptionalInt,
    OptionalText,
    PrecisionFlag,
    RecipeName,
    SetFlag,
    Switch,
    apply_flags,
)
from vernier.cli.launching import load_torch, silence_profiler
from vernier.cli.output import print_json, print_rows
from vernier.errors import EXIT_DONE
from vernier.records.codec import encode


def profile(
    recipe: RecipeName = None,
    /,
    *,
    steps: Annotated[str, arg(metavar="A:B")] = "11:15",
    infer: Switch = False,
    data: DataFlag = None,
    model: OptionalText = None,
    batch: OptionalInt = None,
    device: DeviceFlag = None,
    precision: PrecisionFlag = None,
    mode: ModeFlag = None,
    out: Annotated[str, arg(metavar="DIR")] = "runs",
    settings: SetFlag = (),
    json: JsonFlag = False,
) -> int:
    """Profile steps of training, or of inference: kernel table, trace, memory, and where the time goes.

    Ten more steps run without the profiler, to measure its overhead. The files are in the run's traces/ folder; the
    trace opens in chrome://tracing or ui.perfetto.dev.

    Args:
        recipe: A built-in recipe or a .toml file of your own.
        steps: First and last step to profile, counted from 1, both included.
        infer: Profile inference instead of training.
        data: A data set, a folder of images, or synthetic. Default: the recipe's own, else synthetic.
        model: Use this network instead of the recipe's.
        batch: Batch size per step. Default: the recipe's.
        device: Kind of device to run on. Default: auto, the best one of this machine.
        precision: Arithmetic of the network. Default: the recipe's.
        mode: How the network is executed. Default: the recipe's.
        out: Folder for the new run directory.

    Examples:
        vernier profile
        vernier profile nvidia-resnet50-90e --batch 8 --steps 6:8
        vernier profile --infer --batch 32
    """
    from vernier import recipes as book
    from vernier.measure.profile.summary import StepRange, describe_profile

    silence_profiler()
    step_range = StepRange.parse(steps, "--steps")
    start = book.load(recipe or book.DEFAULT)
    flags = {
        "data.source": data or start.recipe.data.source or "synthetic",
        "model.name": model,
        "eval.every_epochs": 0.0,
        "machine.eval_batch" if infer else "global_batch": batch,
        "machine.device": device,
        "machine.precision": precision,
        "machine.mode": mode,
    }
    config = apply_flags(start, flags, settings)
    load_torch()
    from vernier.engine.measured.profile_run import profile_load

    run, summary = profile_load(config, step_range, infer=infer, out=Path(out))
    if json:
        print_json({"run": run.path, **encode(summary)})
        return EXIT_DONE
    rows = [
        {
            "name": kernel.name,
            "device": kernel.device,
            "calls": kernel.calls,
            "total_ms": round(kernel.total_ms, 4),
            "mean_ms": round(kernel.mean_ms, 4),
            "share": round(kernel.share, 4),
        }
        for kernel in summary.top
    ]
    print_rows(rows, False)
    lines = [*describe_profile(summary), f"run        {run.path}  (traces/: {', '.join(summary.files)})"]
    sys.stdout.write("\n".join(lines) + "\n")
    return EXIT_DONE
