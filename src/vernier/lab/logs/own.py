"""Reads Vernier's own runs and benchmarks into the common form of a log. `reading` decides which file is which."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from vernier.errors import ConfigError, did_you_mean
from vernier.lab.records.bench import BenchResult, ConfigurationLabels, StepResult, read_bench
from vernier.measure.what_ran import what_an_old_run_ran
from vernier.records.environment import Environment, decode_environment
from vernier.records.events import EvalEvent, Event, StartEvent, StepEvent, sessions
from vernier.records.run import RunSummary
from vernier.records.what_ran import WhatRan
from vernier.store import RunDir
from vernier.wording import plural

from .model import EvalRecord, RunLog, StepRecord, Tree, finite, mark_warmup

# ----------------------------------------------------------------------------------------------------- run directories


def read_run(run: RunDir) -> RunLog:
    """The log of a Vernier run, also of a killed one, with notes about what is missing."""
    events, damaged = run.history_and_damage()
    start = next((e for e in reversed(events) if isinstance(e, StartEvent)), None)
    steps = steps_of(events)
    notes = [f"{run.path.name}: {plural(damaged, 'damaged event')} left out"] if damaged else []
    status = run.status()
    summary = status.summary or RunSummary()
    if status.status != "finished":
        notes.insert(0, f"{run.path.name} did not finish ({status.status}): its {len(steps)} recorded steps are used")
    settings, environment = run.read_config(), decode_environment(run.read_environment())
    return RunLog(
        format="vernier",
        path=run.path,
        settings=settings,
        ran=(start and start.ran) or what_an_old_run_ran(settings, start, environment),
        environment=environment,
        steps=steps,
        evals=tuple(_eval(e, _images_per_round(settings, start)) for e in events if isinstance(e, EvalEvent)),
        devices=start.world if start else None,
        reached_target=bool(summary.reached_target),
        started=start.time if start else None,
        train_samples=start.train_samples if start else None,
        eval_samples=start.val_samples if start else None,
        total_s=summary.spent_s.get("total"),
        notes=tuple(notes),
    )


def steps_of(events: Sequence[Event]) -> tuple[StepRecord, ...]:
    """One record per step, or per window where only those were timed; a window's mean loss is that of its last step."""
    start = next((e for e in reversed(events) if isinstance(e, StartEvent)), None)
    per_epoch = max(1, start.steps_per_epoch if start else 1)
    # Per session: a resumed run warms up again.
    marked = [mark_warmup([s for e in session for s in _steps_of_window(e, per_epoch)]) for session in sessions(events)]
    return tuple(s for session in marked for s in session)


def _steps_of_window(event: StepEvent, steps_per_epoch: int) -> Iterator[StepRecord]:
    count = len(event.step_s)
    # `event.step` counts from 1, records from 0. Loss and learning rate are recorded once per window.
    last = StepRecord(
        epoch=(event.step - 1) // steps_per_epoch,
        step=event.step - 1,
        seconds=sum(event.step_s),
        wait_s=sum(event.wait_s),
        samples=event.samples,
        loss=finite(event.loss),
        lr=event.lr,
        top1=event.top1,
        top5=event.top5,
        steps=count,
    )
    # Only the sum was measured. As single steps, these equal values would look free of noise.
    if event.step_times == "windows":
        yield last
        return
    times = [*zip(event.step_s, event.wait_s, strict=True)]
    for number, (seconds, wait_s) in enumerate(times, event.step - count):
        samples, epoch = event.samples / count, number // steps_per_epoch
        if number < last.step:
            yield StepRecord(epoch=epoch, step=number, seconds=seconds, wait_s=wait_s, samples=samples)
        else:
            yield replace(last, seconds=seconds, wait_s=wait_s, samples=samples, steps=1)


def _images_per_round(settings: Tree, start: StartEvent | None) -> int:
    """Images of one validation batch of every process."""
    batch = (settings.get("machine") or {}).get("eval_batch")
    return (batch if isinstance(batch, int) else 0) * (start.world if start else 1)


def _eval(event: EvalEvent, per_round: int) -> EvalRecord:
    figures = {**event.figures, "detections": event.detections}
    values = {k: float(v) for k, v in figures.items() if v is not None}
    # An evaluation at epoch 1.0 belongs to the first epoch, number 0. Epochs are quotients: 1e-9 is for their rounding.
    epoch, times, waits = max(0, math.ceil(event.epoch - 1e-9) - 1), event.batch_s or (), event.wait_s or ()
    batches = [
        StepRecord(
            epoch=epoch,
            step=i,
            seconds=seconds,
            wait_s=min(wait_s, seconds),  # timed apart: at most the whole batch
            samples=max(0, min(per_round, event.samples - i * per_round)),  # the last batch is smaller
        )
        for i, (seconds, wait_s) in enumerate(zip(times, waits, strict=False))  # EvalEvent allows any lengths
        if seconds > 0
    ]
    return EvalRecord(
        epoch=epoch, values=values, seconds=event.seconds, samples=event.samples or None, batches=tuple(batches)
    )


# -------------------------------------------------------------------------------------------------------------- bench


def read_configurations(path: Path) -> dict[str, list[RunLog]]:
    """One log per round of each configuration, in the order measured; none of rounds without step times."""
    bench = read_bench(path)
    rows = {row.configuration: row for row in bench.rows}
    # A copy of bench.json outside its run directory has none next to it.
    environment = decode_environment(RunDir(path.parent).read_environment())
    logs: dict[str, list[RunLog]] = {one.configuration: [] for one in bench.rounds}
    for name, runs in logs.items():
        rounds = [one for one in bench.rounds if one.configuration == name]
        runs += [
            _round(path, bench, rows.get(name), one.round, one.result, environment)
            for one in rounds
            if isinstance(one.result, StepResult)
        ]
        if 0 < len(runs) < len(rounds):
            note = f"{plural(len(rounds) - len(runs), 'round')} of {name} in {path.name} not measured"
            runs[0] = replace(runs[0], notes=(note,))  # once for the configuration, not once per round
    return logs


def bench_rounds(path: Path, configuration: str | None) -> list[RunLog]:
    """One log per round of a configuration; `configuration` may be None where there is only one."""
    every = read_configurations(path)
    if configuration is None and len(every) > 1:
        raise ConfigError(f"{path} has {len(every)} configurations. Name one as {path}#NAME: {', '.join(every)}.")
    chosen = configuration or next(iter(every), "")
    if chosen not in every:
        raise ConfigError(f"{path} has no configuration {chosen!r}. {did_you_mean(chosen, every)}")
    if not every[chosen]:
        raise ConfigError(
            f"No round of {chosen} in {path} has step times: it failed, or measured single queries. There is no speed "
            "to compare."
        )
    return every[chosen]


def _settings_of_configuration(bench: BenchResult, row: ConfigurationLabels | None) -> Tree:
    """The configuration that a configuration was measured with, in the form of a run's."""
    tree = bench.asked.config if bench.asked else {}
    machine = tree.get("machine")
    if row is None or not isinstance(machine, dict):
        return tree
    of_configuration = {name: getattr(row, name) for name in ("precision", "mode", "procs")}
    return {**tree, "machine": {**machine, **of_configuration}}


def what_an_old_benchmark_ran(
    bench: BenchResult, row: ConfigurationLabels, environment: Environment | None
) -> WhatRan | None:
    """The same for a configuration of a benchmark that did not record it."""
    if bench.asked is None:
        return None
    more = {"kind": bench.asked.what, "batch_per_device": row.batch, "devices": row.procs, "whole_run": False}
    return what_an_old_run_ran(_settings_of_configuration(bench, row), None, environment, **more)


def _round(
    path: Path,
    bench: BenchResult,
    row: ConfigurationLabels | None,
    number: int,
    result: StepResult,
    environment: Environment | None,
) -> RunLog:
    settings = _settings_of_configuration(bench, row)
    ran = result.ran or (what_an_old_benchmark_ran(bench, row, environment) if row is not None else None)
    kind = bench.asked.what if bench.asked else "infer" if ran and ran.kind == "infer" else "train"
    return RunLog(
        format="bench",
        path=path,
        kind=kind,
        settings={**settings, **{n: v for n in ("scenario", "exchange") if (v := getattr(row, n, None)) is not None}},
        ran=ran,
        environment=environment,
        started=result.time or None,
        steps=_steps_of_round(result),
        devices=result.figures.devices,
        round=number,
    )


def _steps_of_round(result: StepResult) -> tuple[StepRecord, ...]:
    """Measured steps with their waits for data; files of early versions have no waits of single steps."""
    times, waits, samples = result.raw.step_s, result.raw.wait_s, float(result.images_per_step)
    return tuple(
        StepRecord(epoch=0, step=i, seconds=s, samples=samples, wait_s=waits[i] if len(waits) == len(times) else 0.0)
        for i, s in enumerate(times)
    )


def join_rounds(rounds: Sequence[RunLog]) -> RunLog:
    """The rounds of a configuration as one log: each fresh process is an epoch."""
    steps = tuple(replace(s, epoch=number) for number, run in enumerate(rounds) for s in run.steps)
    notes = tuple(dict.fromkeys(n for run in rounds for n in run.notes))
    return replace(rounds[0], steps=steps, notes=notes, round=None)  # not one round any more, so never paired
