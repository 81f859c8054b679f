"""One session of a training run, from its first file to its summary: set-up, lock, start and end events, failures.

The steps themselves are `loop`'s; which checkpoint a session resumes from is chosen in `resume`.
"""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from vernier.config import Config, config_from_tree, describe_lr, to_dict
from vernier.config.settings import EXTENSIONS
from vernier.data.decoding.decode import encode_thumbnail
from vernier.data.sources import Source
from vernier.devices import describe_lost_device
from vernier.engine.observe import Observer, Observers, Recorder, Telemetry
from vernier.engine.processes.launch import time_left_s
from vernier.engine.processes.world import LostPeer, World
from vernier.errors import ConfigError, RunFailed, advice
from vernier.frozen import frozen
from vernier.measure.environment import collect_environment, read_versions
from vernier.measure.profiles import StepRange
from vernier.measure.run_summary import summarize_training
from vernier.plugins import load_plugin, needed_plugin
from vernier.records.codec import encode
from vernier.records.environment import decode_environment
from vernier.records.events import EndEvent, ProcessInfo, StartEvent, WarningEvent
from vernier.records.predictions import TrainImage, TrainImages
from vernier.records.profile import ProfileSummary
from vernier.records.run import (
    BadImageNote,
    Best,
    CheckpointState,
    HeldOut,
    PeakMemory,
    Progress,
    RunStatus,
    RunSummary,
)
from vernier.references import given, use
from vernier.signals import StopRequested
from vernier.store import CheckpointDir, NotSynced, RunDir

from .checkpoints.contents import read_state
from .checkpoints.resume import ResumePoint, describe_changes
from .checkpoints.writer import NotSaved
from .divergence import Diverged
from .guarantees import blame_code, check_unchanged, describe_code, guarantees
from .loop import Training
from .setup import Job, prepare
from .stop import StopFlag, TimeLimit

Ending = Literal["finished", "stopped"]
EXTERNAL_CHECKPOINTS = "vernier.external_checkpoints"
"""Entry points of functions that load a checkpoint of another program into a job, and return its progress."""
T = TypeVar("T")
THUMBNAIL_PX, DETECTION_THUMBNAIL_PX = 96, 192
"""Boxes are seen on larger ones only."""


Assess = Callable[[Config, Ending, RunSummary], RunSummary]
"""Completes the summary of a run that has ended: configuration, how it ended, summary."""


@frozen
class Outcome:
    """How a run ended; `stopped_by` names the signal that stopped it, and is None for a time limit."""

    run: RunDir
    status: Ending
    summary: RunSummary
    stopped_by: str | None = None


def train(
    config: Config,
    out: Path,
    resume: ResumePoint | None = None,
    observers: Sequence[Observer] = (),
    *,
    assess: Assess | None = None,
    world: World | None = None,
    profile: StepRange | None = None,
    notes: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> Outcome:
    """Train to the end, from the start or from a checkpoint. Raises RunFailed; returns `stopped` after a signal.

    `assess` adds to the summary how the run compares with published results; training needs none of that.
    `notes` and `warnings` are about the configuration, and are recorded with those of the set-up.
    """
    restored = resume is not None and resume.checkpoint is not None
    config = resume.keep_convolution(config) if resume is not None else config
    job = prepare(config, fresh=not restored, world=world)
    job.notes, job.warnings = (*notes, *job.notes), (*warnings, *job.warnings)
    try:
        begun = Progress() if restored else _begin(job)
        if profile is not None:
            first_step = resume.step if resume is not None and restored else begun.step
            profile.check(first_step, job.derived.stop_step, "profile_steps")
        # One process makes the directory: each would choose a name of its own by its clock.
        new = resume is None or resume.extended
        if resume is not None and resume.extended:
            resume = job.world.broadcast_from_first(partial(_extend, job, resume, out))
        run = resume.run if resume else job.world.broadcast_from_first(lambda: _create_run(job, out))
        if not job.world.first:
            with suppress(OSError):  # its messages stay on the terminal then
                _redirect_output(run.rank_log(job.world.rank))
        # The status before this session: a signal before the first step puts it back.
        everyone, before = Observers(*observers), None if new else run.status()
        try:
            with run.locked() if job.world.first else nullcontext():
                return _train_locked(job, run, resume, begun, everyone, assess, profile)
        except (StopRequested, _NotStarted):
            everyone.close()
            _undo_start(job, run, before)
            raise
    finally:
        job.close()


def _redirect_output(log: Path) -> None:
    """Append all further output of this process to a file: only the first process has the terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    # Descriptors instead of sys.stdout: libraries in C++ write to these directly.
    with log.open("a", encoding="utf-8") as f:
        os.dup2(f.fileno(), 1)
        os.dup2(f.fileno(), 2)


def _train_locked(
    job: Job,
    run: RunDir,
    resume: ResumePoint | None,
    begun: Progress,
    observers: Observers,
    assess: Assess | None,
    profile: StepRange | None,
) -> Outcome:
    log = run.events(job.world.rank)
    observers.add(Recorder(log))
    observers.watch(log)
    training: Training | None = None
    try:
        progress = _restore(job, resume.run, resume.checkpoint) if resume and resume.checkpoint else begun
        check_unchanged(job, run, progress)
        processes = _all_processes(job)
        sampler = _sensors(job, run, processes)
        observers.watch(sampler.log)
        _announce(job, run, observers, resume, sampler, processes)
        limit = _time_limit(job, run, observers)
        with StopFlag(one_of_many=job.world.size > 1, limit=limit) as stop, sampler:
            training = Training(job, run, observers, stop, progress)
            # After a kill, pointers and old checkpoints may be behind the newest one.
            if resume and resume.checkpoint:
                training.complete_saving(resume.checkpoint)
            if profile is not None:
                training.profile(profile)
            status = _run_until_stopped(training)
        outcome = _close(training, status, assess)
        return replace(outcome, stopped_by=stop.signal_name) if status == "stopped" else outcome
    except RunFailed as error:
        _record_failure(job, run, observers, training, error)
        raise
    except ConfigError:
        raise
    except Exception as error:
        failure = _lost_device(error)
        if failure is None and isinstance(error, RuntimeError):
            failure = _not_deterministic(error) or job.world.explain_lost_peer(error)
        failure = failure or blame_code(job.config.recipe, error)
        if failure is None:
            raise
        _record_failure(job, run, observers, training, failure)
        raise failure from error
    finally:
        observers.close_logs()


def _undo_start(job: Job, run: RunDir, before: RunStatus | None) -> None:
    """Before the first step a new run leaves nothing behind, and a resumed one stays as it was `before`."""
    if not job.world.first:
        return
    if before is None:
        shutil.rmtree(run.path, ignore_errors=True)
        return
    ended = before.status in ("finished", "failed")  # with a summary, or the mark of a divergence
    with suppress(OSError):
        run.write_status(**(encode(before) if ended else {"status": "stopped"}))


def _run_until_stopped(training: Training) -> Ending:
    try:
        training.run_to_end()
    except StopRequested as request:
        # The state first: the launcher or scheduler may end this process soon.
        training.save()
        training.finish_saving()
        message = f"stopped by {request}: saved, run the same command to resume"
        training.observers.warn(training.progress.step, message)
        return "stopped"
    except Exception:
        training.close()
        raise
    return "finished"


# -------------------------------------------------------------------------------------------------------------- start


def _begin(job: Job) -> Progress:
    """The progress of a new run, which may continue from a checkpoint of another program."""
    if not job.config.recipe.model.checkpoint:
        return Progress()
    resume_external: Callable[[Job], Progress] = load_plugin(EXTERNAL_CHECKPOINTS, "model.checkpoint", "torch", "none")
    return resume_external(job)


def _create_run(job: Job, out: Path) -> RunDir:
    """A new run directory, with its configuration at once: by it the same command finds the run again."""
    name = job.config.recipe.name  # which names what was changed about the recipe
    run = RunDir.create(out, f"smoke-{name}" if job.config.limits.smoke else name)
    try:
        run.write_config(to_dict(job.config))
    except OSError as error:
        shutil.rmtree(run.path, ignore_errors=True)
        raise _not_started(error) from error
    return run


def _extend(job: Job, parent: ResumePoint, out: Path) -> ResumePoint:
    """A new run directory with the last checkpoint and the history of a finished run."""
    assert parent.checkpoint is not None
    _refuse_changed_data(job, parent.run, read_state(parent.checkpoint))
    run: RunDir = needed_plugin(EXTENSIONS, "resume", parent.run.path).fork(parent.run, parent.checkpoint, job, out)
    return ResumePoint(run, run.checkpoints.newest())


def _refuse_changed_data(job: Job, run: RunDir, state: CheckpointState) -> None:
    if state.data_fingerprint != job.train_source.fingerprint():
        raise ConfigError(_explain_changed_data(state.classes, job.train_source.classes, run))


def _restore(job: Job, run: RunDir, checkpoint: CheckpointDir) -> Progress:
    """Load the checkpoint into the job; how far it was."""
    state = read_state(checkpoint)
    _refuse_changed_data(job, run, state)
    job.notes += describe_changes(config_from_tree(state.config), job.config)
    job.warnings = (*job.warnings, *_other_arithmetic(job, run))
    return job.restore(checkpoint)


def _part_warnings(job: Job) -> tuple[str, ...]:
    """A warning if a part of the validation set decides which weights are the best, and when training stops."""
    part, config = job.evaluator and job.evaluator.part, job.config
    if not part or config.limits.smoke or not (config.recipe.eval.patience or config.checkpoint.keep_best):
        return ()
    decided = f"the best checkpoint and {given('eval.patience')}: {part}"
    return (f"a part of the set decides on {decided}. Without {given('limits.max_eval_steps')} all of it does",)


def _other_arithmetic(job: Job, run: RunDir) -> list[str]:
    """A warning where a run continues with other threads, another device or other libraries than it had."""
    before = decode_environment(run.read_environment())
    if before is None:
        return []
    versions, devices = read_versions(), job.device.identity()
    pairs: list[tuple[str, object, object]] = [
        (package, before.versions.get(package), versions[package]) for package in ("torch", "simplejpeg")
    ]
    pairs += [("device", before.devices[0].name, devices[0].name)] if before.devices and devices else []
    pairs += [("threads", before.compute_threads, job.threads)]
    changed = [f"{what} was {old}, is {new}" for what, old, new in pairs if old is not None and old != new]
    exact = "machine.reduction = exact: " if job.config.machine.reduction == "exact" else ""
    promise = "the same weights are promised for one kind of device and one version only, with as many threads"
    return [f"{exact}{'; '.join(changed)}. Sums are rounded differently: {promise}"] if changed else []


def _explain_changed_data(before: tuple[str, ...], now: tuple[str, ...], run: RunDir) -> str:
    if before != now and sorted(before) == sorted(now):
        return (
            f"{run.path} was trained with its classes in the order {', '.join(before[:3])}, ...; they are read as "
            f"{', '.join(now[:3])}, ... now (class folders that are numbers are sorted as numbers), so the run cannot "
            "be resumed. It can be evaluated: vernier eval matches classes by name. To train on, start a new run."
        )
    return (
        f"The training data has changed since {run.path} was started (other files, labels or classes), "
        "so the run cannot be resumed exactly. Restore the data or start a new run."
    )


def _all_processes(job: Job) -> list[ProcessInfo]:
    """The processes of the run by rank, in each of them."""
    by_rank = job.world.gather(job.world.process_info(job.device, job.threads))
    return job.world.broadcast_from_first(lambda: by_rank)


def _sensors(job: Job, run: RunDir, processes: list[ProcessInfo]) -> Telemetry:
    """The sensors of the devices that the run's processes on this host compute on."""
    where = job.world.topology
    uuids = [process.uuid for process in processes if process.host == where.host]
    return Telemetry(run, job.device.name, uuids, job.config.machine.telemetry_hz, where)


def _announce(
    job: Job,
    run: RunDir,
    observers: Observers,
    resume: ResumePoint | None,
    sampler: Telemetry,
    processes: list[ProcessInfo],
) -> None:
    """Write the run's first files, emit the start event and the warnings of the set-up."""
    if job.world.first:
        job.world.on_lost_peer(lambda reason: run.write_status("crashed", reason=reason))
        environment = collect_environment(job.device.identity(), job.device.name, job.threads, sampler.setup, processes)
        try:
            run.write_config(to_dict(job.config))
            run.write_environment(encode(environment))
            if job.val_source is not None and job.val_source.held_out:
                run.write_held_out(encode(_held_out(job, job.val_source)))
            run.write_status("running")
        except OSError as error:
            raise _not_started(error) from error
    observers.emit(_start_event(job, run, resume, processes))
    for message in (*job.warnings, *_part_warnings(job)):
        observers.warn(resume.step if resume else 0, message)
    # Not when resuming: the batch would be that of the first step again.
    if resume is None and job.world.first:
        _keep_first_images(job, run, observers)


def _keep_first_images(job: Job, run: RunDir, observers: Observers) -> None:
    """Thumbnails of the first training images go to the run directory, for reports, and the images to trackers."""
    first = job.first_images()
    observers.pictures("train/images", first.images)
    height, width = first.images.shape[1:3]
    side_px = THUMBNAIL_PX if first.classes else DETECTION_THUMBNAIL_PX
    thumbnails = (encode_thumbnail(image, side_px) for image in first.images)
    names = first.classes or [""] * len(first.images)
    images = tuple(TrainImage(jpeg=jpeg, class_name=name) for jpeg, name in zip(thumbnails, names, strict=True))
    try:
        run.write_train_images(TrainImages(width=width, height=height, images=images))
    except OSError as error:
        message = f"The first training images are not kept: {error.filename}: {error.strerror}."
        observers.warn(0, message)


def _held_out(job: Job, source: Source) -> HeldOut:
    """The images of the validation part that Vernier made."""
    data = job.config.recipe.data
    names = tuple(source.name(i) for i in range(len(source)))
    return HeldOut(
        data=data.source, share=data.val_share, images=len(names), train_images=len(job.train_source), names=names
    )


def _time_limit(job: Job, run: RunDir, observers: Observers) -> TimeLimit | None:
    """limits.max_time as an observer."""
    text = job.config.limits.max_time
    left_s = time_left_s(text)
    if text is None or left_s is None:
        return None
    limit = TimeLimit(text, left_s, job.world.size)
    limit.learn(run.history_so_far())
    observers.add(limit)
    return limit


def _start_event(job: Job, run: RunDir, resume: ResumePoint | None, processes: list[ProcessInfo]) -> StartEvent:
    recipe, machine, code = job.config.recipe, job.config.machine, describe_code(job.config.recipe)
    lines = [process.describe() for process in processes if job.world.size > 1]
    return StartEvent(
        run=str(run.path),
        recipe=recipe.name,
        model=recipe.model.name,
        data=recipe.data.source,
        seed=recipe.seed,
        parameters=sum(p.numel() for p in job.model.parameters()),
        classes=len(job.train_source.classes),
        train_samples=len(job.train_source),
        val_samples=len(job.val_source) if job.val_source is not None else 0,
        device=job.device.name,
        threads=job.threads,
        precision=machine.precision,
        mode=machine.mode,
        workers=job.loader.workers,
        loading=job.loading,
        global_batch=recipe.global_batch,
        epochs=recipe.schedule.epochs,
        log_every_steps=job.config.limits.log_every_steps,
        metric=job.task.metric,
        resumed_from=resume.step if resume else None,
        processes=tuple(processes),
        restarts=job.world.topology.restarts,
        notes=(*job.notes, *lines),
        lr_rule=describe_lr(recipe),
        memory=job.memory,
        ran=job.what_ran(),
        code=code or None,
        guarantees=guarantees(code) or None,
        **asdict(job.derived),
    )


# ---------------------------------------------------------------------------------------------------------------- end


def _close(training: Training, status: Ending, assess: Assess | None) -> Outcome:
    """Summarise the run, emit the end event, and write run.json."""
    summary, run = _summarize(training), training.run
    if assess is not None:
        summary = assess(training.job.config, status, summary)
    training.observers.emit(EndEvent(status=status, **vars(summary)))
    if training.job.world.first:
        try:
            run.write_status(status, summary=encode(summary))
        except NotSynced as error:  # the same command would start a new run: this one is finished
            message = f"{error.filename} could not be synced: {error.strerror}. A power cut now may lose the summary."
            training.observers.warn(training.progress.step, message)
        except OSError as error:
            raise NotSaved(
                f"The training is done, but {error.filename} could not be written: {error.strerror}. {advice(error)} "
                "Then run the same command to complete the run."
            ) from error
    return Outcome(run=run, status=status, summary=summary)


def _summarize(training: Training) -> RunSummary:
    job, progress = training.job, training.progress
    best_figures = {job.task.metric: progress.best_value}
    speed = summarize_training(
        _read_log(training, training.run.history),
        global_batch=job.config.recipe.global_batch,
        devices=job.derived.world,
        telemetry=_read_log(training, training.run.read_telemetry),
        several_hosts=job.world.topology.local_world < job.world.size,
    )
    return RunSummary(
        step=progress.step,
        epoch=progress.step / job.derived.steps_per_epoch,
        result=progress.result,
        best=Best(step=progress.best_step, figures=best_figures) if progress.best_step else None,
        reached_target=progress.reached_target,
        stopped_early=training.out_of_patience or None,
        spent_s=training.watch.spent(),
        skipped_steps=job.step.scaler.skipped_steps,
        rollbacks=progress.rollbacks.count if progress.rollbacks else None,
        bad_images=_bad_images(job),
        profile=_profile(training),
        compilation=job.network.compilation,
        training=speed,
        memory=_peak_memory(job),
        ran=job.what_ran(),
        notes=(job.val_source.notes or None) if job.val_source is not None else None,
    )


def _read_log(training: Training, read: Callable[[], list[T]]) -> list[T]:
    """A log of the run, for the summary; where it cannot be read that is a warning."""
    try:
        return read()
    except OSError as error:
        message = f"{error.filename} could not be read: {error.strerror}. The summary lacks what it holds."
        training.observers.warn(training.progress.step, message)
        return []


def _profile(training: Training) -> ProfileSummary | None:
    """The summary of the profiled steps, where some were."""
    job = training.job
    if training.profiler is None:
        return None
    return training.profiler.close(job.what_ran(), lambda: _read_log(training, training.run.read_telemetry))


def _peak_memory(job: Job) -> PeakMemory:
    """The largest peak of all processes, beside the predicted one."""
    memory = job.device.memory()
    peaks = [peak for peak in job.world.gather(memory.peak_bytes if memory is not None else None) if peak is not None]
    return PeakMemory(measured_bytes=max(peaks, default=None), predicted_bytes=job.memory.peak_bytes)


def _bad_images(job: Job) -> tuple[BadImageNote, ...]:
    """The unreadable images of all processes, each once, by path."""
    mine = [BadImageNote(path=bad.path, reason=bad.reason) for counter in job.bad_images() for bad in counter.samples()]
    # By path: processes that evaluate together may meet the same image.
    by_path = {note.path: note for notes in job.world.gather(mine) for note in notes}
    return tuple(by_path[path] for path in sorted(by_path))


# ----------------------------------------------------------------------------------------------------------- failures


class _NotStarted(NotSaved):
    """The first files of a session could not be written. A new run is removed, a resumed one stays as it was."""


def _not_started(error: OSError) -> _NotStarted:
    return _NotStarted(f"Nothing was trained: {error.filename} could not be written: {error.strerror}. {advice(error)}")


class _LostDevice(RunFailed):
    """The device is gone. The run can be resumed from its last checkpoint with the same command."""


def _lost_device(error: Exception) -> RunFailed | None:
    """The message for people when the device is gone in the middle of a run."""
    lost = describe_lost_device(error)
    return _LostDevice(f"{lost}. Run the same command to resume from the last checkpoint.") if lost else None


def _not_deterministic(error: RuntimeError) -> RunFailed | None:
    """The message for people when PyTorch refuses an operation under --deterministic."""
    if "deterministic implementation" not in str(error):
        return None
    return RunFailed(
        f"{given('machine.deterministic', True)}: {str(error).split('. ')[0]}. Omit it and "
        f"{given('machine.reduction', 'exact')}, or use {use('machine.device', 'cpu')}."
    )


def _record_failure(job: Job, run: RunDir, observers: Observers, training: Training | None, error: RunFailed) -> None:
    observers.record(WarningEvent(step=training.progress.step if training else 0, message=error.message))
    if job.world.first:
        lost = isinstance(error, LostPeer | _LostDevice | NotSaved)
        diverged = {"diverged": True} if isinstance(error, Diverged) else {}
        with suppress(OSError):  # the reason is printed in any case
            run.write_status("crashed" if lost else "failed", reason=str(error), **diverged)
