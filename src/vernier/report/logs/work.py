"""What a log says about what ran: the work that it measured. `lab.logs.work` compares the work of two logs.

Vernier's own runs and benchmarks have a record of what ran. Other systems' logs have some of it under names of their
own; what none of them says is missing here, and people read that it is not in the log.
"""

from collections.abc import Callable
from typing import Any

from vernier.frozen import frozen
from vernier.records.what_ran import WhatRan
from vernier.wording import plural

from .model import RunLog, Tree, whole

NOT_IN_LOG = "not in the log"
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
    size = whole(s.get("image_size"))
    return _of_settings(
        run,
        next((name for key in ("arch", "model") if isinstance(name := s.get(key), str)), None),
        {
            "classes": (whole(s.get("num_classes")), "{:,} classes"),
            "batch": (whole(s.get("batch_size")), "batch {:,}"),  # of one device in NVIDIA's scripts
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
    "console": _of_dllogger,
    "mllog": _of_mllog,
}
