"""Console output of training scripts: torchvision's (also Habana's PyTorch), Habana's TensorFlow SSD, TensorFlow's.

These logs are for people: times are rounded and often means over printed lines, and the batch is not on the lines. It
is read from the printed arguments or the command line, or from rate and time, and a note says which.
"""

import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vernier.report.logs.formats import LogFormat
from vernier.report.logs.model import LARGEST, EvalRecord, RunLog, StepRecord, Tree, mark_warmup, whole
from vernier.wording import plural

_NUMBER = r"([-+\d.eE]+|nan|inf)"
_TORCHVISION = re.compile(r"Epoch: \[(\d+)\]\s+\[\s*(\d+)/\d+\]\s+eta: \S+\s+(.*)")
# torchvision's MetricLogger: `loss: 6.9 (7.1)` is a median and a mean; the number after the colon is taken.
_METER = re.compile(r"(\S+): (-?\d\S*)")
_ACCURACY = re.compile(r"Acc@1 ([\d.]+) Acc@5 ([\d.]+)")
_SSD_STEP = re.compile(rf"Step (\d+) : loss = {_NUMBER} , time = ([\d.]+) ms")
_SSD_EPOCH = re.compile(r"Epoch (\d+) finished\. Duration: (?:(\d+) days?, )?(\d+):(\d\d):(\d\d) -> IPS: ([\d.]+)")
_COCO = re.compile(r"Average Precision\s+\(AP\) @\[ IoU=([\d.:]+)\s*\| area=\s*all \| maxDets=\s*\d+ \] = ([\d.]+)")
_ESTIMATOR = re.compile(rf"loss = {_NUMBER}, step = (\d+)(?: \(([\d.]+) sec\))?")
_BENCHMARK = re.compile(
    r"BenchmarkMetric: \{'global step':(\d+), 'time_taken': ([\d.]+), ?'examples_per_second': ([\d.]+)\}"
)
_HISTORY = re.compile(r"TimeHistory: ([\d.]+) seconds, ([\d.]+) examples/second between steps (\d+) and (\d+)")
_RESULT = re.compile(r"Saving dict for global step (\d+): (.*)")
_TAG = re.compile(r"\[\d+,(\d+)\]<std(?:out|err)>:")
"""How `mpirun --tag-output` marks the lines of each process."""
_ARGUMENTS = re.compile(r"Namespace\((.*)\)")
_BATCH = re.compile(r"(?:--batch[_-]size[ =]|--batch[ =]|\s-bs?[ =])(\d+)")
_LAUNCHED = re.compile(r"(?:mpirun\b.*?-(?:np|n) |--num_workers_per_hls[ =]|--nproc[_-]per[_-]node[ =])(\d+)")

# Below `LARGEST`, 1e15; more digits are damage.
_MOST_DIGITS = 15
_LONGEST_LINE = 10_000
"""Scripts print no longer lines of figures, and searching one for them takes time with the square of its length."""


@dataclass
class _Parts:
    """What the lines of a log add up to, while it is read."""

    steps: list[StepRecord] = field(default_factory=list)
    evals: list[EvalRecord] = field(default_factory=list)
    batches: list[tuple[float, float]] = field(default_factory=list)
    """Lower and upper bound of the global batch, from rate and time."""
    values: dict[str, float] = field(default_factory=dict)
    epoch: int = 0
    broken: int = 0
    per_process: bool = False
    """Whether the rate of these lines is that of one process."""


def is_console(text: str) -> bool:
    patterns = (_TORCHVISION, _SSD_STEP, _SSD_EPOCH, _BENCHMARK, _HISTORY, _ESTIMATOR)
    return any(p.search(text) for p in patterns)


def read_console(path: Path, text: str) -> RunLog:
    """The run of such a log. Without a batch its steps have no samples, and no rate can be computed."""
    parts, settings = _Parts(), _settings(text)
    for line in text.splitlines():
        if len(line) > _LONGEST_LINE:
            parts.broken += 1
            continue
        tag = _TAG.match(line)
        if tag and tag[1] != "0":  # every process prints the same steps
            continue
        # A line is of one kind: the first pattern that matches takes it.
        for pattern, take in _LINES:
            if match := pattern.search(line):
                try:
                    take(parts, match)
                except (ValueError, OverflowError, ZeroDivisionError):  # what looks like a number and is none
                    parts.broken += 1
                break
    steps = list(_with_durations(parts.steps))
    batch, notes = _global_batch(parts, settings)
    per_step = batch or 0.0
    broken = [f"{plural(parts.broken, 'broken line')} in {path.name} left out"] if parts.broken else []
    return RunLog(
        format="console",
        path=path,
        settings=settings,
        steps=mark_warmup([replace(s, samples=per_step * s.steps) for s in steps]),
        evals=tuple(parts.evals),
        devices=whole(settings.get("world_size")),
        notes=(
            *notes,
            *broken,
            "times are those that the console shows: rounded, and means where several steps share a line",
        ),
    )


def _settings(text: str) -> Tree:
    """Arguments that the script printed or was started with; only those that say what ran."""
    settings: Tree = {}
    if match := _ARGUMENTS.search(text):
        # Texts and lists can have commas in them; any other value ends at the next one.
        pairs = re.findall(r"(\w+)=('[^']*'|\[[^\]]*\]|[^,]+)", match[1])
        settings = {k: _plain(v) for k, v in pairs}
    if "batch_size" not in settings and (match := _BATCH.search(text)):
        settings["batch_size"] = _plain(match[1])
    # The tags of mpirun count the processes if no command line in the log does.
    ranks = {tag[1] for line in text.splitlines() if (tag := _TAG.match(line))}
    if not settings.get("world_size") and (match := _LAUNCHED.search(text)):
        settings["world_size"] = _plain(match[1])
    elif not settings.get("world_size") and ranks:
        settings["world_size"] = len(ranks)
    return settings


def _plain(text: str) -> Any:
    text = text.strip()
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if re.fullmatch(r"-?\d*\.\d+(?:[eE][-+]?\d+)?", text):
        return float(text)
    return {"True": True, "False": False, "None": None}.get(text, text.strip("'"))


def _global_batch(parts: _Parts, settings: Tree) -> tuple[float | None, list[str]]:
    """Images per step over all devices, and where they are from."""
    own, world = whole(settings.get("batch_size")), whole(settings.get("world_size"))
    bounds = parts.batches
    # A batch per process is usable with the number of processes, or if the rates are per process as well. Otherwise
    # the global batch that follows from global rates is better.
    if isinstance(own, int) and (isinstance(world, int) or parts.per_process or not bounds):
        if isinstance(world, int):
            return float(own * world), []
        return float(own), [
            f"the log has a batch of {own} per process but not how many: rates are those of one process"
        ]
    if not bounds:
        return None, ["the batch is not in the log: there is no rate"]
    # Each line bounds the same batch, so it is in the intersection of all bounds.
    low, high = max(b[0] for b in bounds), min(b[1] for b in bounds)
    if low > high:  # bounds of rounded figures that do not meet
        low = high = statistics.median((a + b) / 2 for a, b in bounds)
    if not 0 <= high < LARGEST:
        return None, ["the batch that follows from rate and time is impossible: there is no rate"]
    best = _roundest(max(1, math.ceil(low)), math.floor(high)) or round((low + high) / 2)
    scope = "per process" if parts.per_process else "over all devices"
    return float(best), [f"the batch of {best} {scope} follows from rate and time: it is not in the log"]


def _roundest(low: int, high: int) -> int | None:
    """The number from low to high that can be halved most often, as batches can; None where there is none."""
    # From the largest power down: its first multiple from `low` on is the answer if it is in the range.
    powers = (2**exponent for exponent in reversed(range(high.bit_length())))
    return next((number for power in powers if (number := -(-low // power) * power) <= high), None)


# --------------------------------------------------------------------------------------------------------------- lines


def _torchvision(parts: _Parts, match: re.Match[str]) -> None:
    meters = {k: float(v) for k, v in _METER.findall(match[3]) if re.fullmatch(r"-?[\d.]+(?:e-?\d+)?", v)}
    seconds, wait_s = meters.get("time", 0.0), meters.get("data", 0.0)
    if seconds <= 0:
        return
    parts.epoch, parts.per_process = _count(match[1]), True
    if (rate := meters.get("img/s")) and seconds > wait_s:
        # img/s is one step without its wait for data, time and data are means of a window: 10 % either way.
        parts.batches.append((0.9 * rate * (seconds - wait_s), 1.1 * rate * (seconds - wait_s)))
    parts.steps.append(
        StepRecord(
            epoch=parts.epoch,
            step=_count(match[2]) + 1,  # torchvision counts from 0
            seconds=seconds,
            wait_s=min(wait_s, seconds),
            loss=meters.get("loss"),
            lr=meters.get("lr"),
            top1=meters.get("acc1"),
            top5=meters.get("acc5"),
        )
    )


def _accuracy(parts: _Parts, match: re.Match[str]) -> None:
    parts.evals.append(EvalRecord(epoch=parts.epoch, values={"top1": float(match[1]), "top5": float(match[2])}))


def _ssd_step(parts: _Parts, match: re.Match[str]) -> None:
    seconds = float(match[3]) / 1000
    parts.steps.append(StepRecord(epoch=parts.epoch, step=_count(match[1]), seconds=seconds, loss=_finite(match[2])))


def _ssd_epoch(parts: _Parts, match: re.Match[str]) -> None:
    days, hours, minutes, seconds = (int(n or 0) for n in match.groups()[1:5])
    duration = ((24 * days + hours) * 60 + minutes) * 60 + seconds
    numbers = [s.step for s in parts.steps if s.epoch == parts.epoch]
    if len(numbers) > 1 and duration:
        # Only every k-th step is printed: n lines stand for n intervals of (last - first) / (n - 1) steps. The duration
        # is rounded to a second, hence half a second either way.
        steps = (max(numbers) - min(numbers)) * len(numbers) / (len(numbers) - 1)
        rate = float(match[6])
        parts.batches.append((rate * (duration - 0.5) / steps, rate * (duration + 0.5) / steps))
    parts.epoch += 1


def _coco(parts: _Parts, match: re.Match[str]) -> None:
    name = {"0.50:0.95": "AP", "0.50": "AP50", "0.75": "AP75"}.get(match[1])
    if name is None:
        return
    # COCO prints one line per metric; a metric that is there already begins the next evaluation. The line that ends
    # an epoch comes before and has moved the epoch on.
    last = parts.evals[-1] if parts.evals else None
    if last is None or name in last.values:
        parts.evals.append(EvalRecord(epoch=max(0, parts.epoch - 1), values={name: float(match[2])}))
    else:
        parts.evals[-1] = replace(last, values={**last.values, name: float(match[2])})


def _estimator(parts: _Parts, match: re.Match[str]) -> None:
    """The time on a line is that since the line before; the first has none."""
    step, seconds = _count(match[2]), float(match[3] or 0)
    parts.steps.append(StepRecord(epoch=parts.epoch, step=step, seconds=seconds, loss=_finite(match[1]), steps=0))


def _benchmark(parts: _Parts, match: re.Match[str]) -> None:
    _timed(parts, _count(match[1]), float(match[2]), float(match[3]))


def _history(parts: _Parts, match: re.Match[str]) -> None:
    _timed(parts, _count(match[4]), float(match[1]), float(match[2]), _count(match[4]) - _count(match[3]))


def _timed(parts: _Parts, step: int, seconds: float, rate: float, steps: int = 0) -> None:
    before = parts.steps[-1].step if parts.steps else 0
    count = steps or step - before
    if count < 1 or seconds <= 0:
        return
    images = rate * seconds / count
    parts.batches.append((images * 0.99, images * 1.01))
    parts.steps.append(StepRecord(epoch=parts.epoch, step=step, seconds=seconds, steps=count))


def _result(parts: _Parts, match: re.Match[str]) -> None:
    values = {k: float(v) for k, v in re.findall(r"(\w+) = ([\d.eE+-]+)", match[2])}
    # TensorFlow's accuracies are fractions.
    named = {"top1": 100 * values["accuracy"]} if "accuracy" in values else {}
    named |= {"top5": 100 * values["accuracy_top_5"]} if "accuracy_top_5" in values else {}
    named |= {"loss": values["loss"]} if "loss" in values else {}
    parts.evals.append(EvalRecord(epoch=parts.epoch, values=named))
    parts.epoch += 1


def _count(text: str) -> int:
    """A number of steps or epochs. Raises ValueError where none can be so large."""
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _with_durations(steps: Sequence[StepRecord]) -> Iterator[StepRecord]:
    """Lines of an estimator get the number of steps since the line before; lines without a time are left out."""
    before = 0
    for step in steps:
        count = step.steps or step.step - before
        before = step.step
        if step.seconds > 0 and count > 0:
            yield replace(step, steps=count)


_LINES: tuple[tuple[re.Pattern[str], Callable[[_Parts, re.Match[str]], None]], ...] = (
    (_TORCHVISION, _torchvision),
    (_ACCURACY, _accuracy),
    (_SSD_STEP, _ssd_step),
    (_SSD_EPOCH, _ssd_epoch),
    (_COCO, _coco),
    (_BENCHMARK, _benchmark),
    (_HISTORY, _history),
    (_RESULT, _result),
    (_ESTIMATOR, _estimator),
)


FORMAT = LogFormat(
    reads="the console output of torchvision's, Habana's or TensorFlow's training scripts",
    recognizes=is_console,
    read=read_console,
    order=3,
)
