"""`vernier profile`: flags to a profile run, and its output. The profile is `engine.measured.profile_run`'s."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from vernier.api.benchmarks import device_kind
from vernier.api.starting import machine_file
from vernier.cli.flags import (
    DataFlag,
    DeviceFlag,
    JsonFlag,
    MachineFlag,
    ModeFlag,
    NetworkFlag,
    OptionalInt,
    PrecisionFlag,
    QuietFlag,
    RecipeName,
    SetFlag,
    Switch,
)
from vernier.cli.launching import load_torch, silence_profiler
from vernier.cli.output import inform, print_json, print_rows, progress_bar, set_quiet, show
from vernier.config import MACHINE_FILE, override, setting_name
from vernier.errors import EXIT_DONE, ConfigError
from vernier.measure.profile.summary import StepRange, describe_profile
from vernier.models import is_detector
from vernier.records.codec import encode
from vernier.records.profile import ProfileSummary
from vernier.records.what_ran import line_of

if TYPE_CHECKING:
    from vernier.store import RunDir


def profile(
    recipe: RecipeName = None,
    /,
    *,
    steps: Annotated[str, arg(metavar="A:B")] = "11:15",
    infer: Switch = False,
    data: DataFlag = None,
    model: NetworkFlag = None,
    batch: OptionalInt = None,
    machine: MachineFlag = None,
    device: DeviceFlag = None,
    precision: PrecisionFlag = None,
    mode: ModeFlag = None,
    out: Annotated[str, arg(metavar="DIR")] = "runs",
    settings: SetFlag = (),
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Profile steps of training, or of inference: kernel table, trace, memory, and where the time goes.

    Ten more steps run without the profiler, to measure its overhead. The files are in the run's traces/ folder; the
    trace opens in chrome://tracing or ui.perfetto.dev. Where a recipe's images grow during training, steps at the last
    size are profiled.

    Args:
        recipe: A built-in recipe, a network (see `vernier models`), or a .toml file of your own.
        steps: First and last step to profile, counted from 1, both included.
        infer: Profile inference instead of training.
        data: A data set, a folder of images, synthetic (random pixels) or static (the same batch in every step).
            Default: the recipe's own set, or synthetic where it names none; the first line of the result says which.
        model: Another network than the recipe's, as published; without a recipe the same as giving its name as the
            recipe.
        batch: Batch size per step. Default: the recipe's global batch (inference: machine.eval_batch), at most 32 on a
            CPU, 256 on an accelerator.
        device: Kind of device to run on. Default: auto, the best one of this machine.
        precision: Number format the network computes in. Default: fp32.
        mode: How the network is executed. Default: eager.
        out: Folder for the new run directory.

    Examples:
        vernier profile
        vernier profile resnet50 --batch 8 --steps 6:8
        vernier profile --infer --batch 32
    """
    set_quiet(quiet)
    from vernier import recipes as book
    from vernier.data.sources.opening import check_source
    from vernier.measure.bench.combinations import at_final_size, default_batch

    silence_profiler()
    step_range = StepRange.parse(steps, "--steps")
    if batch is not None and batch < 1:
        raise ConfigError(f"--batch {batch} is out of range: it must be 1 or more.")
    start = book.load(recipe or model or book.DEFAULT)
    batch_setting = "machine.eval_batch" if infer else "global_batch"
    flags = {
        MACHINE_FILE: machine_file(machine, "infer" if infer else "train"),
        "data.source": data or start.recipe.data.source or "synthetic",
        "model.name": model,
        "eval.every_epochs": 0.0,
        batch_setting: batch,
        "machine.device": device,
        "machine.precision": precision,
        "machine.mode": mode,
    }
    changed = book.change(start, flags, settings)
    config, notes = changed.config, [*changed.notes, *(() if infer else at_final_size(changed.config)[1])]
    if setting_name(batch_setting) not in changed.named:
        batch, note = default_batch(config, "infer" if infer else "train", device_kind(config.machine.device))
        config, notes = override(config, batch_setting, batch), [*notes, note]
    check_source(config.recipe.data.source, detector=is_detector(config.recipe.model.name))
    load_torch()
    from vernier.engine.measured.profile_run import STEPS_AFTER, profile_load

    inform(f"{step_range.last + STEPS_AFTER} steps, of which {step_range.first} to {step_range.last} are profiled")
    with progress_bar("profile") as progress:
        run, summary = profile_load(config, step_range, infer=infer, out=Path(out), on_step=progress)
    if json:
        print_json({"run": run.path, **encode(summary), "notes": notes})
    else:
        _print_profile(run, summary, notes)
    return EXIT_DONE


def _print_profile(run: "RunDir", summary: ProfileSummary, notes: list[str]) -> None:
    """What ran, the longest kernels, where the time goes, and where the files are."""
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
    show(line_of([summary.ran]))
    print_rows(rows, False)
    show(*describe_profile(summary), *notes, f"run        {run.path}  (traces/: {', '.join(summary.files)})")
