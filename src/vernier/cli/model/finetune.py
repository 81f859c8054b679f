"""`vernier finetune`: a classifier or detector for a folder of photographs, with settings chosen from them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from tyro.conf import Positional, arg

from vernier.api.finetuning import (
    FinetuneRequest,
    build_finetuning,
    check_finetuning,
    finish_run,
    finished_before,
    opening_lines,
    time_line,
)
from vernier.api.options import FinetuneFlags
from vernier.api.training import run_request
from vernier.cli.flags import (
    DeviceFlag,
    FreezeFlag,
    JsonFlag,
    MachineFlag,
    NetworkFlag,
    OptionalFloat,
    OptionalInt,
    PrecisionFlag,
    QuietFlag,
    SetFlag,
    Switch,
    optional,
)
from vernier.cli.launching import console_of, fetch_with_bar, start_processes, with_procs
from vernier.cli.output import inform, is_quiet, print_json, set_quiet, show
from vernier.data.preparing.pretrained import is_cached, is_pretrained
from vernier.engine.processes.launch import topology
from vernier.errors import EXIT_DONE, EXIT_STOPPED, ConfigError

if TYPE_CHECKING:
    from vernier.engine.inference.finishing import Finished
    from vernier.store import RunDir


def finetune(
    folder: Annotated[Positional[str | None], arg(metavar="FOLDER", help_behavior_hint="(required)")] = None,
    /,
    *,
    weights: Annotated[str | None, optional("FILE|NAME|none")] = None,
    task: Literal["auto", "classes", "boxes"] = "auto",
    minutes: Annotated[float, arg(metavar="N")] = 10.0,
    explain: Switch = False,
    out: Annotated[str, arg(metavar="DIR")] = "runs",
    model: NetworkFlag = None,
    image_px: OptionalInt = None,
    global_batch: OptionalInt = None,
    epochs: OptionalFloat = None,
    lr: OptionalFloat = None,
    freeze: FreezeFlag = (),
    seed: OptionalInt = None,
    machine: MachineFlag = None,
    device: DeviceFlag = None,
    procs: OptionalInt = None,
    precision: PrecisionFlag = None,
    workers: OptionalInt = None,
    max_time: Annotated[str | None, optional("TIME|auto")] = None,
    tensorboard: bool = True,
    resume: Annotated[str | None, optional("auto|never|PATH")] = None,
    settings: SetFlag = (),
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Fine-tune a classifier or a detector on your own photographs, without setting anything.

    Looks at the folder (one folder per class, or boxes as COCO, Pascal VOC or YOLO; with or without train/ and val/),
    chooses network, image size, schedule, freezing and batch from the images and this machine, and says why and how
    long it takes. Trains the new layers first, then all; stops when the held-out images show no gain; ends with the
    result, a page and an exported model. Run the same command again after an interruption to resume.

    Args:
        folder: Your photographs.
        weights: Weights to start from: a file (safetensors or torch), published ones by name, fetched once
            (torchvision:resnet50-v2), or none: from scratch. Default: published ones that suit this machine.
        task: What to learn. auto: boxes where there are annotations of boxes and no class folders, otherwise classes.
        minutes: How long the training should take, about; the number of epochs follows from it, by arithmetic.
        explain: Do not train: print what was chosen and why.
        out: Folder in which the run directory is created, or searched when resuming.
        model: Another network than that of the weights (see `vernier models`).
        image_px: Side of the images for the network, in pixels.
        global_batch: Images per optimiser step.
        epochs: Number of epochs, those of the new layers alone included.
        lr: Peak learning rate of the new layers.
        seed: Seed of initial weights, sample order and augmentation.
        device: Kind of device to run on. Default: auto, the best one of this machine.
        procs: Number of processes, one per device. Default: 1.
        precision: Number format the network computes in. Default: fp32.
        workers: Loader threads per process. Default: 2.
        max_time: Stop before this time is over, e.g. 90s or 15m, with a checkpoint; the same command resumes.
        tensorboard: Write TensorBoard event files into the run directory if the package is installed.
        resume: auto: the newest run of the same settings in --out; never: always a new run; or a run directory.

    Examples:
        vernier finetune photos
        vernier finetune photos --weights torchvision:resnet50-v2 --minutes 30
        vernier finetune photos --explain
    """
    set_quiet(quiet)
    if folder is None:
        raise ConfigError(
            "Which photographs? vernier finetune FOLDER, with one folder per class, or images with boxes."
        )
    given = locals()
    flags = cast(FinetuneFlags, {name: given[name] for name in FinetuneFlags.__annotations__})
    request = build_finetuning(folder, flags, settings, quiet=quiet)
    if explain:
        return _explain(request, json)
    config, to_start = with_procs(request.training.config)
    request = request.with_config(config)
    check_finetuning(request, fetch=fetch_with_bar)
    if to_start:
        return start_processes(to_start)
    run = finished_before(request.training)
    if run is None:
        inform(*([] if quiet else opening_lines(request)))
        outcome = run_request(request.training, console_of, quiet=quiet)
        if outcome.status != "finished":
            return EXIT_STOPPED
        run = outcome.run
    if topology().first:
        _finish(request, run, json)
    return EXIT_DONE


def _explain(request: FinetuneRequest, json: bool) -> int:
    """Print what was chosen. Nothing is fetched: without the weights the time is arithmetic."""
    model, warnings = request.training.config.recipe.model, request.training.warnings
    weights = model.weights or model.backbone_weights
    time = time_line(request, measure=not is_pretrained(weights) or is_cached(weights))
    if json:
        print_json({"plan": request.plan, "time": time, "warnings": warnings})
    else:
        show(*request.plan.lines(time), *(f"  warning        {warning}" for warning in warnings))
    return EXIT_DONE


def _finish(request: FinetuneRequest, run: "RunDir", json: bool) -> None:
    """Evaluate, export and write the page; then print what came out."""
    from vernier.report.live.console import ConsoleObserver, closing_lines

    with ConsoleObserver(quiet=is_quiet()) as console:
        finished = finish_run(request.plan, run, [console])
    status = run.status()
    if json:
        print_json({**finished.record, "status": status.status})
        return
    if status.summary is not None:
        show(*closing_lines(status.summary, str(run.path), "finished")[:-1], "")
    show(*_finished_lines(finished.done, finished.page))


def _finished_lines(done: "Finished", page: Path) -> list[str]:
    from vernier.report.live.console import format_figures

    lines = []
    if done.held_out is not None:
        lines.append(
            f"held out   {format_figures(done.held_out.figures)}  on {done.held_out.samples:,} images, with the best "
            f"weights (step {done.step or 0:,}), which were chosen by them"
        )
    if done.test is not None:
        lines.append(
            f"test       {format_figures(done.test.figures)}  on {done.test.samples:,} images of the test split, by "
            "which nothing was chosen"
        )
    return [
        *lines,
        f"model      {done.model}",
        f"page       {page}",
        f"use it     vernier predict {done.model} photo.jpg",
    ]
