"""`vernier train`: a training from a recipe, new or resumed."""

import sys
from typing import TYPE_CHECKING, Annotated, cast

from tyro.conf import arg

from vernier import recipes as book
from vernier.api.options import TrainFlags
from vernier.api.training import TrainRequest, build_request, run_request
from vernier.cli.flags import (
    DataFlag,
    DeviceFlag,
    DivergenceFlag,
    FreezeFlag,
    JsonFlag,
    MachineFlag,
    ModeFlag,
    NetworkFlag,
    OptionalFile,
    OptionalFloat,
    OptionalInt,
    PrecisionFlag,
    QuietFlag,
    RecipeName,
    SetFlag,
    Switch,
    TrackFlag,
    optional,
)
from vernier.cli.launching import check_before_start, console_of, start_processes, with_procs
from vernier.cli.output import inform, print_result, say, set_quiet
from vernier.engine.processes.launch import topology
from vernier.errors import EXIT_DONE, EXIT_STOPPED
from vernier.records.codec import encode
from vernier.report.exports import Files, check_exports, write_exports

if TYPE_CHECKING:
    from vernier.engine.training.session import Outcome


def train(
    recipe: RecipeName = None,
    /,
    *,
    data: DataFlag = None,
    out: Annotated[str, arg(metavar="DIR")] = "runs",
    machine: MachineFlag = None,
    device: DeviceFlag = None,
    procs: OptionalInt = None,
    precision: PrecisionFlag = None,
    allow_slow: Switch = False,
    mode: ModeFlag = None,
    deterministic: Switch = False,
    model: NetworkFlag = None,
    global_batch: OptionalInt = None,
    epochs: OptionalFloat = None,
    lr: OptionalFloat = None,
    seed: OptionalInt = None,
    weights: OptionalFile = None,
    backbone_weights: OptionalFile = None,
    reset_head: Switch = False,
    freeze: FreezeFlag = (),
    workers: OptionalInt = None,
    max_bad_images: Annotated[str | None, optional("N|SHARE%")] = None,
    max_steps: OptionalInt = None,
    steps: OptionalInt = None,
    max_eval_steps: OptionalInt = None,
    max_time: Annotated[str | None, optional("TIME|auto")] = None,
    train_only: Switch = False,
    train_accuracy: Switch = False,
    print_every: OptionalInt = None,
    smoke: Switch = False,
    explain: Switch = False,
    checkpoints: bool = True,
    on_divergence: DivergenceFlag = None,
    tensorboard: bool = True,
    track: TrackFlag = (),
    raport: OptionalFile = None,
    dllogger: OptionalFile = None,
    profile_steps: Annotated[str | None, optional("A:B")] = None,
    resume: Annotated[str | None, optional("auto|never|PATH")] = None,
    config: OptionalFile = None,
    settings: SetFlag = (),
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Train a model with a recipe. Without a recipe: on built-in data, about a minute on two cores.

    Run the same command again after an interruption to resume.

    Args:
        recipe: A built-in recipe (see `vernier recipes`), a network (see `vernier models`; plain settings) or a .toml
            file of your own.
        data: A built-in data set, or a folder with train/ and val/ (one folder per class).
        out: Folder in which the run directory is created, or searched when resuming.
        device: Kind of device to run on. Default: auto, the best one of this machine.
        procs: Number of processes, one per device. Default: 1.
        precision: Number format the network computes in. Default: fp32.
        allow_slow: Allow a precision that this device has no hardware for.
        mode: How the network is executed. Default: eager.
        deterministic: Repeat bit for bit on the same machine, or refuse.
        model: Another network than the recipe's, as published: its own width and image size (see `vernier models`).
        global_batch: Images per optimiser step, over all processes. Default: the recipe's.
        epochs: Number of epochs; warm-up, milestones, decay and growing images keep their share of it.
        lr: Peak learning rate, used as given whatever the batch.
        seed: Seed of initial weights, sample order and augmentation.
        weights: Start from this weights file (safetensors or torch), named as in torchvision, timm, NVIDIA's or
            Habana's code; or from published weights by name, fetched once: torchvision:resnet50-v2.
        backbone_weights: For detectors: a classifier's weights, file or name, for the backbone.
        reset_head: With --weights: start with a new classifier layer, for other classes.
        workers: Loader threads per process; 0: the training thread loads its images itself. Default: 2.
        max_bad_images: How many unreadable images to replace before giving up, e.g. 20 or 0.1% of the set.
        max_steps: Stop after this many steps; the schedule stays that of --epochs.
        steps: Train this many steps, also more than --epochs give; the schedule stays that of --epochs, and beyond it
            the rate stays at its last value. Epochs of another length: --set data.epoch_images=N.
        max_eval_steps: Evaluate on this many batches only.
        max_time: Stop before this time since the start of the command is over, e.g. 90s, 15m, 3h50m, 1d or 03:50:00:
            while there is still time for one more step and a checkpoint, as long as those took so far. Exit code 75;
            the same command resumes. At least one step is trained. auto: until the Slurm job ends
            (SLURM_JOB_END_TIME).
        train_only: Do not evaluate.
        train_accuracy: Also record top-1 and top-5 of the training batches, in percent. An image mixed from two
            (MixUp, CutMix) counts for each label by its share.
        print_every: Print a line, and record an event, every N steps. Default: a line every 5 seconds.
        smoke: Try the recipe: two steps of eight rendered 64-pixel images in a narrow network, one evaluation. Run
            directory and output are marked as a smoke run.
        explain: Do not train: print everything that follows from the settings (steps, learning-rate curve, memory,
            expected time) and all warnings.
        checkpoints: Save checkpoints. Without them a finished training leaves its results, but no weights; a signal
            still saves one, to resume from.
        on_divergence: What happens when a loss, gradient or weight is no finite number. stop: the run ends, with step,
            process and images in its events. rollback: it goes back to the last checkpoint with half the learning rate,
            at most three times (limits.rollback_lr, limits.max_rollbacks). Default: stop.
        tensorboard: Write TensorBoard event files into the run directory if the package is installed.
        raport: Also write NVIDIA's raport.json (2019) to this file when the run ends.
        dllogger: Also write NVIDIA's DLLogger lines (since 2020) to this file when the run ends.
        profile_steps: Profile steps A to B, both included: kernel table, trace, memory (see `vernier profile`).
        resume: auto: the newest run of this recipe in --out; never: always a new run; or a run directory. A
            checkpoint.pth.tar of NVIDIA's or a checkpoint.pth of Habana's code: a new run that takes over its weights,
            momentum, epoch and best accuracy.
        config: A run's config.json, to repeat it.

    Examples:
        vernier train
        vernier train mine.toml --data photos --epochs 20
        vernier train nvidia-resnet50-90e --data ~/imagenet --device cuda --procs 8 --precision bf16
    """
    set_quiet(quiet)
    given = locals()
    flags = cast(TrainFlags, {name: given[name] for name in TrainFlags.__annotations__})
    from vernier.report.live.trackers import require_installed

    request = build_request(recipe, flags, settings)
    if explain:
        return _explain(request, json)
    require_installed(track)
    check_exports(exports := {"raport": raport, "dllogger": dllogger})
    chosen, to_start = with_procs(request.config)
    check_before_start(chosen, request.out, request.resume, detector=request.detector)
    if to_start:
        return start_processes(to_start)
    outcome = run_request(request.with_config(chosen), console_of, quiet=quiet)
    _print_outcome(outcome, json, exports)
    return EXIT_DONE if outcome.status == "finished" else EXIT_STOPPED


def _explain(request: TrainRequest, json: bool) -> int:
    """Print what the training would do."""
    from vernier.measure.planning.explain import describe_explanation, explain

    size = book.data_size(request.config.recipe)
    explained = explain(
        request.config,
        images=size.images,
        images_from=size.origin,
        classes=size.classes,
        runs=request.out,
        notes=request.notes,
        warnings=request.warnings,
    )
    print_result(explained, json, describe_explanation)
    return EXIT_DONE


def _print_outcome(outcome: "Outcome", json: bool, exports: Files) -> None:
    """The result, from the first of several processes."""
    if not topology().first:
        return
    from vernier.report.live.console import closing_lines
    from vernier.report.live.terminal import discard_results

    path, status, summary = outcome.run.path, outcome.status, outcome.summary
    result = {"run": path, "status": status, **encode(summary)}
    try:
        print_result(result, json, lambda _: closing_lines(summary, str(path), status))
        sys.stdout.flush()
    except OSError as error:  # the run is what it is, and its exit code says so
        discard_results()
        say(f"vernier: the result could not be printed ({error.strerror}); run.json in {path} has it")
    if status == "finished":
        for written in write_exports(path, exports):
            inform(f"written    {written}")
    elif any(exports.values()):
        say(f"--raport and --dllogger are written when the run is finished; vernier convert {path} does it now")
