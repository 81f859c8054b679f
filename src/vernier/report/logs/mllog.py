"""MLPerf's `:::MLLOG` lines, read and written.

Written logs have the keys and the order that mlperf-logging's parser and compliance checker require; `submission_org`
and the like are left for the user to fill in before a submission. Times are milliseconds of the wall clock, accuracies
from 0 to 1 (top1 is in percent in Vernier).
"""

import json
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.records.codec import decode, encode

from .model import EvalRecord, RunLog, StepRecord, Tree, finite, whole

PREFIX = ":::MLLOG "


@frozen
class _Record:
    """One line. `event_type` is POINT_IN_TIME, INTERVAL_START or INTERVAL_END."""

    namespace: str | None = ""
    time_ms: float
    event_type: str | None = None
    key: str
    value: Any = None
    metadata: Tree | None = field(default_factory=dict)

    def meta(self, name: str) -> Any:
        return (self.metadata or {}).get(name)

    @property
    def epoch(self) -> int | None:
        return whole(self.meta("epoch_num"))


# ------------------------------------------------------------------------------------------------------------- reading


def _read_lines(text: str) -> tuple[list[_Record], int]:
    """The MLLOG records of a log that may have other lines too, and how many of them are broken."""
    records, broken = [], 0
    for line in text.splitlines():
        _, prefix, rest = line.partition(PREFIX)
        if not prefix:
            continue
        try:
            records.append(decode(_Record, json.loads(rest)))
        except ValueError:
            broken += 1
    return records, broken


def read_mllog(path: Path, text: str) -> RunLog:
    """The run of an MLPerf log. Its steps are whole epochs: their wall time, and the samples of the training set."""
    records, broken = _read_lines(text)
    if not records:
        raise ConfigError(f"{path} has no {PREFIX.strip()} records.")
    settings = {r.key: r.value for r in records if r.event_type == "POINT_IN_TIME" and "eval_acc" not in r.key}
    notes = [f"{broken} broken line(s) in {path.name} left out"] if broken else []
    starts, stops = ([r for r in records if r.key == key] for key in ("run_start", "run_stop"))
    total = (stops[-1].time_ms - starts[0].time_ms) / 1000 if starts and stops else None
    status = stops[0].meta("status") if stops else None
    if total is None:
        notes.append(f"{path.name} has no end of the run: no time to train")
    elif status != "success":
        notes.append(f"{path.name} ended with status {status}")
    return RunLog(
        format="mllog",
        path=path,
        settings=settings,
        steps=tuple(_epochs(records, settings)),
        evals=tuple(
            EvalRecord(epoch=r.epoch or 0, values={r.key: float(r.value)})
            for r in records
            if r.key == "eval_accuracy" and finite(r.value) is not None
        ),
        total_s=total,
        reached_target=status == "success",
        train_samples=whole(settings.get("train_samples")),
        eval_samples=whole(settings.get("eval_samples")),
        notes=(*notes, "times are those of whole epochs"),
    )


def _epochs(records: Sequence[_Record], settings: Tree) -> list[StepRecord]:
    """Epochs with a start and a stop; one that the target cut short has no stop and is left out."""
    samples = float(finite(settings.get("train_samples")) or 0)
    starts_ms: dict[int, float] = {}
    epochs = []
    for record in records:
        number = record.epoch
        if number is None:
            continue
        if record.key == "epoch_start":
            starts_ms[number] = record.time_ms
        elif record.key == "epoch_stop" and number in starts_ms:
            seconds = (record.time_ms - starts_ms.pop(number)) / 1000
            if seconds > 0:
                epochs.append(StepRecord(epoch=number, step=number, seconds=seconds, samples=samples))
    return epochs


# ------------------------------------------------------------------------------------------------------------- writing


class _Log:
    """Lines with a clock that only the caller moves."""

    def __init__(self, start_ms: float) -> None:
        self.now_ms = start_ms
        self.lines: list[str] = []

    def point(self, key: str, value: Any, **metadata: Any) -> None:
        self._add("POINT_IN_TIME", key, value, metadata)

    def begin(self, key: str, **metadata: Any) -> None:
        self._add("INTERVAL_START", f"{key}_start", None, metadata)

    def end(self, key: str, **metadata: Any) -> None:
        self._add("INTERVAL_END", f"{key}_stop", None, metadata)

    def interval(self, key: str, epoch: int, seconds: float) -> None:
        """A part of an epoch, over which the clock moves."""
        self.begin(key, epoch_num=epoch + 1)
        self.now_ms += 1000 * seconds
        self.end(key, epoch_num=epoch + 1)

    def _add(self, kind: str, key: str, value: Any, metadata: Tree) -> None:
        origin = {"file": "vernier", "lineno": len(self.lines) + 1}
        time_ms = round(self.now_ms)
        record = _Record(time_ms=time_ms, event_type=kind, key=key, value=value, metadata=origin | metadata)
        self.lines.append(PREFIX + json.dumps(encode(record)))


def write_mllog(run: RunLog, start_ms: float, *, benchmark: str, hyperparameters: Tree) -> str:
    """A whole log: submission lines, hyperparameters (keys as in MLPerf's rules), blocks of epochs, evaluations."""
    log = _Log(start_ms)
    log.point("submission_benchmark", benchmark)
    for key, value in (("org", "unknown"), ("division", "open"), ("status", "onprem"), ("platform", "vernier")):
        log.point(f"submission_{key}", value)
    log.point("cache_clear", True)
    log.begin("init")
    for key, value in hyperparameters.items():
        log.point(key, value)
    log.end("init")
    log.begin("run")
    _write_blocks(log, run)
    log.end("run", status="success" if run.reached_target else "aborted")
    return "\n".join(log.lines) + "\n"


def _write_blocks(log: _Log, run: RunLog) -> None:
    """Write the epochs in blocks: one block from one evaluation to the next."""
    evals = {e.epoch: e for e in run.evals}
    blocks: list[list[int]] = [[]]
    for epoch in sorted({s.epoch for s in run.steps} | set(evals)):
        blocks[-1].append(epoch)
        if epoch in evals:
            blocks.append([])
    for block in filter(None, blocks):
        log.begin("block", first_epoch_num=block[0] + 1, epoch_count=len(block))
        for epoch in block:
            log.interval("epoch", epoch, sum(s.seconds for s in run.steps if s.epoch == epoch))
        if result := evals.get(block[-1]):
            log.interval("eval", result.epoch, result.seconds)
            values = result.values
            name = next((n for n in ("top1", "AP", "eval_accuracy") if n in values), None)
            if name is not None:
                log.point("eval_accuracy", values[name] / (100 if name == "top1" else 1), epoch_num=result.epoch + 1)
        log.end("block", first_epoch_num=block[0] + 1)
