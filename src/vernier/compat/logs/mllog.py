"""MLPerf's logs since v0.7: `:::MLLOG` lines, read and written.

Written logs have the keys and the order that mlperf-logging's parser and compliance checker require; `submission_org`
and the like are left for the user to fill in before a submission. Times are milliseconds of the wall clock, accuracies
from 0 to 1 (top1 is in percent in Vernier).
"""

import json
import re
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.lab.logs.formats import LogFormat
from vernier.lab.logs.model import EvalRecord, RunLog, StepRecord, Tree, finite, whole
from vernier.records.codec import decode, encode
from vernier.store import parse_json
from vernier.wording import plural

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
    """The records of a log that may have other lines too, and how many of them are broken."""
    records, broken = [], 0
    for line in text.splitlines():
        # Logs are mixed with the output of the training script.
        _, prefix, rest = line.partition(PREFIX)
        if not prefix:
            continue
        try:
            records.append(decode(_Record, parse_json(rest.strip())))
        except ValueError:
            broken += 1
    return records, broken


def _kind(key: str) -> str:
    """The kind of an event by its name, as it is written."""
    kinds = {"start": "INTERVAL_START", "stop": "INTERVAL_END"}
    return kinds.get(key.rpartition("_")[2], "POINT_IN_TIME")


def _read_mllog(path: Path, text: str) -> RunLog:
    """The run of an MLPerf log. Its steps are whole epochs: their wall time, and the samples of the training set.

    The first epoch, which includes start-up and warm-up, is in no rate.
    """
    records, broken = _read_lines(text)
    if not records:
        raise ConfigError(f"{path} has no {PREFIX.strip()} records.")
    # Points in time are hyperparameters and submission details; accuracies are results.
    settings = {r.key: r.value for r in records if r.event_type == "POINT_IN_TIME" and "eval_acc" not in r.key}
    notes = [f"{plural(broken, 'broken line')} in {path.name} left out"] if broken else []
    starts, stops = ([r for r in records if r.key == key] for key in ("run_start", "run_stop"))
    total = (stops[-1].time_ms - starts[0].time_ms) / 1000 if starts and stops else None
    status = stops[0].meta("status") if stops else None
    if total is None:
        notes.append(f"{path.name} has no end of the run: no time to train")
    elif status != "success":
        notes.append(f"{path.name} ended with status {status}")
    devices, origin = _devices(records, settings)
    epochs = _epochs(records, settings)
    return RunLog(
        format="mllog",
        path=path,
        settings=settings,
        steps=tuple(replace(e, steady=i > 0 or len(epochs) == 1) for i, e in enumerate(epochs)),
        evals=tuple(
            EvalRecord(epoch=r.epoch or 0, values={r.key: float(r.value)})
            for r in records
            if r.key == "eval_accuracy" and finite(r.value) is not None
        ),
        devices=devices,
        total_s=total,
        reached_target=status == "success",
        aborted=status != "success",
        train_samples=whole(settings.get("train_samples")),
        eval_samples=whole(settings.get("eval_samples")),
        notes=(*notes, *origin, "times are those of whole epochs; the first, with the warm-up, is in no rate"),
    )


def _devices(records: Sequence[_Record], settings: Tree) -> tuple[int | None, list[str]]:
    """The number of devices as far as the log has it, with a note where it is counted; None: unknown."""
    if ranks := whole(settings.get("number_of_ranks")):
        return ranks, []
    nodes, per_node = (whole(settings.get(key)) for key in ("number_of_nodes", "accelerators_per_node"))
    if nodes and per_node:
        return nodes * per_node, []
    # The text of a Python dictionary, with numbers as texts.
    entry = str(settings.get("submission_entry") or "")
    per_host, hosts = (re.search(rf"'{key}': '(\d+)'", entry) for key in ("num_accelerators", "num_nodes"))
    if per_host and int(per_host[1]):
        return int(per_host[1]) * int(hosts[1] if hosts else 1), []
    processes = sum(r.key == "init_start" for r in records)
    if processes > 1:
        return processes, [f"{processes} devices: as many processes as logged their start (init_start)"]
    return None, []


def _epochs(records: Sequence[_Record], settings: Tree) -> list[StepRecord]:
    """Epochs with a start and a stop; one that the target cut short has no stop and is left out."""
    samples = float(finite(settings.get("train_samples")) or 0)
    starts_ms: dict[int | None, float] = {}
    epochs = []
    for record in records:
        number = record.epoch
        if record.key == "epoch_start":
            starts_ms[number] = record.time_ms
        elif record.key == "epoch_stop" and number is not None and number in starts_ms:
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

    def add(self, key: str, value: Any = None, **metadata: Any) -> None:
        # MLPerf's records name the source line that wrote them; here it is the line of the log.
        origin = {"file": "vernier", "lineno": len(self.lines) + 1}
        time_ms = round(self.now_ms)
        record = _Record(time_ms=time_ms, event_type=_kind(key), key=key, value=value, metadata=origin | metadata)
        self.lines.append(PREFIX + json.dumps(encode(record)))

    def interval(self, key: str, epoch: int, seconds: float) -> None:
        """A part of an epoch, over which the clock moves."""
        self.add(f"{key}_start", epoch_num=epoch + 1)
        self.now_ms += 1000 * seconds
        self.add(f"{key}_stop", epoch_num=epoch + 1)


def _write_blocks(log: _Log, run: RunLog) -> None:
    """Write the epochs in blocks: one block from one evaluation to the next."""
    evals = {e.epoch: e for e in run.evals}
    blocks: list[list[int]] = [[]]
    for epoch in sorted({s.epoch for s in run.steps} | set(evals)):
        blocks[-1].append(epoch)
        if epoch in evals:
            blocks.append([])
    # An evaluation in the last epoch leaves an empty block behind. MLPerf counts epochs from 1.
    for block in filter(None, blocks):
        log.add("block_start", first_epoch_num=block[0] + 1, epoch_count=len(block))
        for epoch in block:
            log.interval("epoch", epoch, sum(s.seconds for s in run.steps if s.epoch == epoch))
        if result := evals.get(block[-1]):
            log.interval("eval", result.epoch, result.seconds)
            values = result.values
            # MLPerf has one metric per benchmark, from 0 to 1.
            name = next((n for n in ("top1", "AP", "eval_accuracy") if n in values), None)
            if name is not None:
                log.add("eval_accuracy", values[name] / (100 if name == "top1" else 1), epoch_num=result.epoch + 1)
        log.add("block_stop", first_epoch_num=block[0] + 1)


def _write(run: RunLog) -> str:
    """A whole log: submission lines, hyperparameters (keys as in MLPerf's rules), blocks of epochs, evaluations."""
    log = _Log(1000 * run.began().timestamp())
    log.add("submission_benchmark", "ssd" if any("AP" in e.values for e in run.evals) else "resnet")
    for key, value in (("org", "unknown"), ("division", "open"), ("status", "onprem"), ("platform", "vernier")):
        log.add(f"submission_{key}", value)
    # In the order that MLPerf's compliance checker requires: caches, initialization with hyperparameters, run.
    log.add("cache_clear", True)
    log.add("init_start")
    recipe: Tree = run.settings.get("recipe") or {}
    optim = recipe.get("optim") or {}
    hyperparameters = {
        "seed": recipe.get("seed"),
        "global_batch_size": recipe.get("global_batch") or round(run.steps[0].samples / run.steps[0].steps),
        "train_samples": run.train_samples,
        "eval_samples": run.eval_samples,
        "opt_name": optim.get("name"),
        "opt_base_learning_rate": optim.get("lr"),
        "opt_weight_decay": optim.get("weight_decay"),
    }
    for key, setting in hyperparameters.items():
        if setting is not None:
            log.add(key, setting)
    log.add("init_stop")
    log.add("run_start")
    _write_blocks(log, run)
    log.add("run_stop", status="success" if run.reached_target else "aborted")
    return "\n".join(log.lines) + "\n"


FORMAT = LogFormat(
    reads="an MLPerf log (:::MLLOG)",
    recognizes=lambda text: PREFIX in text,
    read=_read_mllog,
    write=_write,
    order=1,
)
