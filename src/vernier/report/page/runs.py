"""Run directories as subjects of the page: what they have, how they are read, and their cards.

A run that is still running or crashed gives what it has. A damaged file is named in `notes` and left out. A run that is
read briefly gives its results, not its curves.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from markupsafe import Markup

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.measure.agreement import agreement_lines
from vernier.measure.published import speed_lines
from vernier.measure.sensors import sensors
from vernier.measure.throughput import LOADER_BOUND_SHARE, Window
from vernier.measure.what_ran import what_an_old_run_ran
from vernier.quantities import memory_size
from vernier.records.codec import DamagedRecord, decode
from vernier.records.environment import Environment, decode_environment
from vernier.records.events import (
    CheckpointEvent,
    EvalEvent,
    Event,
    StartEvent,
    StepEvent,
    WarningEvent,
)
from vernier.records.predictions import DetectionExample, Mistakes, TrainImages
from vernier.records.run import EvalResult, FinetuningRecord, RunSummary
from vernier.store import DamagedFile, RunDir, read_json, read_record
from vernier.store.run_dir import FINETUNING
from vernier.wording import plural

from .html import chip, folded, tag
from .identity import parts_of_record
from .numbers import when
from .subjects import Facts, Kind, Tree
from .training import EvalPoint, Point, Training, thin

T = TypeVar("T")
MANY_RANKS = 64
"""Of a run of more processes, only the files of the first one on each host are read."""
VERDICTS = {
    "inside": "agrees with the published result",
    "below": "below the published result",
    "above": "above the published result",
    "no-spread": "no spread was published",
    "not-comparable": "not comparable with the published result",
}

_AGREEMENT = Markup(
    '<div class="agree">{}{}<details><summary>what was done differently</summary><p class="note">{}</p></details></div>'
)


@frozen
class _Peer:
    """Another process of a run, from its own files: its steps of the last session and, of one per host, its sensors."""

    rank: int
    host: str
    points: tuple[Point, ...] = ()
    telemetry: tuple[Tree, ...] = ()


@frozen
class Run(Training):
    """A run directory: also one that is still running, crashed, or is of another kind that uses such directories."""

    reason: str | None = None
    updated: str | None = None
    warnings: tuple[str, ...] = ()
    telemetry: tuple[Tree, ...] = ()
    peers: tuple[_Peer, ...] = ()
    """The other processes whose files are here; those of another host may come later."""
    disturbances: tuple[str, ...] = ()
    """What disturbed the steps, as far as the sensors tell."""
    mistakes: Mistakes | None = None
    examples: tuple[DetectionExample, ...] = ()
    train_images: TrainImages | None = None
    exported: EvalResult | None = None
    """The result of the weights that a fine-tuning exported, which may be better than the last ones."""

    @property
    def result(self) -> EvalResult | None:
        return self.exported or super().result

    @property
    def result_of(self) -> str:
        return " of the exported model" if self.exported else ""

    def facts(self) -> Facts:
        start = self.start or StartEvent()
        recipe = self.recipe.get("name", "")
        validation = f" and {start.val_samples:,} validation" if start.val_samples else ""
        return [
            ("recipe", recipe if recipe != self.name else ""),  # many runs are named after their recipe: not twice
            ("images", f"{start.train_samples:,} training{validation} images" if start.train_samples else ""),
            ("schedule", _schedule(self, start)),
            ("extends", self.recipe.get("schedule", {}).get("extends", "")),
            ("machine", _machine(self)),
            ("run", tag("code", self.path)),
            ("started", when(start.time)),
            ("ended", when(self.updated) if self.status != "running" else ""),  # `updated` while it runs is not its end
            ("memory", _memory(self)),
            ("own code", ", ".join(each.reference for each in start.code or ())),
            ("guarantees", "; ".join((start.guarantees or ())[1:])),
        ]

    def published(self) -> list[Markup | None]:
        return [_agreement(self), folded(speed_lines(self.summary.published_speeds), 3, "notes")]

    def messages(self) -> list[str]:
        texts = []
        if self.smoke:
            texts.append("a smoke run: a try-out of the settings on a few images; its figures mean nothing")
        if self.status == "crashed":
            texts.append("this run crashed: the page shows what it recorded until then")
        if self.reason:
            texts.append(self.reason)
        share = (self.summary.training and self.summary.training.data_wait_share) or 0.0
        if share > LOADER_BOUND_SHARE:
            texts.append(f"loader-bound: {100 * share:.0f} % of the steps' time was spent waiting for data")
        texts += self.noise()
        if bad := self.summary.bad_images:
            texts.append(f"{plural(len(bad), 'bad image')}, the first is {bad[0].path}: {bad[0].reason}")
        return list(dict.fromkeys([*texts, *self.warnings]))

    def noise(self) -> list[str]:
        """What disturbed it, as messages."""
        return [f"noisy: {'; '.join(self.disturbances)}"] if self.disturbances else []


def _memory(s: Run) -> str:
    """The measured and the predicted peak of memory."""
    memory = s.summary.memory
    if memory is None:
        return ""
    measured = f"{memory_size(memory.measured_bytes)} at the peak of a process; " if memory.measured_bytes else ""
    return f"{measured}{memory_size(memory.predicted_bytes)} predicted"


def _schedule(s: Run, start: StartEvent) -> str:
    if not start.total_steps:
        return ""
    done = max((p.step or 0 for p in s.points), default=0)
    # Limits can end a run before its schedule does.
    cut = f", to stop at {start.stop_step:,}" if start.stop_step < start.total_steps else ""
    epochs = "1 epoch" if start.epochs == 1 else f"{start.epochs:g} epochs"
    size = f"{epochs} of {plural(start.steps_per_epoch, 'step')}, batch {start.global_batch:,}"
    return f"{size}; {done:,} of {start.total_steps:,} steps{cut}"


def _machine(s: Run) -> str:
    """Processes, host and versions: the parts of the machine that are not in the line about what ran."""
    start, environment = s.start, s.environment or Environment()
    cpu, python = environment.cpu, environment.versions.get("python")
    parts = [
        f"{plural(start.world, 'process')} x {plural(start.threads, 'thread')}" if start and start.mode else "",
        f"{plural(cpu.cores_logical, 'core')}, {memory_size(cpu.memory_bytes)} of memory" if cpu.cores_logical else "",
        f"host {environment.host}" if environment.host else "",
        environment.system,
        f"Python {python}" if python else "",
    ]
    return "; ".join(filter(None, parts))


def _agreement(s: Run) -> Markup | None:
    agreement = s.summary.agreement
    if not agreement:
        return None
    verdict, differs = agreement_lines(agreement)
    return _AGREEMENT.format(
        chip(VERDICTS[agreement.verdict], agreement.verdict),
        verdict.removeprefix("published").strip(),
        differs.removeprefix("differs").strip(),
    )


# ------------------------------------------------------------------------------------------------------------- reading


def read_run(run: RunDir, brief: bool) -> Run:
    """A run directory, also one that is damaged in part. Raises ConfigError for one of a newer version.

    Briefly: with its settings and results only, so that a thousand of them are read in seconds.
    """
    status, notes = run.status(), list[str]()
    settings = read_or_note(run.read_config, notes) or {}
    known = Run(
        name=run.path.resolve().name,  # a run can be given as `.`
        path=run.path,
        status=status.status,
        reason=status.reason,
        updated=status.updated,
        smoke=bool((settings.get("limits") or {}).get("smoke")),
        note=run.read_note(),
        summary=status.summary or RunSummary(),
        settings=settings,
    )
    return _with_result(known, run, notes) if brief else _with_all(known, run, notes)


def _with_result(known: Run, run: RunDir, notes: list[str]) -> Run:
    summary = known.summary
    # The end of the event file is read only if the summary lacks what it would provide.
    events = run.first_and_last_events(tail=summary.result is None or summary.training is None)
    start = next((e for e in events if isinstance(e, StartEvent)), None)
    record = summary.ran or (start.ran if start else None)
    ran = (record,) if record else ()
    points, evals = _curves(events)
    return replace(
        known,
        brief=True,
        ran=ran,
        recorded=bool(ran),
        parts=parts_of_record(ran),
        start=start,
        points=tuple(points[-1:]),
        evals=tuple(evals[-1:]),
        spent_s=summary.spent_s,
        notes=tuple(notes),
    )


def _with_all(known: Run, run: RunDir, notes: list[str]) -> Run:
    events, damaged = run.history_and_damage()
    notes += [f"{plural(damaged, 'damaged event')} left out"] if damaged else []
    telemetry, environment = tuple(run.read_telemetry()), decode_environment(run.read_environment())
    package, cores = sensors(), environment.cpu.cores_logical if environment else None
    # Each session has a start event; the last one has the settings that are in effect.
    start = next((e for e in reversed(events) if isinstance(e, StartEvent)), None)
    recorded = start.ran if start else None
    # Older versions did not record what ran: it is taken from their settings.
    record = recorded or what_an_old_run_ran(known.settings, start, environment)
    ran = (record,) if record else ()
    notes += [f"left out: Cannot read {path}." for path in run.unreadable()]
    predictions = run.path / "predictions"
    finetuned = read_or_note(lambda: read_record(FinetuningRecord, run.path / FINETUNING), notes)
    points, evals = _curves(events)
    return replace(
        known,
        ran=ran,
        recorded=recorded is not None,
        parts=parts_of_record(ran),
        start=start,
        environment=environment,
        points=thin(points),
        evals=tuple(evals),
        spent_s=known.summary.spent_s or _spent_so_far(events),
        warnings=tuple(dict.fromkeys(e.message for e in events if isinstance(e, WarningEvent))),
        telemetry=telemetry,
        peers=tuple(_peers(run, start, points)),
        disturbances=tuple(package.disturbances(events, telemetry, cores)) if package else (),
        mistakes=read_or_note(lambda: read_record(Mistakes, predictions / "mistakes.json"), notes),
        examples=read_or_note(lambda: _examples(predictions / "examples.json"), notes) or (),
        train_images=read_or_note(run.read_train_images, notes),
        exported=finetuned.held_out if finetuned else None,
        notes=tuple(notes),
    )


def _curves(events: Sequence[Event]) -> tuple[list[Point], list[EvalPoint]]:
    """Windows of steps and evaluations of all sessions, with the time they had taken by then."""
    points: list[Point] = []
    evals: list[EvalPoint] = []
    # Durations are added up instead of subtracting clock readings: pauses between sessions do not count.
    time_s, sessions_begun = 0.0, 0
    for e in events:
        if isinstance(e, StartEvent):
            sessions_begun += 1
        elif isinstance(e, StepEvent):
            time_s += sum(e.step_s)
            point = Point(
                epoch=e.epoch,
                step=e.step,
                time_s=time_s,
                loss=e.loss,
                lr=e.lr,
                steps=len(e.step_s),
                window=Window.of_step(e),
                own_s=e.own_s_by_rank,
                session=max(0, sessions_begun - 1),  # a damaged file may lack the first start event
                t_s=e.t_s,
            )
            points += [point] if sum(e.step_s) > 0 else []  # a window of 0 s has no throughput
        elif isinstance(e, EvalEvent):
            time_s += e.seconds
            # An EvalEvent is an EvalResult.
            evals.append(EvalPoint(epoch=e.epoch, step=e.step, time_s=time_s, result=e))
        elif isinstance(e, CheckpointEvent):
            time_s += _stall_s(e)
    return points, evals


def _peers(run: RunDir, start: StartEvent | None, points: Sequence[Point]) -> list[_Peer]:
    """The other processes of the last session; of very many, the first one of each host."""
    processes = sorted(start.processes, key=lambda process: process.rank) if start else []
    # Reversed, so that the lowest rank of a host stays.
    first_ranks = {process.host: process.rank for process in reversed(processes)}
    session = points[-1].session if points else 0
    peers = []
    for process in processes[1:]:
        first = first_ranks[process.host] == process.rank
        if len(processes) > MANY_RANKS and not first:
            continue
        own, _ = _curves(run.history(process.rank))
        # The process may be missing in earlier sessions, which had fewer.
        last = [replace(p, session=session) for p in own if p.session == own[-1].session]
        lines = run.read_telemetry(process.rank) if first else []
        telemetry = tuple(line for line in lines if line.get("session", session) == session)
        if last or telemetry:
            peers.append(_Peer(rank=process.rank, host=process.host, points=thin(last), telemetry=telemetry))
    return peers


def _stall_s(event: CheckpointEvent) -> float:
    return event.seconds if event.stall_s is None else event.stall_s


def read_or_note(read: Callable[[], T], notes: list[str]) -> T | None:
    """The content of a file; None if it does not exist, and a note if it cannot be read."""
    try:
        return read()
    except FileNotFoundError:  # most files of a run are optional
        return None
    except (ConfigError, DamagedRecord) as error:  # nothing broader: a bug is not a damaged file
        notes.append(f"left out: {error}")
        return None


def _examples(path: Path) -> tuple[DetectionExample, ...]:
    try:
        return tuple(decode(DetectionExample, tree, f"[{i}]") for i, tree in enumerate(read_json(path) or []))
    except (DamagedRecord, TypeError) as error:
        raise DamagedFile(f"Cannot read {path}: {error}.") from None


def _spent_so_far(events: Sequence[Event]) -> dict[str, float]:
    """Seconds by purpose of a run without a summary, from its events."""
    steps = [e for e in events if isinstance(e, StepEvent)]
    saved = [e for e in events if isinstance(e, CheckpointEvent)]
    waits = math.fsum(Window.of_step(e).data_wait_s for e in steps)
    spent = {
        "data_wait": waits,
        # With communication, which events do not separate.
        "compute": math.fsum(t for e in steps for t in e.step_s) - waits,
        "evaluation": math.fsum(e.seconds for e in events if isinstance(e, EvalEvent)),
        "checkpoint": math.fsum(map(_stall_s, saved)),
    }
    return {**spent, "total": sum(spent.values())} if steps else {}


KIND = Kind(
    recognizes=lambda path, _: RunDir.is_run(path), read=lambda path, brief: [read_run(RunDir(path), brief)], order=40
)
