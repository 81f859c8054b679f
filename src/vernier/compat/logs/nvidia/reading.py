"""Reads NVIDIA's logs: `raport.json`, DLLogger's JSON lines (`DLLL {...}`) and text lines, and the console of 2019.

All of them are first brought into one form: values by (), (epoch,), (epoch, iteration) and (epoch, iteration,
validation iteration).
"""

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError
from vernier.lab.logs.model import EvalRecord, RunLog, StepRecord, Tree, finite, mark_warmup, whole
from vernier.store import parse_json
from vernier.wording import plural

PREFIX = "DLLL "
_MEAN_RATE = "avg_img/sec"
SPEEDS = (
    *("total_ips", "compute_ips", "data_time", "compute_time", "compute_latency"),
    *(f"compute_latency_at{q}" for q in (95, 99, 100)),
)
"""Names of an evaluation's speed, after `val.`."""
# Searched, not matched: launchers write the rank in front of the line (`0: DLL 2024-...`).
_TEXT = re.compile(r"\bDLLL? (\d{4}-\d\d-\d\d[ T][\d:.]+(?:[+-][\d:]+)?) - (.*)")
_CONSOLE = re.compile(r"^(Summary )?Epoch: (\d+)/\d+ *(Validation)? *(?:Iteration: (\d+)/\d+)?;\t(.*)", re.M)
# Versions of DLLogger write a step as words or as a tuple: `Epoch: 0 Iteration: 3`, `Summary:`, `(0, 3)`, `[0, 3]`.
_STEP = re.compile(
    r"Summary:|[(\[][\d, ]*[)\]]|(?:Epoch: (\d+) )?(?:Iteration: (\d+) )?(?:Validation Iteration: (\d+) )?"
)
Points = dict[tuple[int, ...], Tree]


def is_dllogger(text: str) -> bool:
    """Whether these are DLLogger's lines, JSON or text, or the console of NVIDIA's script of 2019."""
    return f"{PREFIX}{{" in text or any(pattern.search(text) for pattern in (_TEXT, _CONSOLE))


def read_dllogger(path: Path, text: str) -> RunLog:
    """The run of DLLogger's lines; other lines between them are ignored, broken ones counted."""
    settings: Tree = {}
    points: Points = {}
    broken, started, means = 0, None, list[float]()
    for line in text.splitlines():
        try:
            record = _json_record(line) or _text_record(line) or _console_record(line)
        except ValueError:
            broken += 1
            continue
        if record is None:
            continue
        step, data, time = record
        started = started or time
        if step == "PARAMETER":
            settings |= data
        elif step == () and (mean := finite(data.get(_MEAN_RATE))):
            means.append(mean)
        elif isinstance(step, tuple):
            # Metrics of one iteration can be spread over several lines.
            points.setdefault(step, {}).update(data)
    notes = [f"{plural(broken, 'broken line')} in {path.name} left out"] if broken else []
    if not settings and not points:
        raise ConfigError(f"{path} has no DLLogger records (lines that begin with {PREFIX.strip()} or DLL).")
    if means and not any(len(point) > 1 for point in points):
        # Each process of NVIDIA's SSD prints the mean rate of its own images, and no iteration.
        points[0, 1], settings["world_size"] = {"train.total_ips": sum(means)}, len(means)
        of = plural(len(means), "process")
        notes = [f"{path.name} has no times of steps: they follow from the mean rates of {of}, added up"]
        return replace(_run_log("dllogger", path, settings, points, []), started=started, notes=tuple(notes))
    return replace(_run_log("dllogger", path, settings, points, notes), started=started)


_Record = tuple[tuple[int, ...] | str, Tree, str | None]


def _json_record(line: str) -> _Record | None:
    _, prefix, rest = line.partition(f"{PREFIX}{{")
    if not prefix:
        return None
    record = parse_json("{" + rest)
    step, data = record.get("step"), record.get("data")
    if not isinstance(data, dict):
        return "", {}, None
    of_iteration = isinstance(step, list) and all(isinstance(s, int) for s in step)
    return tuple(step) if of_iteration else str(step), data, _iso(str(record.get("datetime") or ""))


def _iso(time: str) -> str | None:
    """DLLogger's time as an ISO time; it has no zone in most versions, and is taken for UTC."""
    match = re.match(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d+)?)([+-]\d\d:\d\d)?$", time)
    return f"{match[1]}T{match[2]}{match[3] or '+00:00'}" if match else None


def _text_record(line: str) -> _Record | None:
    """`DLL 2024-01-02 03:04:05.678901 - Epoch: 0 Iteration: 1  train.loss : 6.9 train.total_ips : 700.1 images/s`."""
    match = _TEXT.search(line)
    if match is None:
        return None
    rest = f"{match[2]} "  # the patterns end with a space, also at the end of a line
    if rest.startswith("PARAMETER "):
        return "PARAMETER", dict(_parameters(rest.removeprefix("PARAMETER "))), _iso(match[1])
    head = _STEP.match(rest)
    if head is None or not (text := head[0].strip()):
        return "", {}, None
    numbers = re.findall(r"\d+", text) if text[0] in "([" else filter(None, head.groups())
    return tuple(map(int, numbers)), _values(rest[head.end() :]), _iso(match[1])


def _console_record(line: str) -> _Record | None:
    """`Epoch: 0/90  Iteration: 1/5004;<tab>train.loss : 6.9<tab>...`, as NVIDIA's script of 2019 prints."""
    match = _CONSOLE.match(line)
    if match is None:
        return None
    summary, epoch, validation, iteration, rest = match.groups()
    # The line of a validation batch has no training iteration; 0 takes its place.
    numbers = [] if summary or not iteration else [0, int(iteration)] if validation else [int(iteration)]
    return (int(epoch), *numbers), _values(rest), None


def _values(text: str) -> dict[str, float]:
    """Metrics of a text line; what follows a number is its unit."""
    values = {}
    for name, value in _pairs(text):
        with suppress(ValueError, IndexError):
            values[name] = float(value.split()[0])
    return values


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """`name : value` pairs: a value ends before the name that stands before the next ` : `. In linear time."""
    before, *parts = text.split(" : ")
    for number, part in enumerate(parts, start=1):
        value = part if number == len(parts) else part.rstrip().removesuffix((part.split() or [""])[-1])
        if words := before.rsplit(None, 1):
            yield words[-1], value.strip()
        before = part


def _parameters(text: str) -> Iterator[tuple[str, Any]]:
    """Parameters end with two spaces, as they have no unit; then their names can have spaces, as those of SSD."""
    parts = [part.partition(" : ") for part in re.split(" {2,}", text) if " : " in part]
    alone = all(" : " not in value for *_, value in parts)
    for name, value in ((name, value) for name, _, value in parts) if alone else _pairs(text):
        yield name.strip().replace(" ", "_"), _literal(value)


def _literal(text: str) -> Any:
    """A parameter of a text line: a number, True, None, or the text itself."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # what a text that is no literal raises
        return text.strip()


# -------------------------------------------------------------------------------------------------------------- raport


def is_raport(text: str) -> bool:
    """Whether a text is a raport.json: a JSON document with tables of iterations and epochs."""
    try:
        tree = parse_json(text)
    except ValueError:
        return False
    return isinstance(tree, dict) and "iter" in tree and "epoch" in tree


def read_raport(path: Path, text: str) -> RunLog:
    """The run of a `raport.json`: lists by metric, inner lists by epoch."""
    tree = parse_json(text)
    settings, iterations, epochs = (tree.get(k) or {} for k in ("run", "iter", "epoch"))
    if not all(isinstance(part, dict) for part in (settings, iterations, epochs)):
        raise ConfigError(f"{path} is not a raport.json: it has no `iter` and `epoch` tables.")
    ep = epochs.get("ep")
    numbers = [whole(n) for n in ep] if isinstance(ep, list) else []
    first = numbers[0] or 0 if numbers else 0

    def epoch_of(index: int) -> int:
        number = numbers[index] if index < len(numbers) else None
        return first + index if number is None else number

    points: Points = {}

    def add(index: int, number: tuple[int, ...], name: str, value: Any) -> None:
        if value is not None:
            points.setdefault((epoch_of(index), *number), {})[name] = value

    # Times are always one list per epoch, so their lengths tell where to cut metrics that are one list over all.
    shape = [len(e) for e in _by_epoch(iterations.get("train.compute_time"), None)]
    val_lists = (v for k, v in iterations.items() if k.startswith("val.") and k != "val.it" and isinstance(v, list))
    val_shape = [len(e) for e in next(val_lists, []) if isinstance(e, list)]
    train_it, val_it = _by_epoch(iterations.get("it"), None), _by_epoch(iterations.get("val.it"), val_shape)
    for name, metric in iterations.items():
        if name in ("it", "val.it"):
            continue
        validation = name.startswith("val.")
        counter = val_it if validation else train_it
        for index, values in enumerate(_by_epoch(metric, val_shape if validation else shape)):
            counts = counter[index] if index < len(counter) else []
            for position, value in enumerate(values):
                # Without a counter (`it`, `val.it`), the position in the list is the iteration.
                listed = whole(counts[position]) if position < len(counts) else None
                number = position + 1 if listed is None else listed
                add(index, (0, number) if validation else (number,), name, value)
    for name, values in epochs.items():
        for index, value in enumerate(values if isinstance(values, list) and name != "ep" else []):
            add(index, (), name, value)
    return _run_log("raport", path, settings, points, [])


def _by_epoch(metric: Any, shape: list[int] | None) -> list[list[Any]]:
    """A metric as one list per epoch. NVIDIA's `lr` and `val.it` are one list over all epochs, cut here by `shape`."""
    if not isinstance(metric, list):
        return []
    flat = bool(metric) and not isinstance(metric[0], list)
    lists = [metric] if flat else [e if isinstance(e, list) else [] for e in metric]
    # NVIDIA's lists end with an empty one, so a single epoch can have the shape [n, 0]: nothing to cut.
    if len(lists) != 1 or sum(map(bool, shape or [])) < 2:
        return lists
    values = iter(lists[0])
    return [list(islice(values, count)) for count in shape or []]


# --------------------------------------------------------------------------------------------------------- common form


def _run_log(form: str, path: Path, settings: Tree, points: Points, notes: list[str]) -> RunLog:
    timing, points = _Timing(settings), dict(sorted(points.items()))
    steps = [timing.step("train", k[0], k[1], v) for k, v in points.items() if len(k) == 2]
    batches: dict[int, list[StepRecord]] = {}
    for key, data in points.items():
        if len(key) == 3 and (batch := timing.step("val", key[0], key[2], data)):
            batches.setdefault(key[0], []).append(batch)
    usable = [s for s in steps if s is not None]
    if len(usable) < len(steps):
        notes.append(f"{plural(len(steps) - len(usable), 'step record')} of {path.name} without usable times left out")
    evals = [e for k, v in points.items() if len(k) == 1 and (e := _eval(k[0], v, batches.get(k[0], [])))]
    # A log without training steps measured inference: its validation batches are the steps, or, if only the
    # means of an epoch were kept, one step per epoch.
    infers = not usable and bool(batches or any(e.speed for e in evals))
    if infers:
        per_epoch = [timing.step("val", e.epoch, 1, {f"val.{k}": v for k, v in e.speed.items()}) for e in evals]
        usable = [b for e in sorted(batches) for b in batches[e]] or [s for s in per_epoch if s is not None]
        evals = [replace(e, batches=()) for e in evals]
    if timing.guessed:
        notes.append(f"{path.name} does not say the batch: its times are per image")
    return RunLog(
        format=form,
        path=path,
        kind="infer" if infers else "train",
        settings=settings,
        # Vernier writes this key for benchmarks: cutting off first steps again would lose measured ones.
        steps=tuple(usable) if settings.get("warmup_left_out") is True else mark_warmup(usable),
        evals=tuple(evals),
        devices=whole(settings.get("world_size")) or None,
        notes=(*notes, *(() if timing.every else ("times are those of the printed iterations, not of every step",))),
    )


class _Timing:
    """Times and samples of iterations. Text lines have rates only; times follow from the batch."""

    def __init__(self, settings: Tree) -> None:
        per_process, world = finite(settings.get("batch_size")), finite(settings.get("world_size"))
        # NVIDIA's batch_size is that of one process.
        self._global_batch = per_process * world if per_process and world else None
        self.every = "warmup_left_out" in settings or settings.get("print_freq") == 1  # Vernier lists every step
        self.guessed = False

    def step(self, prefix: str, epoch: int, number: int, data: Mapping[str, Any]) -> StepRecord | None:
        """The record of an iteration; None without usable times."""
        value = {k.removeprefix(f"{prefix}."): finite(v) for k, v in data.items() if k.startswith(f"{prefix}.")}
        wait, busy = value.get("data_time"), value.get("compute_time") or value.get("compute_latency")
        total, compute = value.get("total_ips"), value.get("compute_ips")
        samples = self._samples(busy, compute)
        if (wait is None or busy is None) and total:
            # Without a batch, one image stands for a step: times are per image, and rates stay right.
            self.guessed |= samples is None
            samples = samples or 1.0
            seconds = samples / total
            busy = min(seconds, samples / compute) if compute else seconds  # rounded rates can exceed the total
            wait = seconds - busy
        if wait is None or busy is None or busy <= 0 or wait < 0:
            return None
        train = value if prefix == "train" else {}
        return StepRecord(
            epoch=epoch,
            step=number,
            seconds=wait + busy,
            wait_s=wait,
            samples=samples or 0.0,
            loss=train.get("loss"),
            lr=finite(data.get("lr", train.get("lr"))) if train else None,
            top1=train.get("top1"),
            top5=train.get("top5"),
        )

    def _samples(self, busy: float | None, compute_ips: float | None) -> float | None:
        """Images of an iteration. Over several iterations NVIDIA's rate is a mean of rates: then the batch is exact."""
        # The product of a printed time and rate misses the whole number of images by rounding.
        from_rate = busy * compute_ips if busy and compute_ips else None
        if self.every and from_rate:
            return float(round(from_rate)) if abs(from_rate - round(from_rate)) < 1e-6 * from_rate else from_rate
        return self._global_batch or from_rate


def _eval(epoch: int, data: Mapping[str, Any], batches: list[StepRecord]) -> EvalRecord | None:
    numbers = {
        k.removeprefix("val."): float(v) for k, v in data.items() if k.startswith("val.") and finite(v) is not None
    }
    speed = {k: numbers.pop(k) for k in tuple(numbers) if k in SPEEDS}
    known = numbers or speed or batches
    return EvalRecord(epoch=epoch, values=numbers, speed=speed, batches=tuple(batches)) if known else None
