"""`vernier eval`: a run, a checkpoint, an exported file or anybody's weights evaluated on a data set."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from vernier.api.starting import machine_file
from vernier.cli.flags import (
    DataFlag,
    EmaFlag,
    EngineFlag,
    Int8Flag,
    JsonFlag,
    MachineFlag,
    ModeFlag,
    NoEmaFlag,
    OptionalDir,
    OptionalInt,
    QuietFlag,
    SetFlag,
    Switch,
    apply_flags,
    choose_averaged,
    optional,
)
from vernier.cli.launching import console_of, joined, start_processes, with_procs
from vernier.cli.output import print_json, set_quiet, show
from vernier.config import MACHINE_FILE, Config, refuse_training_settings
from vernier.engine.processes.launch import topology
from vernier.engine.runtimes.requirements import check_engine
from vernier.errors import EXIT_DONE, ConfigError
from vernier.wording import plural

from .choosing import ClassesFlag, ModelFlag, ModelPath, WeightsFlag, check_model_path, choose_model, with_machine_notes

if TYPE_CHECKING:
    from vernier.records.run import EvaluationReport
    from vernier.report.live.console import ConsoleObserver
    from vernier.report.live.trackers import EvaluationBoard


def evaluate(
    path: ModelPath = None,
    /,
    *,
    model: ModelFlag = None,
    weights: WeightsFlag = None,
    classes: ClassesFlag = None,
    data: DataFlag = None,
    split: Annotated[Literal["val", "test", "train"] | None, optional("val|test|train")] = None,
    classes_by_number: Switch = False,
    which: Annotated[str, arg(metavar="latest|best|STEP|all")] = "latest",
    procs: OptionalInt = None,
    machine: MachineFlag = None,
    mode: ModeFlag = None,
    engine: EngineFlag = None,
    int8: Int8Flag = False,
    ema: EmaFlag = False,
    no_ema: NoEmaFlag = False,
    flip_tta: Switch = False,
    tensorboard: bool = True,
    out: OptionalDir = None,
    max_eval_steps: OptionalInt = None,
    workers: OptionalInt = None,
    settings: SetFlag = (),
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Evaluate a run (finished, running or interrupted), a checkpoint, an exported file or anybody's weights.

    Every image counts once. The output says how images were prepared.

    Args:
        data: Another data set or folder than the run's own. Weights of others need one.
        split: Which part of the data. Default: val; all of a folder that has no splits, except where it is the one the
            run was trained on, of which the held-out part is evaluated.
        classes_by_number: Take class i of the data for output i of the model, whatever their names are. Without it
            classes are matched by name: another order is mapped, some of the model's classes are enough, and other
            names are refused.
        which: Which checkpoint of a run; all: every one, in order.
        procs: Number of processes, one per device; the result is the same to the last digit.
        mode: How the network is executed. Default: as in training; eager for weights of others.
        tensorboard: With --which all: write the figures of every checkpoint for TensorBoard into RUN/tensorboard/eval
            if the package is installed.
        out: Folder for the predictions: detections.json of a detector, in COCO's results format.
        flip_tta: Test-time augmentation: add the scores of the mirrored image. The result says so.
        max_eval_steps: Evaluate on this many batches only.
        workers: Loader threads per process; 0: none, the main thread loads. Default: 2.

    Examples:
        vernier eval runs/RUN
        vernier eval runs/RUN --which best --data photos --split test
        vernier eval runs/RUN --engine auto --int8
        vernier eval --model resnet50 --weights resnet50.pth --data imagenet
    """
    set_quiet(quiet)
    averaged = choose_averaged(ema, no_ema)
    _check_target(path, weights, data, settings)
    execution = _execution(machine, mode, engine, int8=int8)
    base = apply_flags(Config(), {"machine.procs": procs, **execution}, _of_machine(settings))
    check_engine(base.machine)
    base, to_start = with_procs(base)
    if to_start:
        return start_processes(to_start)
    flags = {
        "data.source": data,
        "machine.workers": workers,
        "eval.flip_tta": flip_tta or None,
        "machine.procs": base.machine.procs,
        **execution,
    }
    reports = []
    with joined(base) as world, console_of(world) as console:
        from vernier.engine.inference.evaluate import evaluate_trained
        from vernier.engine.inference.trained import checkpoint_steps, load_model

        changed = partial(apply_flags, flags=flags, settings=settings)
        choice = choose_model(
            path, weights, model=model, classes=classes, averaged=averaged, changed=changed, split=split
        )
        steps = checkpoint_steps(choice.path) if which == "all" else [which]
        board = _board(choice.path, steps, console) if tensorboard and which == "all" else None
        for step in steps:
            trained = with_machine_notes(load_model(replace(choice, which=step)), flags, settings)
            folder = None if out is None else Path(out) / (f"step-{step}" if which == "all" else "")
            report = evaluate_trained(
                trained,
                data=data,
                max_eval_steps=max_eval_steps,
                observers=[console] if console else [],
                split=split,
                out=folder,
                world=world,
                classes_by_number=classes_by_number,
            )
            reports.append(report)
            if board is not None:
                board.add(report)
            if not json and world.first:
                show(*_report_lines(report))
        if board is not None and (folder := board.close()) and console and not json:
            console.say(f"figures of every checkpoint: tensorboard --logdir {folder.parent.parent}")
    if json and world.first:
        print_json(reports if which == "all" else reports[0])
    return EXIT_DONE


def _execution(machine: str | None, mode: str | None, engine: str | None, *, int8: bool) -> dict[str, object]:
    """The flags that say how the network is run."""
    file = machine_file(machine, "infer")
    return {MACHINE_FILE: file, "machine.mode": mode, "machine.engine": engine, "machine.int8": int8 or None}


def _of_machine(settings: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(setting for setting in settings if setting.startswith("machine."))


def _board(run: Path, steps: list[str], console: "ConsoleObserver | None") -> "EvaluationBoard | None":
    """TensorBoard's files of a run, where the package is installed, in the process that reports."""
    from vernier.report.live.trackers import EvaluationBoard, installed
    from vernier.store import RunDir

    if console is None or not installed("tensorboard"):
        return None
    return EvaluationBoard(RunDir.open(run), int(steps[0]), console.warn)


def _check_target(path: str | None, weights: str | None, data: str | None, settings: tuple[str, ...]) -> None:
    """Refuse, before torch is imported, what names no model or no data, and settings of training."""
    refuse_training_settings(settings)
    if (path is None) == (weights is None):
        raise ConfigError(
            "Give a run, a checkpoint or an exported file to evaluate, or --model NAME --weights FILE --data PATH."
        )
    if weights is not None and data is None and not any(s.startswith("data.source=") for s in settings):
        raise ConfigError("On which images? Weights of others have no data of their own: give --data PATH.")
    if topology().world > 1:
        return  # the others would wait for a process that never joins: the set-up refuses for all of them
    check_model_path(path, weights)
    if data is not None:
        from vernier.data.sources.opening import check_source

        check_source(data, detector=data == "coco")


def _report_lines(report: "EvaluationReport") -> list[str]:
    from vernier.report.live.console import TTA, format_figures

    part = "" if report.exact else "  PART of the set"
    tta = f" {TTA}" if report.flip_tta else ""
    step = "" if report.step is None else f"weights of step {report.step:,}, "
    return [
        *([f"ran: {report.ran.line()}"] if report.ran is not None else []),
        f"{format_figures(report.figures)}  on {report.samples:,} images of {report.data} ({report.split}){part}{tta}",
        f"{'averaged ' if report.averaged else ''}{step}{report.weights}; {report.images_per_s_total:,.0f} img/s",
        *([f"prepared: {report.prepared}"] if report.prepared else []),
        *(f"note: {note}" for note in report.notes),
        *_bad_lines(report),
        *_class_lines(report),
        *(f"wrote {path}" for path in report.written),
    ]


def _bad_lines(report: "EvaluationReport", limit: int = 20) -> list[str]:
    """The images that could not be read, by name."""
    if not report.bad_images:
        return []
    more = [f"  ... and {len(report.bad_images) - limit} more"] if len(report.bad_images) > limit else []
    head = f"{plural(len(report.bad_images), 'image')} could not be read, evaluated as black:"
    return [head, *(f"  {path}" for path in report.bad_images[:limit]), *more]


def _class_lines(report: "EvaluationReport", limit: int = 20) -> list[str]:
    """AP of a detector's classes; where there are many, the weakest ones first."""
    scores = [(c.AP, c) for c in report.classes or () if c.AP is not None]
    if len(scores) > limit:
        scores = sorted(scores, key=lambda pair: pair[0])
    head = [f"the {limit} weakest of {len(scores)} classes:"] if len(scores) > limit else []
    return head + [f"  {c.name:<20} AP {ap:.4f}  AP50 {c.AP50 or 0.0:.4f}" for ap, c in scores[:limit]]
