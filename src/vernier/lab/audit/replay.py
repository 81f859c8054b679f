"""Replays parts of a finished run from its own checkpoints, and compares fingerprints with those that it recorded.

Every interval begins with what the run itself saved, so each of them is judged by itself: a fault in one does not
make the later ones differ. The job that computes is that of training.
"""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

from vernier.clock import now_s
from vernier.config import Config, config_from_tree
from vernier.data.sources.content import content_of, describe_change
from vernier.engine.training.checkpoints.contents import read_state
from vernier.engine.training.setup import Job, prepare
from vernier.errors import ConfigError
from vernier.measure.environment import read_versions
from vernier.measure.profiles import StepRange
from vernier.records.environment import decode_environment
from vernier.records.events import DivergenceEvent, Event, FingerprintEvent, ProcessInfo, StartEvent, StepEvent
from vernier.references import given, use
from vernier.store import RunDir
from vernier.wording import plural

from .fingerprints import differing_kinds, differing_tensors
from .guard import AuditGuard
from .records import AuditResult, Difference, Interval


class Audit:
    """A run that can be replayed. Raises ConfigError if it cannot, or if its data has changed."""

    def __init__(self, run: RunDir, device: str | None) -> None:
        self.run, self._device, self._events = run, device, run.history()
        self._recorded, self._reported = _kept(self._events)
        if not self._recorded:
            raise ConfigError(
                f"{run.path} has no fingerprints: it was trained with {use('audit.every_steps', 0)}, or by a version "
                "before 0.4."
            )
        self._starts = [event for event in self._events if isinstance(event, StartEvent)]
        self.processes = max((len(start.processes or ()) or 1 for start in self._starts), default=1)
        self._config = self._replayed(config_from_tree(run.read_config()))
        committed = run.checkpoints.committed()
        self._checkpoints = {each.step: each for each in committed if not each.problems()}
        self._damaged = {each.step for each in committed} - self._checkpoints.keys()
        self.intervals = self._between(sorted({0, *self._checkpoints, max(self._recorded)}))
        self._job = prepare(self._config)
        guard = self._job.step.guard
        assert isinstance(guard, AuditGuard)
        self._fingerprints = guard.fingerprints
        self._refuse_other_data()
        self.doubts = self._doubts()

    def close(self) -> None:
        """Release the job that computes."""
        self._job.close()

    def _replayed(self, config: Config) -> Config:
        """The settings of the run for one process that only computes."""
        machine = config.machine
        if self.processes > 1 and machine.reduction != "exact":
            raise ConfigError(
                f"This run had {plural(self.processes, 'process')} and {use('machine.reduction', 'ddp')}: the order in "
                "which gradients were added is not known, so its steps cannot be computed again bit for bit. Train "
                f"with {use('machine.reduction', 'exact')} to be able to audit a run."
            )
        threads = self._starts[-1].threads if self._starts else machine.threads
        machine = replace(machine, procs=1, threads=threads, device=self._device or machine.device)
        recipe = replace(config.recipe, eval=replace(config.recipe.eval, every_epochs=0, at_epochs=()))
        # Checking itself is what it does: no shard is computed twice.
        audit = replace(config.audit, spot_check=0.0, every_steps=config.audit.every_steps or 1)
        return replace(config, machine=machine, recipe=recipe, audit=audit)

    def _between(self, steps: Sequence[int]) -> list[Interval]:
        """Intervals between these steps, where the run recorded fingerprints."""
        return [
            Interval(start=start, stop=stop)
            for start, stop in pairwise(steps)
            if any(start < step <= stop for step in self._recorded)
        ]

    def choose(self, sample: int | None) -> list[Interval]:
        """Random ones, other ones each time: a fixed choice would leave parts that nobody ever looks at."""
        if sample is None or sample >= len(self.intervals):
            return self.intervals
        return sorted(random.SystemRandom().sample(self.intervals, sample), key=lambda each: each.start)

    def containing(self, steps: StepRange) -> list[Interval]:
        """The intervals with any of these steps. Raises ConfigError if there are none."""
        if chosen := [each for each in self.intervals if each.start < steps.last and steps.first <= each.stop]:
            return chosen
        raise ConfigError(
            f"{given('steps', f'{steps.first}:{steps.last}')}: this run can be replayed from step "
            f"{self.intervals[0].start + 1:,} to {self.intervals[-1].stop:,}."
        )

    def estimated_s(self, intervals: Sequence[Interval], procs: int) -> float:
        """At the speed of the run, whose processes shared the work of a step."""
        steps = [s for event in self._reported.values() for s in event.step_s]
        work = sum(each.stop - each.start for each in intervals) * self.processes
        return work / min(procs, len(intervals)) * sum(steps) / max(1, len(steps))

    def _doubts(self) -> tuple[str, ...]:
        """What is different here, so that a difference may be no fault."""
        before, now = decode_environment(self.run.read_environment()), read_versions()
        if before is None:
            return ("environment.json of the run cannot be read",)
        pairs = [("PyTorch", before.versions.get("torch"), now["torch"])]
        pairs += [("Vernier", before.versions.get("vernier"), now["vernier"])]
        devices = self._job.device.identity()
        pairs += [("the device", before.devices[0].name, devices[0].name)] if before.devices and devices else []
        return tuple(f"{what} was {old}, here it is {new}" for what, old, new in pairs if old != new)

    def _refuse_other_data(self) -> None:
        for checkpoint in list(self._checkpoints.values())[:1]:
            state, source = read_state(checkpoint), self._job.train_source
            before = (state.progress.data or {}).get("train")
            change = "" if before is None else describe_change(before, content_of(source))
            if state.data_fingerprint != source.fingerprint() or change:
                raise ConfigError(
                    f"The training images of {self.run.path} have changed since it was trained "
                    f"({change or 'other files, labels or classes'}). Restore them: its steps need the same ones."
                )

    def replay(self, intervals: Sequence[Interval], show: Callable[[int, int], None], procs: int = 1) -> AuditResult:
        """Compute the intervals again, in that number of processes at the same time."""
        # A checkpoint that does not have what training had is no start. Its interval begins at the one before it.
        ends = {step for each in intervals for step in (each.start, each.stop)} & self._checkpoints.keys()
        damaged = self._damaged | {step for step in ends if not self._holds(step)}
        points = {0, *self._checkpoints, *(each.stop for each in self.intervals)} - damaged
        chosen = [
            part
            for part in self._between(sorted({*points, max(self._recorded)}))
            if any(part.start < each.stop and each.start < part.stop for each in intervals)
        ]
        results, total = list[Interval](), sum(each.stop - each.start for each in chosen)
        with ProcessPoolExecutor(procs, mp_context=get_context("spawn")) as pool:
            if procs > 1:
                parts = pool.map(partial(_replay_alone, self.run.path, self._device), chosen)
            else:
                parts = map(self.replay_one, chosen)
            for part in parts:
                results.append(part)
                show(sum(each.stop - each.start for each in results), total)
        differs = bool(damaged) or any(each.difference for each in results)
        return AuditResult(
            run=str(self.run.path),
            verdict="agrees" if not differs else "cannot tell" if self.doubts else "differs",
            intervals=tuple(results),
            of_intervals=len(self.intervals),
            missed=1 - len(intervals) / len(self.intervals),
            damaged=tuple(sorted(damaged)),
            doubts=self.doubts,
        )

    def _holds(self, step: int) -> bool:
        """Whether a checkpoint has what training had when it was saved, as far as that was recorded."""
        recorded = self._recorded.get(step)
        if recorded is None:
            return True
        self._job.restore(self._checkpoints[step])
        self._fingerprints.clear()  # an interval that was replayed before may end at this step
        return not differing_kinds(recorded, self._taken_now(step))

    def _taken_now(self, step: int) -> FingerprintEvent:
        self._fingerprints.take_state(step, always=True)
        self._job.device.synchronize()
        return self._fingerprints.pop()[-1]

    def replay_one(self, interval: Interval) -> Interval:
        """Compute an interval again, until something differs."""
        began_s, compared, after, difference = now_s(), 0, interval.start, None
        if interval.start:
            self._job.restore(self._checkpoints[interval.start])
        else:
            self._job.close()
            self._job = prepare(self._config)
            self._fingerprints = self._job.step.guard.fingerprints  # type: ignore[attr-defined]
        job, losses, first_loss = self._job, list[float](), None
        self._fingerprints.clear()
        batches = job.loader.batches(job.requests(interval.start, interval.stop))
        for step in range(interval.start + 1, interval.stop + 1):
            losses.append(float(job.step(step - 1, batches)[0]))
            if first_loss is None and self._other_loss(step, losses):
                first_loss = step
            if (recorded := self._recorded.get(step)) is not None:
                difference = self._compare(job, recorded, self._taken_now(step), after, first_loss)
                compared, after = compared + 1, step
            if difference is not None:
                break
        batches.close()
        return replace(interval, compared=compared, seconds=now_s() - began_s, difference=difference)

    def _other_loss(self, step: int, losses: Sequence[float]) -> bool:
        """Whether the mean loss that was reported at a step is another one. It is reported more often."""
        reported = self._reported.get(step)
        if reported is None or len(reported.step_s) > len(losses):
            return False
        last = losses[-len(reported.step_s) :]
        return reported.loss != sum(last) / len(last)

    def _compare(
        self, job: Job, recorded: FingerprintEvent, again: FingerprintEvent, after: int, first_loss: int | None
    ) -> Difference | None:
        kinds = differing_kinds(recorded, again)
        if not kinds:
            return None
        was, now = recorded.shards or (), again.shards or ()
        shards = tuple(number for number, (a, b) in enumerate(zip(was, now, strict=False)) if a != b)
        # If all differ, so did the weights before this step.
        shards = shards if len(shards) < len(now) else ()
        processes = self._processes_at(recorded.step)
        owners = {shard * len(processes) // max(1, len(now)) for shard in shards} if processes else set[int]()
        return Difference(
            step=(not shards and first_loss) or recorded.step,
            # If some shards are right, so were the weights before this step.
            after=recorded.step - 1 if shards else after,
            kinds=kinds,
            tensors=differing_tensors(job.model, recorded, again),
            shards=shards,
            # One process computed everything.
            suspects=tuple(
                processes[rank] for rank in (sorted(owners) if len(processes) > 1 else range(len(processes)))
            ),
        )

    def _processes_at(self, step: int) -> Sequence[ProcessInfo]:
        """The processes of the session that computed a step."""
        starts = [e for e in self._events if isinstance(e, StartEvent) and (e.resumed_from or 0) < step]
        return starts[-1].processes or () if starts else ()


def _kept(events: Sequence[Event]) -> tuple[dict[int, FingerprintEvent], dict[int, StepEvent]]:
    """Fingerprints and reports by step, without those that a resume or a rollback gave up."""
    recorded, reported = dict[int, FingerprintEvent](), dict[int, StepEvent]()
    for event in events:
        if isinstance(event, FingerprintEvent):
            recorded[event.step] = event
        elif isinstance(event, StepEvent):
            reported[event.step] = event
        elif isinstance(event, StartEvent | DivergenceEvent) and event.resumed_from is not None:
            last = event.resumed_from
            recorded = {step: each for step, each in recorded.items() if step <= last}
            reported = {step: each for step, each in reported.items() if step <= last}
    return recorded, reported


def _replay_alone(path: Path, device: str | None, interval: Interval) -> Interval:
    """Replay an interval in a process of its own."""
    audit = Audit(RunDir.open(path), device)
    try:
        return audit.replay_one(interval)
    finally:
        audit.close()
