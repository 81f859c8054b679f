"""The training loop: steps, evaluations and checkpoints until done, stopped or failed.

Knows no concrete model, data set or device. What is built before the first step is in `setup`, what happens around the
loop (locks, start and end of a session) in `session`, what a checkpoint holds in `checkpoints`.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from vernier.clock import Stopwatch, now_s
from vernier.data.loading.loader import Batch
from vernier.engine.observe import Observers
from vernier.engine.processes.gradients import ReductionTimes
from vernier.engine.processes.world import Stragglers
from vernier.measure.profiles import StepRange
from vernier.optim.schedules import learning_rate
from vernier.records.events import CheckpointEvent, EvalEvent, StepEvent
from vernier.records.run import Compilation, EvalResult, Progress, Rollbacks
from vernier.references import use
from vernier.store import CheckpointDir, RunDir
from vernier.wording import plural

from .checkpoints.contents import all_finite, tensor_files
from .checkpoints.writer import CheckpointWriter
from .divergence import Diverged
from .profiling import Profiler, open_profiler
from .setup import Job
from .stop import StopFlag
from .totals import CorrectCounter, EpochTotals
from .window import StepWindow

SavedState = tuple[int, int, Rollbacks | None]
"""What tells one checkpoint from another: the step, that of the last evaluation, and how often the run went back."""

_COMPILING_WINDOWS = 5
"""After so many reports in a row with compilations, something in the steps prevents that they end."""

_NOTHING: SavedState = (-1, 0, None)
"""What the newest checkpoint holds where there is none."""


class Training:
    """One session of one run."""

    def __init__(self, job: Job, run: RunDir, observers: Observers, stop: StopFlag, progress: Progress) -> None:
        self.job, self.run, self.observers, self.stop, self.progress = job, run, observers, stop, progress
        self.watch = Stopwatch(progress.spent_s)
        each = job.config.machine.step_times == "each"
        self.window = StepWindow(job.device, job.config.limits.log_every_steps, each=each)
        self.saved = self._state()  # what the newest checkpoint holds
        self._epoch = self._resumed_epoch()
        self._stragglers = Stragglers()
        self._writer = CheckpointWriter(run.checkpoints, job.config.checkpoint, job.derived.steps_per_epoch)
        self.profiler: Profiler | None = None
        self._repeated_from = -1  # the step of a checkpoint
        self._suspect: Diverged | None = None
        self._compiled, self._compiling_windows = job.device.compilations(), 0

    def profile(self, steps: StepRange) -> None:
        """Profile some of the steps that lie ahead."""
        self.profiler = open_profiler(steps, self.run.traces(), self.job.device.synchronize, self.job.world.rank)
        self.job.step.phase = self.profiler.phase

    # ------------------------------------------------------------------------------------------------------- the loop

    def run_to_end(self) -> None:
        """Train until done. Raises StopRequested after a signal, Diverged, and NotSaved."""
        policies = self.job.config.limits.on_divergence, self.job.config.audit.on_corruption
        if "rollback" in policies and self.progress.step == 0:
            self.saved = _NOTHING  # so that there is a checkpoint to go back to
            self.save()
        while True:
            batches = self.job.loader.batches(self.job.requests(self.progress.step, self.job.derived.stop_step))
            try:
                self._train(batches)
                break
            except Diverged as error:
                batches.close()
                self._roll_back(error)
        self.finish_saving()
        self._clear_suspect()

    def _train(self, batches: Iterator[Batch]) -> None:
        progress, stop_step = self.progress, self.job.derived.stop_step
        self._at_boundary()
        self.job.device.end_step()  # what set-up or a checkpoint left is no part of the first step's program
        self._begin_window()
        while progress.step < stop_step and not self.ended_early:
            stop = self._one_step(batches)
            self._at_boundary()
            if stop and progress.step < stop_step:  # after the last step the run is completed
                self._obey_stop()
        if self.job.config.checkpoint.at_end:
            self.save()
        self._flush_window()

    def _one_step(self, batches: Iterator[Batch]) -> bool:
        """Train one step; whether to stop after it."""
        if self.profiler is not None:
            self.profiler.begin(self.progress.step + 1)
        loss, wait_s = self.job.step(self.progress.step, batches)
        self.progress.step += 1
        self.job.step.guard.step_done(self.observers)
        if self.profiler is not None:
            self.profiler.end(self.progress.step)
        self.window.add(loss, wait_s, self.job.step.gradient_norm, self.job.step.own_loss)
        # A checkpoint that could not be written stops the run as a signal does: in all processes, after the same step.
        decision = self.job.world.agree_on_stop_and_report(
            self.progress.step, stop=self.stop.requested or self._writer.failed, report=self.window.overdue
        )
        # Both are true at the same step in every process, because reporting is collective.
        if self.window.is_full or decision.report:
            self._flush_window()
        return decision.stop

    def _at_boundary(self) -> None:
        """Evaluate and save when it is time, between two steps; also before the first, for what a crash cut short."""
        if self.progress.step % self.job.derived.steps_per_epoch == 0:
            self._flush_window()
        if self._eval_due():
            if self._saves_regularly:
                self.save()  # an evaluation that fails or is killed costs no step
            self._flush_window()
            self._evaluate()
            self._begin_window()  # an evaluation is part of no step's time
        if self._checkpoint_due():
            self.save()
            self._begin_window()

    def _begin_window(self) -> None:
        """The next step begins now, and what was compiled so far was not compiled in it."""
        self._compiled = self.job.device.compilations()
        self.window.restart()

    # ------------------------------------------------------------------------------------------------------ reporting

    def _flush_window(self) -> None:
        """Report the steps since the last report; a loss that is not a number ends the run here.

        The device is synchronised once; then the clock, the losses and what events recorded can be read.
        """
        window, progress, derived = self.window, self.progress, self.job.derived
        self._report_saved()
        if not len(window):
            return
        self.job.device.synchronize()
        synchronised_s, scaler = now_s(), self.job.step.scaler
        values = window.read(self.job.world, self.job.step.correct.pop(), scaler.figures())
        wait_s, timing, step_s = tuple(window.wait_s), window.timing, tuple(window.close(synchronised_s))
        # Raises in all processes or in none, as values are means over them. Nothing of a diverged window is emitted.
        Diverged.check(self.job, values, progress.step)
        self.job.step.guard.report(self.observers)
        reductions = self.job.step.reduction.pop_times()
        compiled = self._pop_compilations()
        self._account(sum(step_s), sum(wait_s), reductions, compiled.seconds)
        loss_scale, skipped_steps = scaler.read_figures(values.own) or (None, None)
        samples = len(step_s) * self.job.config.recipe.global_batch
        # With virtual shards predictions of all processes are counted; otherwise `read` has averaged the counts.
        accuracy = CorrectCounter.accuracy(values.sums, samples / (1 if derived.virtual_shards else derived.world))
        event = StepEvent(
            step=progress.step,
            epoch=progress.step / derived.steps_per_epoch,
            loss=sum(values.losses) / len(values.losses),
            lr=self.job.step.lr_factor * learning_rate(progress.step - 1, self.job.config.recipe.schedule, derived),
            samples=samples,
            step_s=step_s,
            wait_s=wait_s,
            step_times=timing,
            top1=accuracy.top1 if accuracy else None,
            top5=accuracy.top5 if accuracy else None,
            t_s=window.began_s,
            loss_scale=loss_scale,
            skipped_steps=skipped_steps,
            own_s_by_rank=self._compute_s_by_rank([times.compute_s for times in reductions]),
            compilations=compiled.graphs or None,
            compile_s=compiled.seconds if compiled.graphs else None,
        )
        self.observers.emit(event)
        self._epoch.add(event)
        # Later than the step itself: weights and evaluation are checked after it is reported.
        if self._suspect is not None and progress.step > self._suspect.event.step:
            self._clear_suspect()
        self._report_bad_images()
        if progress.step % derived.steps_per_epoch == 0:
            self.observers.emit(self._epoch.close(progress.step, progress.step // derived.steps_per_epoch))

    def _resumed_epoch(self) -> EpochTotals:
        """The totals of the epoch the run is in, with the steps that earlier sessions recorded."""
        step = self.progress.step
        begin = step - step % self.job.derived.steps_per_epoch
        return EpochTotals(self.run.history_so_far() if begin < step else (), after_step=begin, until_step=step)

    def _pop_compilations(self) -> Compilation:
        """What was compiled since the last call; warns, once, where it does not end."""
        before, self._compiled = self._compiled, self.job.device.compilations()
        graphs, seconds = self._compiled.graphs - before.graphs, self._compiled.seconds - before.seconds
        self._compiling_windows = self._compiling_windows + 1 if graphs else 0
        if self._compiling_windows == _COMPILING_WINDOWS:
            self.observers.warn(
                self.progress.step,
                f"graphs were compiled in {_COMPILING_WINDOWS} reports in a row, {graphs} in the last one: is there a "
                "new shape in every step, as with images that grow or boxes that differ in number, or a number of "
                "Python in code of your own? No speed is measured in such steps",
            )
        return Compilation(graphs=graphs, seconds=seconds)

    def _account(self, total_s: float, wait_s: float, reductions: list[ReductionTimes], compile_s: float) -> None:
        """Add the time of the window's steps to the stopwatch, by purpose."""
        # Compiled before the steps could run: on a device that queues, the host waited for data at the same time.
        compile_s = min(compile_s, total_s)
        total_s -= compile_s
        if compile_s:
            self.watch.add("compilation", compile_s)
        wait_s = min(wait_s, total_s)  # on a device that queues, the host may have waited while it was busy
        communication_s = min(sum(times.exposed_s for times in reductions), total_s - wait_s)
        self.watch.add("data_wait", wait_s)
        self.watch.add("compute", total_s - wait_s - communication_s)
        if reductions:
            self.watch.add("communication", communication_s)

    def _compute_s_by_rank(self, compute_s: list[float]) -> tuple[float, ...] | None:
        """Mean seconds per step of each process without waiting for the others; warns about a straggler."""
        if not compute_s:
            return None
        by_rank = self.job.world.gather(sum(compute_s) / len(compute_s))
        if warning := self._stragglers.check(by_rank):
            self.observers.warn(self.progress.step, warning)
        return tuple(by_rank)

    def _report_bad_images(self) -> None:
        """Warn about each new bad image; the first process reports those of all, which count against one limit."""
        counters = self.job.bad_images()
        mine = [counter.pop_new() for counter in counters]
        # Rank 0 gets those of all; elsewhere the list is empty, and each process counts its own.
        for by_counter in self.job.world.gather(mine) or [mine]:
            for counter, new in zip(counters, by_counter, strict=True):
                for bad in new:
                    message = f"bad image {bad.path}: {bad.reason}"
                    counter.add_from_peer(bad)  # first: the error at the limit names the image, too
                    self.observers.warn(self.progress.step, message)

    # ----------------------------------------------------------------------------------------------------- divergence

    def _roll_back(self, error: Diverged) -> None:
        """Go back to the last checkpoint before the step. Raises the error where that is not to be.

        First the steps are repeated as they were: what does not happen again was the machine, not the data or the
        learning rate. If it does happen again, they are repeated with a lower rate. All processes do the same; that the
        run went back is on disk before the next step.
        """
        limits, before = self.job.config.limits, self.progress.rollbacks or Rollbacks()
        checkpoint = None
        if not error.final:
            checkpoint = self.job.world.broadcast_from_first(lambda: self._checkpoint_before(error.event.step))
        if checkpoint is not None and checkpoint.step > self._repeated_from:
            self._repeated_from, self._suspect = checkpoint.step, error
            now, message = self.progress.rollbacks, f"{error.message} Repeating it from step {checkpoint.step:,}"
        elif error.advice or limits.on_divergence == "stop" or before.count >= limits.max_rollbacks or not checkpoint:
            self.observers.emit(error.event)
            raise self._explain_end(error, checkpoint)
        else:
            self._suspect = None
            now = Rollbacks(count=before.count + 1, lr_factor=before.lr_factor * limits.rollback_lr)
            message = (
                f"{error.message} Went back to step {checkpoint.step:,}; from there the learning rate is "
                f"{now.lr_factor:g} times that of the schedule (rollback {now.count} of at most {limits.max_rollbacks})"
            )
        lr_factor = (now or before).lr_factor
        self.observers.emit(error.rolled_back(checkpoint.step, lr_factor))
        self.observers.warn(checkpoint.step, message)
        self.progress = self.job.restore(checkpoint)
        # `saved` first, then the rollback: `save` sees that they differ and writes the lower rate. Later checkpoints
        # are removed only after that, so that a kill in between loses neither.
        self.saved = self._state()
        self.progress.rollbacks, self.job.step.lr_factor = now, lr_factor
        self.window.clear()
        self.job.step.guard.forget()
        self._epoch = self._resumed_epoch()
        self.save()
        self.job.world.broadcast_from_first(lambda: self._forget_after(checkpoint.step))

    def _clear_suspect(self) -> None:
        """Report that what went wrong did not happen again."""
        if self._suspect is not None:
            message = (
                f"{self._suspect.message} It did not happen again when the steps from {self._repeated_from:,} on were "
                "repeated, so the machine computed or stored a wrong number: check its memory and processor. The "
                "results are those of the repeated steps"
            )
            self.observers.warn(self.progress.step, message)
            self._suspect = None

    def _checkpoint_before(self, step: int) -> CheckpointDir | None:
        """The newest sound checkpoint from before a step: the state after it may be what diverged."""
        # One that is still being written is not listed yet.
        self.close()
        older = [checkpoint for checkpoint in self.run.checkpoints.committed() if checkpoint.step < step]
        return next((checkpoint for checkpoint in reversed(older) if not checkpoint.problems()), None)

    def _forget_after(self, step: int) -> None:
        """Remove the checkpoints that the run went back from, once the lower rate is on disk."""
        self._writer.wait()
        self.run.checkpoints.remove_after(step)

    def _explain_end(self, error: Diverged, checkpoint: CheckpointDir | None) -> Diverged:
        limits, before = self.job.config.limits, self.progress.rollbacks
        where = "There is no earlier checkpoint."
        if checkpoint or error.final:  # then the run was not to go back, and resumes from the last one
            where = (
                f"The last good checkpoint is {checkpoint.path}." if checkpoint else "Nothing of this step was saved."
            )
        # A lower rate does not repair a device.
        advice = error.advice or "Try a lower optim.lr, a longer schedule.warmup_epochs, or check the data"
        if limits.on_divergence == "stop" and not error.advice:
            rollback = use("limits.on_divergence", "rollback")
            advice += f"; {rollback} goes back to a checkpoint with a lower learning rate"
        tried = " It happened again when the steps before it were repeated." if self._suspect else ""
        tried += f" It went back {plural(before.count, 'time')} before." if before else ""
        return Diverged(f"{error.message}{tried} {where} {advice}.", error.event)

    # ----------------------------------------------------------------------------------------------------- evaluation

    def _crossed(self, every_epochs: float, offset_epochs: float = 0.0) -> bool:
        """Whether the last step completed a multiple of `every_epochs`, counted from an offset."""
        step, offset = self.progress.step, offset_epochs * self.job.derived.steps_per_epoch
        if every_epochs <= 0 or step == 0 or step < offset - 1e-9:
            return False
        # Intervals may be fractions of an epoch: 1e-9 absorbs the rounding of multiples that are whole steps.
        per = every_epochs * self.job.derived.steps_per_epoch
        return math.floor((step - offset) / per + 1e-9) > math.floor((step - 1 - offset) / per + 1e-9)

    def _eval_due(self) -> bool:
        step, derived, policy = self.progress.step, self.job.derived, self.job.config.recipe.eval
        # The last one: a resumed run whose checkpoint already has the result of this step.
        if self.job.evaluator is None or step == 0 or self.progress.last_eval_step == step:
            return False
        if step >= derived.stop_step:
            return True
        if policy.at_epochs:
            return any(step == math.ceil(e * derived.steps_per_epoch - 1e-9) for e in policy.at_epochs)
        return self._crossed(policy.every_epochs, policy.offset_epochs)

    def _evaluate(self) -> None:
        assert self.job.evaluator is not None
        job, progress, began_s = self.job, self.progress, now_s()
        weights = None if job.average is None else job.average.tensors
        with self.watch.spending("evaluation"):
            # Each process has batch-norm statistics of its own images; all must evaluate the same model.
            self._sync_statistics()
            score = self.job.evaluator.score(job.network, weights, self.observers, self._check_stop)
            result = self.job.evaluator.result(score, averaged=weights is not None)
        best = self._note_result(result)
        epoch = progress.step / job.derived.steps_per_epoch
        times = self.job.evaluator.times
        batch_s = times.seconds()
        self.observers.emit(
            EvalEvent(
                **vars(result),
                step=progress.step,
                epoch=epoch,
                best=best,
                seconds=now_s() - began_s,
                batch_s=batch_s,
                wait_s=None if batch_s is None else times.wait_s,
            )
        )
        if job.world.first:
            self._write_predictions(score.documents())
        self._report_bad_images()
        # The checkpoint from before the evaluation gets the result; its tensors are not written again.
        if self._saves_regularly or (best and job.config.checkpoint.keep_best):
            self.save()

    def _write_predictions(self, documents: Mapping[str, Any]) -> None:
        """Write what was predicted; the next evaluation does it again, so a disk that refuses is a warning."""
        try:
            for name, document in documents.items():
                self.run.write_prediction(name, document)
        except OSError as error:
            message = f"predictions could not be written: {error.strerror}: {error.filename}"
            self.observers.warn(self.progress.step, message)

    def _note_result(self, result: EvalResult) -> bool:
        """Take a result into the progress; whether it is the best so far. Figures must be finite."""
        for name, figure in result.figures.items():
            if not math.isfinite(figure or 0):
                raise Diverged.after(self.job, self.progress.step, f"evaluation {name}", str(figure))
        progress, value, target = self.progress, result.figures[self.job.task.metric], self.job.task.target()
        best = progress.best_value is None or (value is not None and value > progress.best_value)
        progress.last_eval_step, progress.result = progress.step, result
        if best:
            progress.best_value, progress.best_step = value, progress.step
        progress.reached_target = target is not None and value is not None and value >= target
        # During head warm-up the backbone does not learn yet, so patience does not count.
        head_alone = progress.step <= self.job.step.head_warmup.steps
        progress.evals_since_best = None if best or head_alone else (progress.evals_since_best or 0) + 1
        return best

    @property
    def out_of_patience(self) -> bool:
        """Whether eval.patience ends the training: too many evaluations in a row were not the best."""
        patience = self.job.config.recipe.eval.patience
        return patience is not None and (self.progress.evals_since_best or 0) >= patience

    @property
    def ended_early(self) -> bool:
        return self.progress.reached_target or self.out_of_patience

    def _check_stop(self) -> None:
        # Collective, once per batch of an evaluation: a process that left alone would leave the others waiting.
        if self.job.world.any_process(self.stop.requested):
            self.stop.obey()

    def _sync_statistics(self) -> None:
        if self.job.derived.virtual_shards is not None:
            return  # every step ends with the same ones in all processes
        average = None if self.job.average is None else self.job.average.tensors
        policy = self.job.config.machine.batch_norm_statistics
        self.job.world.sync_batch_norm_statistics(self.job.model, average, policy)

    # ---------------------------------------------------------------------------------------------------- checkpoints

    def _checkpoint_due(self) -> bool:
        policy, step = self.job.config.checkpoint, self.progress.step
        return self._crossed(policy.every_epochs) or (policy.every_steps > 0 and step % policy.every_steps == 0)

    @property
    def _saves_regularly(self) -> bool:
        policy = self.job.config.checkpoint
        return policy.every_epochs > 0 or policy.every_steps > 0

    def save(self) -> None:
        """Report what is pending, then save a checkpoint unless the newest one already holds this state.

        It is on disk after `finish_saving`. A checkpoint that differs only by a new evaluation is amended.
        """
        self._flush_window()
        if self.saved == self._state():
            return
        self._sync_statistics()
        # A run resumes from its newest checkpoint, so that one must never hold a diverged state.
        if self.job.world.any_process(not all_finite(self.job.model)):
            raise Diverged.after(self.job, self.progress.step, "weights", "not finite")
        # Only the first of several processes writes, so what it writes must be what all have.
        self.job.step.guard.before_checkpoint(self.progress.step, self.observers)
        self.watch.add("checkpoint", self.job.world.broadcast_from_first(self._write_checkpoint))
        self.saved = self._state()

    def _state(self) -> SavedState:
        return self.progress.step, self.progress.last_eval_step, self.progress.rollbacks

    def _write_checkpoint(self) -> float:
        """Hand the state to the writer; the seconds that training waited."""
        job, progress = self.job, self.progress
        progress.spent_s, progress.scaler = self.watch.spent(), job.step.scaler.state()
        state = job.state(progress)
        if self.saved[0] == progress.step and self._writer.has(progress.step):
            return self._writer.amend(state)
        files = tensor_files(job.model, job.optimizer, job.average)
        return self._writer.save(files, state, job.step.guard.check_copy)

    def complete_saving(self, checkpoint: CheckpointDir) -> None:
        """Do what a kill may have left undone after the checkpoint that this session resumes from was written."""
        if self.job.world.first:
            for problem in self._writer.complete(checkpoint, self.progress.best_step):
                self.observers.warn(checkpoint.step, problem)

    def finish_saving(self) -> None:
        """Wait until the last checkpoint is on disk, in all processes. Raises NotSaved."""
        with self.watch.spending("checkpoint"):
            self.job.world.broadcast_from_first(self._writer.wait)
        self._report_saved()

    def close(self) -> None:
        """Finish what is being written, whatever became of the run: its lock must not be released before."""
        self._writer.close()

    def _obey_stop(self) -> None:
        """End the run, because of a checkpoint that could not be written or of a signal."""
        # Only rank 0 writes. Its error comes first: then there may have been no signal at all.
        self.job.world.broadcast_from_first(self._writer.raise_error)
        self.stop.obey()

    def _report_saved(self) -> None:
        """Record the checkpoints that reached the disk; amending one is no event."""
        for saved in self._writer.pop_saved():
            step, name = saved.checkpoint.step, saved.checkpoint.path.name
            if not saved.amended:
                self.observers.emit(CheckpointEvent(step=step, path=name, seconds=saved.seconds, stall_s=saved.stall_s))
            for problem in saved.problems:
                self.observers.warn(step, problem)
