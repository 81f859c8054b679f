"""The training loop: steps, evaluations and checkpoints until done, stopped or failed.

Knows no concrete model, data set or device. What is built before the first step is in `setup`, what happens around the
loop (locks, start and end of a session) in `session`, what a checkpoint holds in `checkpoint`.
"""

import math
from collections.abc import Iterator

from vernier.clock import Stopwatch, now_s
from vernier.data.loading.loader import Batch
from vernier.engine.observe import Observers
from vernier.engine.processes.gradients import ExchangeTimes
from vernier.engine.processes.world import Stragglers
from vernier.errors import RunFailed
from vernier.measure.profile.steps import StepProfiler
from vernier.measure.profile.summary import StepRange
from vernier.optim.schedules import learning_rate
from vernier.records.events import CheckpointEvent, EvalEvent, StepEvent, WarningEvent
from vernier.records.run import EvalResult, Progress
from vernier.store import CheckpointDir, RunDir

from .checkpoint import all_finite, checkpoint_state, fill_checkpoint, steps_to_keep
from .setup import Job
from .stop import StopFlag
from .totals import EpochTotals, accuracy_of
from .window import StepWindow


class NotSaved(RunFailed):
    """A checkpoint could not be written. The run can be resumed from its last one with the same command."""


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
        self._sound: dict[CheckpointDir, bool] = {}
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
        self.window.restart()
        while progress.step < derived.stop_step and not progress.reached_target:
            stop = self._one_step(batches)
            self._at_boundary()
            if stop:
                self.stop.obey()
        if self.job.config.checkpoint.at_end:
            self.save()
        self._flush_window()

    def _one_step(self, batches: Iterator[Batch]) -> bool:
        """Train one step; whether to stop after it."""
        if self.profiler is not None:
            self.profiler.begin(self.progress.step + 1)
        loss, wait_s = self.job.step(self.progress.step, batches)
        self.progress.step += 1
        if self.profiler is not None:
            self.profiler.end(self.progress.step)
        self.window.add(loss, wait_s)
        decision = self.job.world.agree_on_stop_and_report(
            self.progress.step, stop=self.stop.requested, report=self.window.overdue
        )
        if self.window.is_full or decision.report:
            self._flush_window()
        return decision.stop

    def _at_boundary(self) -> None:
        """Evaluate and save when it is time, between two steps; also before the first, for what a crash cut short."""
        if self.progress.step % self.job.derived.steps_per_epoch == 0:
            self._flush_window()
        if self._eval_due():
            self._flush_window()
            self._evaluate()
            self.window.restart()
        if self._checkpoint_due():
            self.save()
            self.window.restart()

    # ------------------------------------------------------------------------------------------------------ reporting

    def _flush_window(self) -> None:
        """Report the steps since the last report; a loss that is not a number ends the run here.

        The device is synchronised once; then the clock, the losses and what events recorded can be read.
        """
        window, progress, derived = self.window, self.progress, self.job.derived
        if not len(window):
            return
        self.job.device.synchronize()
        synchronised_s, scaler = now_s(), self.job.step.scaler
        losses, hits, scaling = window.read(self.job.world, self.job.step.hits.pop(), scaler.figures())
        wait_s, timing, step_s = tuple(window.wait_s), window.timing, tuple(window.close(synchronised_s))
        for step, loss in enumerate(losses, start=progress.step - len(losses) + 1):
            if not math.isfinite(loss):
                raise self._divergence(step, "The loss", str(loss))
        exchanges = self.job.step.exchange.pop_times()
        self._account(sum(step_s), sum(wait_s), exchanges)
        loss_scale, skipped_steps = scaler.read_figures(scaling) or (None, None)
        samples = len(step_s) * self.job.config.recipe.global_batch
        accuracy = accuracy_of(hits, samples / derived.world)
        event = StepEvent(
            step=progress.step,
            epoch=progress.step / derived.steps_per_epoch,
            loss=sum(losses) / len(losses),
            lr=learning_rate(progress.step - 1, self.job.config.recipe.schedule, derived),
            samples=samples,
            step_s=step_s,
            wait_s=wait_s,
            step_times=timing,
            top1=accuracy.top1 if accuracy else None,
            top5=accuracy.top5 if accuracy else None,
            t_s=window.began_s,
            loss_scale=loss_scale,
            skipped_steps=skipped_steps,
            own_s_by_rank=self._own_s_by_rank([times.own_s for times in exchanges]),
        )
        self.observers.emit(event)
        self._epoch.add(event)
        self._report_bad_images()
        if progress.step % derived.steps_per_epoch == 0:
            self.observers.emit(self._epoch.close(progress.step, progress.step // derived.steps_per_epoch))

    def _resumed_epoch(self) -> EpochTotals:
        """The totals of the epoch the run is in, with the steps that earlier sessions recorded."""
        step = self.progress.step
        begin = step - step % self.job.derived.steps_per_epoch
        return EpochTotals(self.run.history() if begin < step else (), after_step=begin, until_step=step)

    def _account(self, total_s: float, wait_s: float, exchanges: list[ExchangeTimes]) -> None:
        """Add the time of the window's steps to the stopwatch, by purpose."""
        wait_s = min(wait_s, total_s)  # on a device that queues, the host may have waited while it was busy
        communication_s = min(sum(times.exposed_s for times in exchanges), total_s - wait_s)
        self.watch.add("data_wait", wait_s)
        self.watch.add("compute", total_s - wait_s - communication_s)
        if exchanges:
            self.watch.add("communication", communication_s)

    def _own_s_by_rank(self, own_s: list[float]) -> tuple[float, ...] | None:
        """Mean seconds per step of each process without waiting for the others; warns about a straggler."""
        if not own_s:
            return None
        by_rank = self.job.world.gather(sum(own_s) / len(own_s))
        if warning := self._stragglers.check(by_rank):
            self.observers.emit(WarningEvent(step=self.progress.step, message=warning))
        return tuple(by_rank)

    def _report_bad_images(self) -> None:
        """Warn about each new bad image; the first process reports those of all, which count against one limit."""
        counters = self.job.bad_images()
        mine = [counter.pop_new() for counter in counters]
        for by_counter in self.job.world.gather(mine) or [mine]:
            for counter, new in zip(counters, by_counter, strict=True):
                for bad in new:
                    message = f"bad image {bad.path}: {bad.reason}"
                    self.observers.emit(WarningEvent(step=self.progress.step, message=message))
                    counter.add_from_peer(bad)

    def _divergence(self, step: int, subject: str, value: str) -> RunFailed:
        newest = self.run.checkpoints.newest()
        where = f"The last good checkpoint is {newest.path}." if newest else "No checkpoint had been written yet."
        lr = learning_rate(step - 1, self.job.config.recipe.schedule, self.job.derived)
        return RunFailed(
            f"{subject} became {value} at step {step} (learning rate {lr:.6g}). {where} "
            "Try a lower optim.lr, a longer schedule.warmup_epochs, or check the data."
        )

    # ----------------------------------------------------------------------------------------------------- evaluation

    def _crossed(self, every_epochs: float, offset_epochs: float = 0.0) -> bool:
        """Whether the last step completed a multiple of `every_epochs`, counted from an offset."""
        step, offset = self.progress.step, offset_epochs * self.job.derived.steps_per_epoch
        if every_epochs <= 0 or step == 0 or step < offset - 1e-9:
            return False
        per = every_epochs * self.job.derived.steps_per_epoch
        return math.floor((step - offset) / per + 1e-9) > math.floor((step - 1 - offset) / per + 1e-9)

    def _eval_due(self) -> bool:
        step, derived, policy = self.progress.step, self.job.derived, self.job.config.recipe.eval
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
            for name, document in score.documents().items():
                self.run.write_prediction(name, document)
        self._report_bad_images()
        if best and job.config.checkpoint.keep_best:
            self.save()

    def _note_result(self, result: EvalResult) -> bool:
        """Take a result into the progress; whether it is the best so far. Figures must be finite."""
        for name, figure in result.figures.items():
            if not math.isfinite(figure or 0):
                raise self._divergence(self.progress.step, f"The evaluation's {name}", str(figure))
        progress, value, target = self.progress, result.figures[self.job.task.metric], self.job.task.target()
        best = progress.best_value is None or (value is not None and value > progress.best_value)
        progress.last_eval_step, progress.result = progress.step, result
        if best:
            progress.best_value, progress.best_step = value, progress.step
        progress.reached_target = target is not None and value is not None and value >= target
        return best

    def _check_stop(self) -> None:
        if self.job.world.any_process(self.stop.requested):
            self.stop.obey()

    def _sync_statistics(self) -> None:
        average = None if self.job.average is None else self.job.average.tensors
        policy = self.job.config.machine.batch_norm_statistics
        self.job.world.sync_batch_norm_statistics(self.job.model, average, policy)

    # ---------------------------------------------------------------------------------------------------- checkpoints

    def _checkpoint_due(self) -> bool:
        policy, step = self.job.config.checkpoint, self.progress.step
        return self._crossed(policy.every_epochs) or (policy.every_steps > 0 and step % policy.every_steps == 0)

    def save(self) -> None:
        """Report what is pending, then write a checkpoint unless the newest one already holds this state."""
        self._flush_window()
        if self.saved == self._state():
            return
        self._sync_statistics()
        if not all_finite(self.job.model):
            raise self._divergence(self.progress.step, "A weight", "not finite")
        self.watch.add("checkpoint", self.job.world.broadcast_from_first(self._write_checkpoint))
        self.saved = self._state()

    def _state(self) -> tuple[int, int]:
        return self.progress.step, self.progress.last_eval_step

    def _write_checkpoint(self) -> float:
        """Commit a checkpoint and remove those that the policy does not keep; the seconds it took."""
        began_s, job, progress = now_s(), self.job, self.progress
        progress.spent_s, progress.scaler = self.watch.spent(), job.step.scaler.state()
        state = checkpoint_state(job.config, job.task, job.train_source, progress)
        try:
            committed = self.run.checkpoints.commit(
                progress.step,
                lambda folder: fill_checkpoint(folder, job.model, job.optimizer, job.average, state),
                best=progress.best_step == progress.step,
            )
        except OSError as error:
            raise NotSaved(
                f"The checkpoint could not be saved: {error}. Earlier checkpoints are intact; run the same command to "
                "resume from the last one."
            ) from error
        self._sound[committed] = True
        sound = [checkpoint for checkpoint in self.run.checkpoints.committed() if self._is_sound(checkpoint)]
        steps = [checkpoint.step for checkpoint in sound]
        keep = steps_to_keep(steps, job.config.checkpoint, job.derived.steps_per_epoch)
        self.run.checkpoints.prune(sound, keep.__contains__)
        self.observers.emit(CheckpointEvent(step=progress.step, path=committed.path.name, seconds=now_s() - began_s))
        return now_s() - began_s

    def _is_sound(self, checkpoint: CheckpointDir) -> bool:
        """Whether its files are right; those of earlier sessions are read once."""
        if checkpoint not in self._sound:
            self._sound[checkpoint] = not checkpoint.problems()
        return self._sound[checkpoint]
