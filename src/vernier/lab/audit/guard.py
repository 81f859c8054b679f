"""Watches the devices of a run while it trains: records fingerprints, compares processes, and does spot checks.

What processes must hold equal is compared whenever steps are reported and before each checkpoint, so nothing that
differs is saved. What follows from a difference is up to `audit.on_corruption`; `engine.training.loop` goes back.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from vernier.data.loading.loader import Loader
from vernier.engine.observe import Observers
from vernier.engine.training.checkpoints.contents import TensorFiles
from vernier.engine.training.divergence import Diverged
from vernier.engine.training.guard import Guard, Watch
from vernier.engine.training.setup import Job
from vernier.optim.schedules import learning_rate
from vernier.records.events import DivergenceEvent, FingerprintEvent
from vernier.references import use
from vernier.tasks.base import MicroStep

from .fingerprints import Fingerprints, SumsOf, differing_kinds, differing_tensors
from .spot_checks import Mismatch, SpotChecks, odd_ranks, probability_found

_SHOWN_RATE, _SHOWN_STEPS, _SHOWN_TENSORS = 0.01, 1000, 3


class AuditGuard(Guard):
    """The guard of a job; with `audit.every_steps` and `audit.spot_check` at 0 it does nothing."""

    def __init__(self, job: Job) -> None:
        self._job, self._step = job, 0
        self.fingerprints = Fingerprints(job.model, job.optimizer, job.device, job.config.audit.every_steps)
        self._spot_checks = SpotChecks(job.config, job.derived, job.world)
        self._mismatch: Mismatch | None = None
        self._recorded: FingerprintEvent | None = None
        self._saving = Observers()
        self._warned = False
        if fraction := job.config.audit.spot_check:
            chance = probability_found(_SHOWN_RATE, fraction, _SHOWN_STEPS * job.derived.accumulation)
            job.notes += (
                f"spot checks: {100 * fraction:g} % of the shards are computed twice; a device that computes "
                f"{100 * _SHOWN_RATE:g} % of its shards wrong is found within {_SHOWN_STEPS:,} steps with "
                f"{100 * chance:.3g} %",
            )

    def begin_step(self, step: int) -> None:
        self._step = step
        self._spot_checks.begin_step(step, see_all=self.fingerprints.due(step))

    def watch(self, shard: int) -> Watch | None:
        return self._spot_checks.watch(shard)

    def gradients_done(self) -> None:
        self._mismatch = self._spot_checks.settle(self._compute)

    def _compute(self, shard: int, sums: SumsOf) -> None:
        """Compute any shard of this step, whichever process has it."""
        job, step = self._job, self._step - 1
        # One process that had all shards would see each of them as a micro-step.
        whole = replace(job.order, rank=0, world=1, accumulation=job.derived.virtual_shards or 1)
        epoch, within = divmod(step, job.derived.steps_per_epoch)
        # A reader of its own, which does not count unreadable images twice.
        reader = job.task.train_reader(job.train_source, job.train_source, job.config.machine)
        loader = Loader(reader, batch=job.derived.process_batch, workers=0, prefetch=0)
        batch = next(loader.batches([(epoch, whole.indices(epoch, within, shard))]))
        job.step.compute_shard(MicroStep(step, shard, 0), batch, sums.add)

    def before_update(self, step: int) -> None:
        self.fingerprints.take_gradients(step, self._spot_checks.seen)

    def after_update(self, step: int) -> None:
        self.fingerprints.take_state(step)

    def step_done(self, observers: Observers) -> None:
        mismatch, self._mismatch = self._mismatch, None
        if mismatch is not None:
            kind = f"gradients of virtual shard {mismatch.shard}"
            self._react(observers, self._error(self._step, kind, mismatch.odd))

    def before_checkpoint(self, step: int, observers: Observers) -> None:
        self._saving = observers
        self.fingerprints.take_state(step, always=True)
        self.report(observers)

    def report(self, observers: Observers) -> None:
        world = self._job.world
        for taken in self.fingerprints.pop():
            event = taken
            if taken.shards is not None:  # each process has those that it computed: the first ones rank 0, and so on
                event = replace(taken, shards=tuple(chain.from_iterable(world.share(taken.shards))))
            # After a warning they stay different.
            if world.size > 1 and not self._warned:
                self._compare(observers, event)
            observers.emit(event)
            self._recorded = event

    def check_copy(self, files: TensorFiles) -> None:
        if (recorded := self._recorded) is None:  # fingerprints are switched off
            return
        copied = self.fingerprints.of_copy(recorded.step, files)
        if kinds := [kind for kind in differing_kinds(recorded, copied) if kind in self._kinds]:
            names = differing_tensors(self._job.model, recorded, copied)
            self._react(self._saving, self._error(recorded.step, _describe(kinds[0], names), [0], copied=True))

    def forget(self) -> None:
        self._mismatch = None
        self.fingerprints.clear()

    @property
    def _kinds(self) -> Sequence[str]:
        """What all processes hold equal, and what a checkpoint has as it was after the step."""
        # Without exact reduction each process has the batch-norm statistics of its own images, until they are averaged
        # for a checkpoint, which is after their fingerprint.
        same = self._job.world.size == 1 or self._job.derived.virtual_shards is not None
        return ("gradients", "weights", "optimizer", *(("statistics",) if same else ()))

    def _compare(self, observers: Observers, taken: FingerprintEvent) -> None:
        """React if what processes must hold equal differs. Collective; all of them find the same."""
        by_rank = self._job.world.share(taken)
        for kind in self._kinds:
            values = [getattr(each, kind) for each in by_rank]
            if len(set(values)) > 1:
                odd = odd_ranks(list(enumerate(values)))
                right = next((each for rank, each in enumerate(by_rank) if rank not in odd), by_rank[-1])
                names = differing_tensors(self._job.model, by_rank[odd[0]], right)
                return self._react(observers, self._error(taken.step, _describe(kind, names), odd))
        return None

    def _react(self, observers: Observers, error: Diverged) -> None:
        """Raise Diverged, or warn, as `audit.on_corruption` has it."""
        if self._job.config.audit.on_corruption != "warn":
            raise error
        self._warned = True
        observers.emit(error.event)
        observers.warn(error.event.step, f"{error.message} Training continues, as audit.on_corruption = warn")

    def _error(self, step: int, kind: str, odd: Sequence[int], *, copied: bool = False) -> Diverged:
        """What is wrong, and who is to blame. Collective, unless this process `copied` it wrong."""
        job = self._job
        topology, own = job.world.topology, job.device.own_device(job.world.topology.local_rank)
        here = f"{topology.describe()} ({own.name}{f', {own.uuid}' if own.uuid else ''})"
        where = [here] if copied else job.world.share(here)
        lr = job.step.lr_factor * learning_rate(max(0, step - 1), job.config.recipe.schedule, job.derived)
        event = DivergenceEvent(step=step, quantity=f"fingerprint of {kind}", value="differs", lr=lr, ranks=tuple(odd))
        who = " and ".join(where[rank] for rank in odd)
        if copied:
            message = f"{who} copied {kind} wrong: what was to be saved at step {step} is not what training had"
        elif job.world.size == 1:
            message = f"{who} computed {kind} at step {step} twice, with different results"
        elif len(odd) == 1:
            message = f"{who} computed wrong: its {kind} at step {step} are not those of the other processes"
        else:
            message = f"{kind} at step {step} differ between {who}: one of them computed wrong"
        advice, policy = "Test the device, or train without it", job.config.audit.on_corruption
        if policy == "stop":
            advice += (
                "; the same command resumes from the last checkpoint, and "
                f"{use('audit.on_corruption', 'rollback')} goes back by itself"
            )
        return Diverged(f"{message[0].upper()}{message[1:]}.", event, advice, final=policy == "stop")


def _describe(kind: str, names: Sequence[str]) -> str:
    """What differs, with the first tensors."""
    return f"{kind} ({', '.join(names[:_SHOWN_TENSORS])})" if names else kind
