"""Whether two logs measured the same work, so that only such logs are compared, and the step times to compare.

What a log says about its work is `report.logs.work`.
"""

from collections.abc import Sequence

from vernier.errors import ConfigError
from vernier.lab.statistics.comparison import Trace
from vernier.measure.throughput import step_samples
from vernier.records.what_ran import WhatRan
from vernier.report.logs.model import RunLog
from vernier.report.logs.work import NOT_IN_LOG, Work

SAME_WORK = ("kind", "network", "image size", "classes", "batch", "global batch")
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
    parts = [p for p in SAME_WORK if p in a.values and p in b.values and a.values[p] != b.values[p]]
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
    missing = [p for p in SAME_WORK if (p in a.values) != (p in b.values) and p not in batch]
    either = [bool(batch & set(work.values)) for work in (a, b)]
    shared = batch & set(a.values) & set(b.values)
    return [*missing, *(["batch"] if any(either) and not shared else [])]


def other_differences(a: Work, b: Work) -> dict[str, tuple[str, str]]:
    """What else differs, in words: part -> A and B. Number of classes included where the head does not matter."""
    both_know = "classes" in a.values and "classes" in b.values
    parts = [*(["classes"] if both_know and "classes" not in different_work(a, b) else []), *SHOWN]
    words = {part: (a.texts.get(part) or NOT_IN_LOG, b.texts.get(part) or NOT_IN_LOG) for part in parts}
    return {part: (x, y) for part, (x, y) in words.items() if x != y}
