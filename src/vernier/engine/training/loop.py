"""The training run: steps, evaluations, checkpoints, until done, stopped or failed. Knows no concrete model, data set or device."""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from vernier.clock import Stopwatch, now_s
from vernier.config import Config, Recipe, digest, to_dict
from vernier.data.loading.loader import Batch
from vernier.engine.observe import Observer, Observers, Telemetry
from vernier.engine.processes.launch import redirect_output
from vernier.engine.processes.world import LostPeer, StepDecision, Stragglers, World, describe_process, process_info
from vernier.engine.training.checkpoint import Progress, all_finite, fill_checkpoint, restore
from vernier.engine.training.resume import ResumePoint
from vernier.engine.training.samples import first_images
from vernier.engine.training.setup import Job, prepare
from vernier.engine.training.step_window import StepWindow
from vernier.engine.training.stop import StopFlag, StopRequested
from vernier.errors import ConfigError, RunFailed
from vernier.measure.machine.environment import collect_environment
from vernier.measure.profile.steps import StepProfiler
from vernier.measure.profile.summary import StepRange
from vernier.measure.statistics.agreement import agreement
from vernier.measure.statistics.run_summary import summarize_training
from vernier.measure.telemetry.energy import select_devices
from vernier.optim.schedules import learning_rate
from vernier.records.codec import decode, encode
from vernier.records.events import ProcessInfo
from vernier.records.run import EvalResult
from vernier.records.telemetry import TelemetryRecord, decode_telemetry
from vernier.store import EventLog, RunDir, read_json

CHECKPOINT_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended."""

    run: RunDir
    status: Literal["finished", "stopped"]
    summary: dict[str, Any]


class Training:
    """One session of one run."""

    def __init__(self, job: Job, run: RunDir, observers: Observers, stop: StopFlag, progress: Progress) -> None:
        self.job, self.run, self.observers, self.stop, self.progress = job, run, observers, stop, progress
        self.watch = Stopwatch(progress.spent_s)
        self.window = StepWindow(job.config.limits.log_every_steps)
        self.saved = (progress.step, progress.last_eval_step)  # what the newest checkpoint holds
        self._step_began_s = now_s()
        self._decision = StepDecision(stop=False, report=False)
        self._stragglers = Stragglers()
        self.profiler: StepProfiler | None = None

    def profile(self, steps: StepRange) -> None:
        """Profile some of the steps that lie ahead."""
        self.profiler = StepProfiler(steps, self.run.traces(), self.job.device.synchronize, self.job.world.rank)
        self.job.step.phase = self.profiler.phase

    # ------------------------------------------------------------------------------------------------------- the loop

    def run_to_end(self) -> None:
        derived, progress = self.job.derived, self.progress
        batches = self.job.loader.batches(self.job.requests(progress.step, derived.stop_step))
        self._at_boundary()
        self._step_began_s = now_s()
        while progress.step < derived.stop_step and not progress.reached_target:
            self._one_step(batches)
            self._at_boundary()
            if self._decision.stop:
                self.stop.obey()
        self.save()

    def _one_step(self, batches: Iterator[Batch]) -> None:
        """A step lasts until the next begins, so the cost of reporting is in it; evaluations and checkpoints are not."""
        if self.profiler is not None:
            self.profiler.begin(self.progress.step + 1)
        loss, wait_s, own_s = self.job.step(self.progress.step, batches)
        self.progress.step += 1
        if self.profiler is not None:
            self.profiler.end(self.progress.step)
        began_s, self._step_began_s = self._step_began_s, now_s()
        self.window.add(loss, self._step_began_s - began_s, wait_s, own_s)
        self._decision = self.job.world.agree_on_stop_and_report(
            self.progress.step, stop=self.stop.requested, report=self.window.overdue
        )
        if self.window.counted or self._decision.report:
            self._flush_window()

    def _at_boundary(self) -> None:
        """Between two steps: evaluate and save when it is time. Also run first after a resume, for what was cut short."""
        if self.progress.step % self.job.derived.steps_per_epoch == 0:
            self._flush_window()
        if self._eval_due():
            self._flush_window()
            self._evaluate()
            self._step_began_s = now_s()
        if self._checkpoint_due():
            self.save()
            self._step_began_s = now_s()

    # ------------------------------------------------------------------------------------------------------ reporting

    def _flush_window(self) -> None:
        """Report the steps since the last report; a loss that is not a number ends the run here."""
        window, progress, derived = self.window, self.progress, self.job.derived
        if not window.step_s:
            return
        self.job.device.synchronize()
        losses = window.take_losses(self.job.world)
        window.step_s[-1] += now_s() - self._step_began_s
        self._step_began_s = now_s()
        first = progress.step - len(losses)
        bad = next((i for i, value in enumerate(losses) if not math.isfinite(value)), None)
        if bad is not None:
            raise RunFailed(self._diverged(first + bad + 1, "The loss", str(losses[bad])))
        self._account(busy_s=max(0.0, sum(window.step_s) - sum(window.wait_s)), wait_s=sum(window.wait_s))
        self.observers.emit(
            "step", step=progress.step, epoch=progress.step / derived.steps_per_epoch, loss=sum(losses) / len(losses),
            lr=learning_rate(progress.step - 1, self.job.config.recipe.schedule, derived),
            samples=len(losses) * self.job.config.recipe.global_batch, step_s=window.step_s, wait_s=window.wait_s,
            t_s=self._step_began_s, **self._scaling(), **self._by_process(),
        )  # fmt: skip
        window.clear()
        self._report_bad_images()
        if progress.step % derived.steps_per_epoch == 0:
            self.observers.emit("epoch", step=progress.step, epoch=progress.step // derived.steps_per_epoch)

    def _account(self, busy_s: float, wait_s: float) -> None:
        """Where the time of the window's steps went."""
        communication_s = min(self.job.world.pop_exposed_s(), busy_s)
        self.watch.add("data_wait", wait_s)
        self.watch.add("compute", busy_s - communication_s)
        if self.job.world.size > 1:
            self.watch.add("communication", communication_s)

    def _by_process(self) -> dict[str, Any]:
        """Several processes: each one's mean seconds a step without waiting for the others, and a warning about a slow one."""
        if self.job.world.size == 1:
            return {}
        own_s = self.job.world.gather(sum(self.window.own_s) / len(self.window.own_s))
        if warning := self._stragglers.check(own_s):
            self.observers.emit("warning", step=self.progress.step, message=warning)
        return {"own_s_by_rank": own_s}

    def _report_bad_images(self) -> None:
        """Every process tells of what it met; the first one of all, which count against one limit."""
        kinds = self.job.bad_images()
        mine = [kind.pop_new() for kind in kinds]
        for found in self.job.world.gather(mine) or [mine]:
            for kind, met in zip(kinds, found, strict=True):
                for bad in met:
                    self.observers.emit(
                        "warning", step=self.progress.step, message=f"bad image {bad.path}: {bad.reason}"
                    )
                    kind.add_from_peer(bad)

    def _scaling(self) -> dict[str, float]:
        scaler = self.job.step.scaler
        return {"loss_scale": scaler.scale, "skipped_steps": scaler.skipped_steps} if scaler.enabled else {}

    def _diverged(self, step: int, what: str, value: str) -> str:
        kept = self.run.newest_checkpoint()
        where = f"The last good checkpoint is {kept.path}." if kept else "No checkpoint had been written yet."
        lr = learning_rate(step - 1, self.job.config.recipe.schedule, self.job.derived)
        return (
            f"{what} became {value} at step {step} (learning rate {lr:.6g}). {where} "
            "Try a lower optim.lr, a longer schedule.warmup_epochs, or check the data."
        )

    # ----------------------------------------------------------------------------------------------------- evaluation

    def _crossed(self, every_epochs: float, offset_epochs: float = 0.0) -> bool:
        """Whether the step just done completed a multiple of `every_epochs`, counted from an offset."""
        step, offset = self.progress.step, offset_epochs * self.job.derived.steps_per_epoch
        if every_epochs <= 0 or step == 0 or step < offset - 1e-9:
            return False
        per = every_epochs * self.job.derived.steps_per_epoch
        return math.floor((step - offset) / per + 1e-9) > math.floor((step - 1 - offset) / per + 1e-9)

    def _eval_due(self) -> bool:
        step, derived, policy = self.progress.step, self.job.derived, self.job.config.recipe.eval
        if self.job.evaluator is None or step == 0 or self.progress.last_eval_step == step:
            return False
        if policy.at_epochs:
            per = derived.steps_per_epoch
            return step >= derived.stop_step or any(step == math.ceil(e * per - 1e-9) for e in policy.at_epochs)
        return step >= derived.stop_step or self._crossed(policy.every_epochs, policy.offset_epochs)

    def _evaluate(self) -> None:
        assert self.job.evaluator is not None
        progress, start = self.progress, now_s()
        weights = None if self.job.average is None else self.job.average.tensors
        with self.watch.spending("evaluation"):
            self._share_statistics()
            score = self.job.evaluator.score(self.job.network, weights, self.observers, self._check_stop)
            result = self.job.world.broadcast_from_first(score.result)
        for name, figure in result.figures.items():
            if figure is not None and not math.isfinite(figure):
                raise RunFailed(self._diverged(progress.step, f"The evaluation's {name}", str(figure)))
        value = result.figures[self.job.task.metric]
        better = progress.best_value is None or (value is not None and value > progress.best_value)
        progress.last_eval_step = progress.step
        result = replace(
            result,
            averaged=weights is not None,
            exact=self.job.config.limits.max_eval_steps is None,
            flip_tta=self.job.config.recipe.eval.flip_tta,
        )
        progress.result = encode(result)
        if better:
            progress.best_value, progress.best_step = value, progress.step
        target = self.job.task.target()
        progress.reached_target = target is not None and value is not None and value >= target
        self.observers.emit(
            "eval", step=progress.step, epoch=progress.step / self.job.derived.steps_per_epoch, best=better,
            seconds=now_s() - start, **progress.result,
        )  # fmt: skip
        if self.job.world.first:
            for name, document in score.documents().items():
                self.run.write_prediction(name, document)
        self._report_bad_images()
        if better and self.job.config.checkpoint.keep_best:
            self.save()

    def _check_stop(self) -> None:
        if self.job.world.any_process(self.stop.requested):
            self.stop.obey()

    def _share_statistics(self) -> None:
        average = None if self.job.average is None else self.job.average.tensors
        self.job.world.sync_batch_norm_statistics(
            self.job.model, average, self.job.config.machine.batch_norm_statistics
        )

    # ---------------------------------------------------------------------------------------------------- checkpoints

    def _checkpoint_due(self) -> bool:
        policy, step = self.job.config.checkpoint, self.progress.step
        return self._crossed(policy.every_epochs) or (policy.every_steps > 0 and step % policy.every_steps == 0)

    def save(self) -> None:
        """Report what is pending, then write a checkpoint unless the newest one already holds this state."""
        self._flush_window()
        if self.saved == (self.progress.step, self.progress.last_eval_step):
            return
        self._share_statistics()
        if not all_finite(self.job.model):
            raise RunFailed(self._diverged(self.progress.step, "A weight", "not finite"))
        self.watch.add("checkpoint", self.job.world.broadcast_from_first(self._write_checkpoint))
        self.saved = (self.progress.step, self.progress.last_eval_step)

    def _write_checkpoint(self) -> float:
        start, job, progress = now_s(), self.job, self.progress
        progress.spent_s, progress.scaler = self.watch.spent(), job.step.scaler.state()
        state = checkpoint_state(job, progress)
        try:
            committed = self.run.commit_checkpoint(
                progress.step,
                lambda folder: fill_checkpoint(folder, job.model, job.optimizer, job.average, state),
                best=progress.best_step == progress.step,
            )
        except OSError as error:
            raise RunFailed(f"The checkpoint could not be saved: {error}. Earlier checkpoints are intact.") from error
        self.run.prune_checkpoints(self._keeps)
        self.observers.emit("checkpoint", step=progress.step, path=str(committed.path.name), seconds=now_s() - start)
        return now_s() - start

    def _keeps(self, step: int) -> bool:
        policy = self.job.config.checkpoint
        newest = [c.step for c in self.run.checkpoints()][-policy.keep_last :]
        per = policy.keep_every_epochs * self.job.derived.steps_per_epoch
        return step in newest or (per > 0 and step % round(per) == 0)


def checkpoint_state(job: Job, progress: Progress) -> dict[str, Any]:
    """state.json: enough to go on, and to know what this is without its run directory."""
    ids = job.task.category_ids(job.train_source)
    return {
        "schema": CHECKPOINT_SCHEMA,
        "step": progress.step,
        "progress": asdict(progress),
        "classes": list(job.train_source.classes),
        "channels": job.train_source.channels,
        "data_fingerprint": job.train_source.fingerprint(),
        "recipe_digest": digest(job.config.recipe),
        "config": to_dict(job.config),
        **({} if ids is None else {"category_ids": list(ids)}),
    }


# ------------------------------------------------------------------------------------------------------- the whole run


def train(
    config: Config, out: Path, resume: ResumePoint | None, watchers: list[Observer], reference: Recipe | None = None,
    world: World | None = None, profile: StepRange | None = None,
) -> Outcome:  # fmt: skip
    """Train to the end, from the start or from a checkpoint. Raises RunFailed; returns `stopped` after a signal.

    `reference` is the built-in recipe the run is based on: what differs from it is named beside the published result.
    """
    job = prepare(config, fresh=resume is None, world=world)
    try:
        if profile is not None:
            profile.check(resume.checkpoint.step if resume else 0, job.derived.stop_step, "--profile-steps")
        run = resume.run if resume else job.world.broadcast_from_first(lambda: RunDir.create(out, config.recipe.name))
        if not job.world.first:
            redirect_output(run.rank_log(job.world.rank))
        with run.locked() if job.world.first else nullcontext():
            return _train_locked(job, run, resume, Observers(*watchers), reference, profile)
    finally:
        job.close()


def _train_locked(
    job: Job, run: RunDir, resume: ResumePoint | None, observers: Observers, reference: Recipe | None, profile: StepRange | None
) -> Outcome:  # fmt: skip
    log = run.events(job.world.rank)
    observers.add(Recorder(log))
    session: Training | None = None
    try:
        progress = _restored(job, resume) if resume else Progress()
        processes = job.world.gather(process_info(job.world, job.device, job.threads))
        sampler = Telemetry(run, job.device.name, job.config.machine.telemetry_hz, job.world.topology)
        if job.world.first:
            job.world.on_lost_peer(lambda reason: run.write_status("crashed", reason=reason))
            run.write_config(to_dict(job.config))
            environment = collect_environment(
                job.device.identity(), job.device.name, job.threads, sampler.setup, processes
            )
            run.write_environment(encode(environment))
            run.write_status("running")
        _announce(job, run, observers, resume, processes)
        if resume is None:
            observers.pictures("train/images", lambda: first_images(job))
        with StopFlag(one_of_many=job.world.size > 1) as stop, sampler:
            session = Training(job, run, observers, stop, progress)
            if profile is not None:
                session.profile(profile)
            try:
                session.run_to_end()
                status: Literal["finished", "stopped"] = "finished"
            except StopRequested as request:
                session.save()
                observers.emit(
                    "warning", step=progress.step, message=f"stopped by {request}: saved, run the same command to go on"
                )
                status = "stopped"
        return _close(session, status, reference)
    except RunFailed as error:
        _note_failure(job, run, observers, session, error)
        raise
    except RuntimeError as error:
        lost = _not_deterministic(error) or job.world.explain_lost_peer(error)
        if lost is None:
            raise
        _note_failure(job, run, observers, session, lost)
        raise lost from error
    finally:
        log.close()


def _not_deterministic(error: RuntimeError) -> RunFailed | None:
    """The error for people when PyTorch refuses an operation under --deterministic."""
    if "deterministic implementation" not in str(error):
        return None
    return RunFailed(f"--deterministic: {str(error).split('. ')[0]}. Leave the flag out, or use --device cpu.")


def _note_failure(
    job: Job, run: RunDir, observers: Observers, session: Training | None, error: RunFailed
) -> None:  # fmt: skip
    observers.emit("warning", step=session.progress.step if session else 0, message=str(error))
    if job.world.first:
        run.write_status("crashed" if isinstance(error, LostPeer) else "failed", reason=str(error))


class Recorder:
    """Writes what is emitted to the run's event file."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def emit(self, event: dict[str, Any]) -> None:
        self._log.emit(event)

    def progress(self, phase: str, done: int, total: int) -> None:
        pass


def _restored(job: Job, resume: ResumePoint) -> Progress:
    state = read_json(resume.checkpoint.path / "state.json")
    if state["data_fingerprint"] != job.train_source.fingerprint():
        raise ConfigError(
            f"The training data has changed since {resume.run.path} was started (other files, labels or classes), "
            "so the run cannot go on exactly. Restore the data or start a new run."
        )
    progress = restore(resume.checkpoint, job.model, job.optimizer, job.average)
    job.step.scaler.load(progress.scaler)
    return progress


def _telemetry(job: Job, run: RunDir) -> list[TelemetryRecord]:
    """Samples of the devices in use; none where other hosts have devices too, which this one cannot see."""
    where = job.world.topology
    used = [device.uuid for device in job.device.identity()[: where.local_world]]
    if where.local_world < where.world:
        return []
    return select_devices(decode_telemetry(run.read_telemetry()), used)


def _announce(
    job: Job, run: RunDir, observers: Observers, resume: ResumePoint | None, processes: list[ProcessInfo]
) -> None:
    recipe, derived = job.config.recipe, job.derived
    notes = [*job.notes, *(describe_process(p) for p in processes if job.world.size > 1)]
    observers.emit(
        "start", run=str(run.path), recipe=recipe.name, model=recipe.model.name, data=recipe.data.source,
        parameters=sum(p.numel() for p in job.model.parameters()), device=job.device.name, threads=job.threads,
        precision=job.config.machine.precision, mode=job.config.machine.mode, seed=recipe.seed, epochs=recipe.schedule.epochs,
        train_samples=len(job.train_source), val_samples=len(job.val_source) if job.val_source is not None else 0,
        classes=len(job.train_source.classes), global_batch=recipe.global_batch, workers=job.config.machine.workers, loading=job.loading,
        metric=job.task.metric, resumed_from=resume.checkpoint.step if resume else None, notes=notes, processes=encode(processes),
        restarts=job.world.topology.restarts, **asdict(derived),
    )  # fmt: skip
    for message in job.warnings:
        observers.emit("warning", step=resume.checkpoint.step if resume else 0, message=message)


def _close(session: Training, status: Literal["finished", "stopped"], reference: Recipe | None) -> Outcome:
    job, progress, run = session.job, session.progress, session.run
    bad = job.world.gather([asdict(bad) for kind in job.bad_images() for bad in kind.samples()])
    known = {one["path"]: one for found in bad for one in found}
    summary = {
        "step": progress.step,
        "epoch": progress.step / job.derived.steps_per_epoch,
        "result": progress.result,
        "best": {"step": progress.best_step, job.task.metric: progress.best_value} if progress.best_step else None,
        "reached_target": progress.reached_target,
        "agreement": encode(agreement(job.config, decode(EvalResult, progress.result), reference))
        if status == "finished" and progress.result
        else None,
        "spent_s": session.watch.spent(),
        "skipped_steps": job.step.scaler.skipped_steps,
        "bad_images": [known[path] for path in sorted(known)],
        "profile": encode(session.profiler.close()) if session.profiler is not None else None,
        "compilation": job.network.spent.facts(),
        "training": summarize_training(
            run.read_events(),
            global_batch=job.config.recipe.global_batch,
            devices=job.derived.world,
            telemetry=_telemetry(job, run),
        ),
    }
    session.observers.emit("end", status=status, **summary)
    if job.world.first:
        run.write_status(status, summary=summary)
    return Outcome(run=run, status=status, summary=summary)
