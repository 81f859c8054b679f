"""What a log says about the work that it measured, so that only the same work is compared.

Vernier's own runs and benchmarks have a record of what ran. Other systems' logs have some of it under names of their
own; what none of them says is missing here, and people read that it is not in the log.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from vernier.frozen import frozen
from vernier.records.what_ran import WhatRan

from .model import RunLog, Tree, whole

NOT_IN_LOG = "not in the log"
SAME_WORK = ("kind", "network", "image size", "classes", "batch", "global batch")
"""Parts that must agree. Everything else may differ, and is shown."""
SHOWN = ("devices", "data", "precision", "mode", "device", "torch", "Vernier")
_VERBS = {"train": "trains", "infer": "infers", "eval": "evaluates"}
# ResNet-50 with 10 instead of 1,000 classes has 8 % fewer parameters and 0.05 % fewer operations: the same work.
_HEAD_MACS, _HEAD_PARAMETERS = 0.01, 0.1
"""Another number of classes is other work if it changes operations or parameters by more than this share."""
_MLPERF_NETWORKS = {"resnet": "resnet50"}  # MLPerf's name of its benchmark -> Vernier's name of the model


@frozen
class Work:
    """What was measured: values by part, to be compared, and words by part, to be read."""

    values: dict[str, Any]
    texts: dict[str, str]
    ran: WhatRan | None = None

    def describe(self, parts: Sequence[str]) -> str:
        """The work in words, as far as these parts are concerned: `trains resnet50 at 224 px, batch 32`."""
        values = self.values
        size = f" at {self.texts['image size']}" if "image size" in values else ""
        main = f"{_VERBS[values.get('kind', 'train')]} {values.get('network', f'a network that is {NOT_IN_LOG}')}{size}"
        return ", ".join([main, *(self.texts[p] for p in ("classes", "batch", "global batch") if p in parts)])


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


def _of_settings(kind: str, network: Any, numbers: dict[str, tuple[int | None, str]], texts: Tree) -> Work:
    """`numbers` are counts with the words for them; parts without a value are left out."""
    known = {part: (value, text.format(value)) for part, (value, text) in numbers.items() if value}
    values = {
        "kind": kind,
        **({"network": str(network)} if network else {}),
        **{p: v for p, (v, _) in known.items()},
    }
    words = {"kind": kind, "network": str(network or NOT_IN_LOG), **{p: t for p, (_, t) in known.items()}}
    return Work(values=values, texts={**words, **{part: str(text) for part, text in texts.items() if text}})


def _of_dllogger(run: RunLog) -> Work:
    s = run.settings
    mixed = "AMP" if s.get("amp") else "fp16" if s.get("fp16") else "not mixed"
    precision = s.get("precision") or (mixed if "amp" in s or "fp16" in s else "")
    work = _of_settings(
        run.kind,
        next((name for key in ("arch", "model") if isinstance(name := s.get(key), str)), None),
        {
            "classes": (whole(s.get("num_classes")), "{:,} classes"),
            "batch": (whole(s.get("batch_size")), "batch {:,}"),  # of one device in NVIDIA's scripts
        },
        {"devices": _devices(run.devices), "data": s.get("data"), "precision": precision},
    )
    if size := whole(s.get("image_size")):
        work = replace(work, values={**work.values, "image size": (None, size)})  # (first, last), as in `_recorded`
        work = replace(work, texts={**work.texts, "image size": f"{size} px"})
    return work


def _of_mllog(run: RunLog) -> Work:
    s = run.settings
    benchmark = s.get("submission_benchmark")
    images = f"{run.train_samples:,} training images" if run.train_samples else ""
    return _of_settings(
        run.kind,
        _MLPERF_NETWORKS.get(str(benchmark), benchmark),
        {"global batch": (whole(s.get("global_batch_size")), "global batch {:,}")},
        {"devices": _devices(run.devices), "data": images, "device": s.get("submission_platform")},
    )


_FOREIGN: dict[str, Callable[[RunLog], Work]] = {
    "dllogger": _of_dllogger,
    "raport": _of_dllogger,
    "console": _of_dllogger,
    "mllog": _of_mllog,
}


def _devices(count: int | None) -> str:
    return f"devices: {NOT_IN_LOG}" if count is None else f"{count:,} device{'' if count == 1 else 's'}"


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
