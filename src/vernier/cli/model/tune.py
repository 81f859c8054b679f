"""`vernier tune`: the fastest settings of this machine for a recipe, and the machine file with them."""

from typing import Annotated

from tyro.conf import arg

from vernier.api.benchmarks import build_tuning, run_tuning
from vernier.cli.flags import (
    DataFlag,
    DeviceFlag,
    IntFlag,
    JsonFlag,
    NetworkFlag,
    OptionalInt,
    QuietFlag,
    RecipeName,
    SetFlag,
    Switch,
)
from vernier.cli.launching import sigterm_as_interrupt
from vernier.cli.output import inform, print_json, print_rows, say, set_quiet, show
from vernier.config import Work
from vernier.errors import EXIT_DONE, EXIT_INTERRUPTED


def tune(
    recipe: RecipeName = None,
    /,
    *,
    work: Annotated[Work, arg(name="for", metavar="train|infer")] = "train",
    data: DataFlag = None,
    model: NetworkFlag = None,
    batch: OptionalInt = None,
    device: DeviceFlag = None,
    minutes: Annotated[float, arg(metavar="N")] = 10.0,
    out: Annotated[str, arg(metavar="FILE")] = "machine.toml",
    overwrite: Switch = False,
    allow_split: Switch = False,
    seed: IntFlag = 0,
    settings: SetFlag = (),
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Find the fastest settings of this machine for a recipe, and write them to a file for --machine.

    Tries threads, memory layout, loader threads, allocator and execution mode; for inference also engine and batch. One
    setting after the other: its values take turns in processes that run side by side, and slower ones are dropped
    early. A value is chosen only if it is certainly faster, by 1 % or more. At the end the chosen settings are measured
    against the defaults in new processes; unless that confirms them, the defaults stay. Global batch, precision and
    everything else that a recipe says are never changed.

    Args:
        recipe: A built-in recipe, a network (see `vernier models`), or a .toml file of your own.
        work: What the settings are for: train, or infer, which is what eval and predict do.
        data: Real images, so that loader threads are tried too. Default: the recipe's own set, or random pixels where
            it names none.
        model: Another network than the recipe's, as published.
        batch: Batch to measure with; for inference the batch to use. Default: the recipe's global batch, at most 32 on
            a CPU, 256 on an accelerator; for inference 32 and 256, and others are tried.
        device: Kind of device to run on. Default: auto, the best one of this machine.
        minutes: About how long it may take in total, in minutes; settings for which no time is left are not tried.
        out: The machine file to write.
        overwrite: Replace the file if it exists.
        allow_split: Also try several processes, and parts of the batch. This changes training: statistics of batch norm
            are then those of a part of the batch.
        seed: Seed of the order of turns.

    Examples:
        vernier tune resnet50 --data photos
        vernier tune resnet50 --for infer --minutes 15 --out fast-infer.toml
        vernier tune mine.toml --set machine.workers=2 --minutes 5 --overwrite
    """
    set_quiet(quiet)
    request = build_tuning(
        work,
        recipe,
        model=model,
        data=data,
        device=device,
        batch=batch,
        minutes=minutes,
        out=out,
        overwrite=overwrite,
        allow_split=allow_split,
        seed=seed,
        settings=settings,
    )
    from vernier.measure.tuning.results import closing_lines, table

    with sigterm_as_interrupt():
        result = run_tuning(request, inform)
    if json:
        print_json(result)
    else:
        if result.settings:
            show(result.what_ran)
            print_rows(table(result.settings), False)
        show(*closing_lines(result))
    if result.stopped:
        say("vernier: interrupted, and nothing was written")
        return EXIT_INTERRUPTED
    return EXIT_DONE
