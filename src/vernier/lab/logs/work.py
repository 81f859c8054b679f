"""What a log says about the work that it measured, whether two logs measured the same, and the step times to compare.

Vernier's own runs and benchmarks have a record of what ran. Other systems' logs have some of it under names of their
own; what none of them says is missing here, and people read that it is not in the log. Only logs of the same work are
compared.
"""

from collections.abc import Callable, Sequence
from typing import Any

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.lab.statistics.comparison import Trace
from vernier.measure.throughput import step_samples
from vernier.records.what_ran import WhatRan
from vernier.report.page.identity import NOT_IN_LOG
from vernier.wording import plural

from .model import RunLog, Tree, whole

_MLPERF_NETWORKS = {"resnet": "resnet50"}  # MLPerf's name of its benchmark -> Vernier's name of the model


@frozen
class Work:
    """What was measured: values by part, to be compared, and words by part, to be read."""

    values: dict[str, Any]
    texts: dict[str, str]
    ran: WhatRan | None = None


def work_of(run: RunLog) -> Work:
    """What a run measured, from its record, or from the settings in another system's log."""
    if run.ran is not None:
        return _recorded(run.ran)
    read = _FOREIGN.get(run.format)
    return Work(values={}, texts={}) if read is None else read(run)


def _recorded(ran: WhatRan) -> Work:
    values = {
        "kind": ran.kind,
        "network": ran.network,
        "image size": (ran.start_px, ran.image_px),  # progressive resizing is other work
        "batch": ran.batch_per_device,
        **({"classes": ran.classes} if ran.classes else {}),  # old benchmarks recorded 0: not known
    }
    size = f"{ran.start_px} to {ran.image_px} px" if ran.start_px else f"{ran.image_px} px"
    return Work(values=values, texts={**ran.parts(), "image size": size}, ran=ran)


def _of_settings(run: RunLog, network: Any, counts: dict[str, tuple[Any, str]], texts: Tree) -> Work:
    """`counts` are values to compare with the words for them; parts without a value are left out."""
    name = {"network": (str(network), "{}")} if network else {}
    known = {part: (value, text.format(value)) for part, (value, text) in (name | counts).items() if value}
    words = {
        "kind": run.kind,
        "network": NOT_IN_LOG,
        **{part: text for part, (_, text) in known.items()},
        "devices": f"devices: {NOT_IN_LOG}" if run.devices is None else plural(run.devices, "device"),
        **{part: str(text) for part, text in texts.items() if text},
    }
    return Work(values={"kind": run.kind, **{part: value for part, (value, _) in known.items()}}, texts=words)


def _of_dllogger(run: RunLog) -> Work:
    s = run.settings
    mixed = "AMP" if s.get("amp") else "fp16" if s.get("fp16") else "not mixed"
    size, devices = whole(s.get("image_size")), whole(s.get("world_size")) or 1
    accumulated = whole(s.get("optimizer_batch_size")) if s.get("warmup_left_out") is False else None
    return _of_settings(
        run,
        next((name for key in ("arch", "model") if isinstance(name := s.get(key), str)), None),
        {
            "classes": (whole(s.get("num_classes")), "{:,} classes"),
            # NVIDIA's is that of a device at once; what Vernier writes of a run names the batch of a step, too.
            "batch": (whole(s.get("batch_size")) if accumulated is None else accumulated // devices, "batch {:,}"),
            "image size": (size and (None, size), "{0[1]} px"),  # (first, last), as in `_recorded`
        },
        {"data": s.get("data"), "precision": s.get("precision") or (mixed if "amp" in s or "fp16" in s else "")},
    )


def _of_mllog(run: RunLog) -> Work:
    s = run.settings
    benchmark = s.get("submission_benchmark")
    images = f"{run.train_samples:,} training images" if run.train_samples else ""
    return _of_settings(
        run,
        _MLPERF_NETWORKS.get(str(benchmark), benchmark),
        {"global batch": (whole(s.get("global_batch_size")), "global batch {:,}")},
        {"data": images, "device": s.get("submission_platform")},
    )


_FOREIGN: dict[str, Callable[[RunLog], Work]] = {
    "dllogger": _of_dllogger,
    "raport": _of_dllogger,
    "mllog": _of_mllog,
}


# ------------------------------------------------------------------------------------------------------------ comparing


_SAME_WORK = ("kind", "network", "image size", "classes", "batch", "global batch")
"""Parts that must agree. Everything else may differ, and is shown."""
SHOWN = ("devices", "data", "precision", "mode", "device", "torch", "Vernier")
# ResNet-50 with 10 instead of 1,000 classes has 8 % fewer parameters and 0.05 % fewer operations: the same work.
_HEAD_MACS, _HEAD_PARAMETERS = 0.01, 0.1
"""Another number of classes is other work if it changes operations or parameters by more than this share."""
_VERBS = {"train": "trains", "infer": "infers", "eval": "evaluates"}


def describe_work(work: Work, parts: Sequence[str]) -> str:
    """The work in words, as far as these parts are concerned: `trains resnet50 at 224 px, batch 32`."""
    values, texts = work.values, work.texts
    size = f" at {texts['image size']}" if "image size" in values else ""
    main = f"{_VERBS[values.get('kind', 'train')]} {values.get('network', f'a network that is {NOT_IN_LOG}')}{size}"
    return ", ".join([main, *(texts[p] for p in ("classes", "batch", "global batch") if p in parts)])


def trace_of(run: RunLog) -> Trace:
    """The step times for a comparison. Raises ConfigError when the log has no steps past the warm-up."""
    steps = run.steady_steps
    if not steps:
        raise ConfigError(f"{run.path} ({run.format}) records no steps to measure.")
    # Samples per step from the totals: a window has several steps, and batches can differ in size.
    counts = [s.steps for s in steps]
    per_step = sum(s.samples for s in steps) / sum(counts)
    if per_step <= 0:
        raise ConfigError(f"{run.path} ({run.format}) does not record the number of samples per step.")
    try:
        step_s = tuple(step_samples([s.seconds for s in steps], counts))
        # With the path: rounds of different benchmarks must not be paired.
        in_round = None if run.round is None else f"{run.path.resolve()}, round {run.round}"
        return Trace(step_s=step_s, samples_per_step=per_step, round=in_round, steps=sum(counts))
    except ValueError as error:
        raise ConfigError(f"{run.path}: {error}.") from None


def different_work(a: Work, b: Work) -> list[str]:
    """The parts in which two results are not of the same work, as far as both say it."""
    parts = [p for p in _SAME_WORK if p in a.values and p in b.values and a.values[p] != b.values[p]]
    if "classes" in parts and "network" not in parts and not _head_matters(a.ran, b.ran):
        parts.remove("classes")
    return parts


def _head_matters(a: WhatRan | None, b: WhatRan | None) -> bool:
    if a is None or b is None:  # the cost of the head is not known; `other_differences` lists the classes
        return False
    pairs = ((a.gmac, b.gmac, _HEAD_MACS), (a.parameters, b.parameters, _HEAD_PARAMETERS))
    return any(abs(x - y) > share * max(x, y) for x, y, share in pairs)


def unknown_work(a: Work, b: Work) -> list[str]:
    """The parts that only one of two results says, so that nobody knows whether they agree."""
    # A batch per device and a global batch do not tell whether the other agrees: both logs must state the same one.
    batch = {"batch", "global batch"}
    missing = [p for p in _SAME_WORK if (p in a.values) != (p in b.values) and p not in batch]
    either = [bool(batch & set(work.values)) for work in (a, b)]
    shared = batch & set(a.values) & set(b.values)
    return [*missing, *(["batch"] if any(either) and not shared else [])]


def other_differences(a: Work, b: Work) -> dict[str, tuple[str, str]]:
    """What else differs, in words: part -> A and B. Number of classes included where the head does not matter."""
    both_know = "classes" in a.values and "classes" in b.values
    parts = [*(["classes"] if both_know and "classes" not in different_work(a, b) else []), *SHOWN]
    words = {part: (a.texts.get(part) or NOT_IN_LOG, b.texts.get(part) or NOT_IN_LOG) for part in parts}
    return {part: (x, y) for part, (x, y) in words.items() if x != y}
