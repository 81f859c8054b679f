"""`vernier train`: a training from a recipe, new or resumed."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from vernier import recipes as book
from vernier.cli.exports import Files, check_exports, write_exports
from vernier.cli.flags import (
    DataFlag,
    DeviceFlag,
    FreezeFlag,
    JsonFlag,
    ModeFlag,
    OptionalFile,
    OptionalFloat,
    OptionalInt,
    OptionalText,
    PrecisionFlag,
    RecipeName,
    SetFlag,
    Switch,
    TrackFlag,
    optional,
)
from vernier.cli.launching import check_before_start, console_of, joined, silence_profiler, start_processes, with_procs
from vernier.cli.output import print_result, say
from vernier.config import Changed, Config, check_batch_rule, check_config, config_warnings, load_file, override
from vernier.errors import EXIT_DONE, EXIT_STOPPED, ConfigError
from vernier.measure.profile.summary import StepRange
from vernier.models import is_detector
from vernier.records.codec import encode

if TYPE_CHECKING:
    from vernier.engine.training.resume import ResumePoint
    from vernier.engine.training.session import Outcome


_NO_CHECKPOINTS = {
    "checkpoint.every_epochs": 0,
    "checkpoint.every_steps": 0,
    "checkpoint.keep_best": False,
    "checkpoint.at_end": False,
}


def train(
    recipe: RecipeName = None,
    /,
    *,
    data: DataFlag = None,
    out: Annotated[str, arg(metavar="DIR")] = "runs",
    device: DeviceFlag = None,
    procs: OptionalInt = None,
    precision: PrecisionFlag = None,
    allow_slow: Switch = False,
    mode: ModeFlag = None,
    deterministic: Switch = False,
    model: OptionalText = None,
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
    train_only: Switch = False,
    train_accuracy: Switch = False,
    print_every: OptionalInt = None,
    smoke: Switch = False,
    explain: Switch = False,
    checkpoints: bool = True,
    tensorboard: bool = True,
    track: TrackFlag = (),
    raport: OptionalFile = None,
    dllogger: OptionalFile = None,
    profile_steps: Annotated[str | None, optional("A:B")] = None,
    resume: Annotated[str | None, optional("auto|never|PATH")] = None,
    config: OptionalFile = None,
    settings: SetFlag = (),
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
            Habana's code.
        backbone_weights: For detectors: a classifier's weights file for the backbone.
        reset_head: With --weights: start with a new classifier layer, for other classes.
        workers: Loader threads per process; 0: the training thread loads its images itself. Default: 2.
        max_bad_images: How many unreadable images to replace before giving up, e.g. 20 or 0.1% of the set.
        max_steps: Stop after this many steps; the schedule stays that of --epochs.
        steps: Train this many steps, also more than --epochs give; the schedule stays that of --epochs, and beyond it
            the rate stays at its last value. Epochs of another length: --set data.epoch_images=N.
        max_eval_steps: Evaluate on this many batches only.
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
    from vernier.report.live.trackers import require_installed

    profile = _steps_to_profile(profile_steps)
    foreign, resume = _split_resume(resume, recipe or config)
    flags = {
        "data.source": data,
        "machine.device": device,
        "machine.procs": procs,
        "machine.precision": precision,
        "machine.mode": mode,
        "machine.allow_slow": allow_slow or None,
        "machine.deterministic": deterministic or None,
        "model.name": model,
        "global_batch": global_batch,
        "schedule.epochs": epochs,
        "optim.lr": lr,
        "seed": seed,
        "machine.workers": workers,
        "data.max_bad_images": max_bad_images,
        "limits.max_steps": max_steps,
        "schedule.steps": steps,
        "limits.max_eval_steps": max_eval_steps,
        "limits.train_accuracy": train_accuracy or None,
        "limits.log_every_steps": print_every,
        "eval.every_epochs": 0 if train_only else None,
        "model.weights": weights,
        "model.backbone_weights": backbone_weights,
        "model.checkpoint": foreign,
        "model.reset_head": reset_head or None,
        "model.freeze": freeze or None,
    }
    if not checkpoints:
        flags |= _NO_CHECKPOINTS
    start = _starting_config(recipe, model, config, resume)
    changed = book.change(start, flags, settings, small=smoke)
    chosen, detector = changed.config, is_detector(changed.config.recipe.model.name)
    check_config(chosen, detector=detector)
    if not smoke:
        check_batch_rule(chosen.recipe, start.recipe, changed.named)
    warnings = config_warnings(chosen, detector=detector)
    if explain:
        return _explain(replace(changed, config=chosen), warnings, Path(out), json)
    require_installed(track)
    check_exports(exports := {"raport": raport, "dllogger": dllogger})
    chosen, to_start = with_procs(chosen)
    check_before_start(chosen, Path(out), resume, detector=detector)
    if to_start:
        return start_processes(to_start)
    outcome = _run(replace(changed, config=chosen), warnings, Path(out), resume, track, tensorboard, profile)
    return EXIT_DONE if outcome is None else _print_outcome(outcome, json, exports)


def _steps_to_profile(text: str | None) -> StepRange | None:
    if text is None:
        return None
    steps = StepRange.parse(text, "--profile-steps")
    silence_profiler()
    return steps


def _split_resume(resume: str | None, named: str | None) -> tuple[str | None, str | None]:
    """The checkpoint file of another program that --resume names, or what it names otherwise; one of them is None."""
    if resume is None or not Path(resume).is_file():
        return None, resume
    if named is None:
        raise ConfigError(
            f"--resume {resume}: with which recipe? vernier train RECIPE --resume {resume} (see `vernier recipes`)."
        )
    return resume, None


def _explain(changed: Changed, warnings: tuple[str, ...], out: Path, json: bool) -> int:
    """Print what the training would do."""
    from vernier.measure.planning.explain import describe_explanation, explain

    size = book.data_size(changed.config.recipe)
    explained = explain(
        changed.config,
        images=size.images,
        images_from=size.origin,
        classes=size.classes,
        runs=out,
        notes=changed.notes,
        warnings=warnings,
    )
    print_result(explained, json, describe_explanation)
    return EXIT_DONE


def _run(
    changed: Changed,
    warnings: tuple[str, ...],
    out: Path,
    resume: str | None,
    track: tuple[str, ...],
    tensorboard: bool,
    profile: StepRange | None,
) -> "Outcome | None":
    """Train in this process and the others of the run; None in all but the first."""
    config = changed.config
    from vernier.report.live.trackers import trackers

    with (
        joined(config) as world,
        console_of(world) as console,
        trackers(track, tensorboard, console.warn if console else None) as tracked,
    ):
        from vernier.engine.training.resume import choose_resume_point
        from vernier.engine.training.session import train as run_training

        def choose() -> "ResumePoint | None":
            assert console is not None
            point = choose_resume_point(config, out, resume, console.warn)
            if point is not None and resume is None:
                console.say(f"Resuming {point.run.path}, which was interrupted (--resume never starts a new run).")
            return point

        outcome = run_training(
            config,
            out,
            world.broadcast_from_first(choose),
            [*([console] if console else []), *tracked],
            reference=book.reference(config.recipe),
            world=world,
            profile=profile,
            notes=changed.notes,
            warnings=warnings,
        )
        return outcome if world.first else None


def _print_outcome(outcome: "Outcome", json: bool, exports: Files) -> int:
    from vernier.report.live.console import closing_lines

    path, status, summary = outcome.run.path, outcome.status, outcome.summary
    result = {"run": path, "status": status, **encode(summary)}
    print_result(result, json, lambda _: closing_lines(summary, str(path), status))
    if status == "finished":
        write_exports(path, exports)
    elif any(exports.values()):
        say(f"--raport and --dllogger are written when the run is finished; vernier convert {path} does it now")
    return EXIT_DONE if status == "finished" else EXIT_STOPPED


def _starting_config(recipe: str | None, model: str | None, config: str | None, resume: str | None) -> Config:
    """The recipe or configuration that the flags change."""
    if recipe is not None and config is not None:
        raise ConfigError(f"Give a recipe ({recipe}) or --config ({config}), not both.")
    if recipe is None and config is None and resume not in (None, "auto", "never"):
        from vernier.engine.training.resume import run_config, run_of
        from vernier.store import RunDir

        return run_config(RunDir.open(run_of(Path(resume))))
    if config is not None and not Path(config).is_file():
        raise ConfigError(f"--config {config}: there is no such file. Give a run's config.json, or a .toml file.")
    if recipe is None and config is None and model is not None and is_detector(model):
        return override(book.load(model), "data.source", "shapes")
    return load_file(Path(config)) if config is not None else book.load(recipe or book.DEFAULT)
