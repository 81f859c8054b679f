"""`vernier profile`."""

import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from vernier.cli.flags import (
    DataFlag,
    DeviceFlag,
    JsonFlag,
    ModeFlag,
    OptionalInt,
    OptionalText,
    PrecisionFlag,
    SetFlag,
    apply_flags,
)
from vernier.cli.launching import silence_profiler
from vernier.cli.output import print_json, print_rows
from vernier.errors import EXIT_DONE


def profile(
    recipe: Annotated[
        Positional[str | None], arg(metavar="RECIPE", help_behavior_hint="(default: shapes-quick)")
    ] = None,
    /,
    *,
    steps: Annotated[str, arg(metavar="A:B")] = "11:15",
    infer: bool = False,
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
    """Profile steps A to B of a training, or of inference: kernel table, trace, memory, where the time goes.

    Ten more steps follow unprofiled, so that the cost of profiling can be told. Files are in the run's traces/ folder; the
    trace opens in chrome://tracing or ui.perfetto.dev.

    Args:
        recipe: A built-in recipe or a .toml file of your own.
        steps: First and last step, counted from 1, both included.
        infer: Inference instead of training.
        data: A data set, a folder, or synthetic. Default: the recipe's own, or synthetic.
        model: Another network than the recipe's.
        batch: Images a step.
        device: Where to run.
        precision: Arithmetic of the network.
        mode: How the network is executed.
        out: Folder in which the run directory is made.
    """
    from vernier import recipes as book
    from vernier.measure.profile.summary import Range, profile_lines

    silence_profiler()
    wanted = Range.parse(steps, "--steps")
    start = book.load(recipe or book.DEFAULT)
    flags = {
        "data.source": data or start.recipe.data.source or "synthetic", "model.name": model, "eval.every_epochs": 0.0,
        "machine.eval_batch" if infer else "global_batch": batch, "machine.device": device, "machine.precision": precision,
        "machine.mode": mode,
    }  # fmt: skip
    config = apply_flags(start, flags, settings)
    from vernier.engine.measured.profile_run import profile_load

    run, found = profile_load(config, wanted, infer=infer, out=Path(out))
    if json:
        print_json({"run": str(run.path), **found})
        return EXIT_DONE
    columns = ("name", "device", "calls", "total_ms", "mean_ms", "share")
    print_rows([{c: round(r[c], 4) if isinstance(r[c], float) else r[c] for c in columns} for r in found["top"]], False)
    for line in profile_lines(found):
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"run        {run.path}  (traces/: {', '.join(found['files'])})\n")
    return EXIT_DONE
