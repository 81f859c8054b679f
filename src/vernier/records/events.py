"""The events of a run, one per line of events.jsonl: start, step, epoch, eval, checkpoint, divergence,
fingerprint, warning, end."""

from collections.abc import Sequence
from typing import Any, ClassVar, get_args

from vernier.frozen import frozen
from vernier.own_code import OwnCode

from .codec import DamagedRecord, decode, encode, omitted
from .run import EvalResult, MemoryPrediction, RunSummary, StepTiming
from .what_ran import WhatRan


@frozen
class ProcessInfo:
    """One process of a run: where it runs and with what. `uuid` is that of its device, where it is known."""

    rank: int
    host: str
    device: str
    cores: tuple[int, ...] = ()
    threads: int = 1
    pid: int = 0
    launcher: str = "single"
    uuid: str | None = omitted()

    def describe(self) -> str:
        """One line for people."""
        return f"rank {self.rank}: {self.host}, {self.device}, cores {','.join(map(str, self.cores))} ({self.launcher})"


@frozen
class Loading:
    """How training images are decoded and resized, and whether decoded ones are cached."""

    backend: str = "native"
    source: str = ""
    resize: str = ""
    scaled_decode: bool = False
    cache: str = "off"
    cache_needs_bytes: int | None = omitted()
    cache_limit_bytes: int | None = omitted()


@frozen
class StartEvent:
    """A session of a run begins: what is trained, where, and the schedule that follows."""

    kind: ClassVar[str] = "start"
    run: str = ""
    recipe: str = ""
    model: str = ""
    data: str = ""
    seed: int = 0
    parameters: int = 0
    classes: int = 0
    train_samples: int = 0
    val_samples: int = 0
    device: str = ""
    threads: int = 1
    precision: str = ""
    mode: str = ""
    workers: int = 0
    loading: Loading | None = None
    global_batch: int = 0
    process_batch: int = 0
    accumulation: int = 1
    world: int = 1
    lr: float = 0.0
    end_lr: float = 0.0
    epochs: float = 0.0
    steps_per_epoch: int = 1
    total_steps: int = 0
    stop_step: int = 0
    log_every_steps: int = 0
    metric: str = ""
    resumed_from: int | None = None
    processes: tuple[ProcessInfo, ...] = ()
    restarts: int = 0
    notes: tuple[str, ...] = ()
    lr_rule: str = ""
    virtual_shards: int | None = omitted()
    memory: MemoryPrediction | None = omitted()
    ran: WhatRan | None = omitted()
    code: tuple[OwnCode, ...] | None = omitted()
    guarantees: tuple[str, ...] | None = omitted()
    time: str | None = omitted()


@frozen
class StepEvent:
    """A window of steps that ends at `step`: their mean loss, and the wall time and data wait of each one in seconds.

    `samples` are summed over the window and all processes; `t_s` is the monotonic clock at its end, as in telemetry.
    `top1` and `top5`, where they are counted, are percentages of the images trained on.
    `step_times` says how `step_s` is known; for `windows` its values are the mean, and only their sum was measured.
    `compilations`: so many graphs were compiled in these steps, in `compile_s` seconds; no speed is computed from them.
    """

    kind: ClassVar[str] = "step"
    step: int
    epoch: float
    loss: float
    lr: float
    samples: int
    step_s: tuple[float, ...]
    wait_s: tuple[float, ...]
    step_times: StepTiming = "host clock"
    top1: float | None = omitted()
    top5: float | None = omitted()
    t_s: float | None = omitted()
    loss_scale: float | None = omitted()
    skipped_steps: int | None = omitted()
    own_s_by_rank: tuple[float, ...] | None = omitted()
    compilations: int | None = omitted()
    compile_s: float | None = omitted()
    time: str | None = omitted()

    def __post_init__(self) -> None:
        if not self.step_s or len(self.step_s) != len(self.wait_s):
            raise ValueError(f"{len(self.step_s)} step times and {len(self.wait_s)} data waits")
        if min(*self.step_s, *self.wait_s) < 0:
            raise ValueError("a negative time")


@frozen
class EpochEvent:
    """So many epochs are complete: what the steps of the last one did, evaluations and checkpoints not included.

    `seconds` and `images_per_s_total` are of its steps, `loss`, `top1` and `top5` (percent) means over its images.
    """

    kind: ClassVar[str] = "epoch"
    step: int
    epoch: int
    samples: int | None = omitted()
    seconds: float | None = omitted()
    images_per_s_total: float | None = omitted()
    loss: float | None = omitted()
    top1: float | None = omitted()
    top5: float | None = omitted()
    time: str | None = omitted()


@frozen
class EvalEvent(EvalResult):
    """An evaluation: when, how long it took, and its result.

    `batch_s` are the seconds of each batch of the first process, `wait_s` what of them was waiting for images.
    """

    kind: ClassVar[str] = "eval"
    step: int
    epoch: float
    seconds: float = 0.0
    best: bool = False
    batch_s: tuple[float, ...] | None = omitted()
    wait_s: tuple[float, ...] | None = omitted()
    time: str | None = omitted()


@frozen
class CheckpointEvent:
    """A checkpoint was committed. `path` is the name of its directory.

    `seconds` from the copy of its tensors to the end of writing; `stall_s` of them training waited for.
    """

    kind: ClassVar[str] = "checkpoint"
    step: int
    path: str
    seconds: float = 0.0
    stall_s: float | None = omitted()
    time: str | None = omitted()


@frozen
class WarningEvent:
    """Something a person should know: a bad image, a slow process, a failure."""

    kind: ClassVar[str] = "warning"
    step: int
    message: str
    time: str | None = omitted()


@frozen
class DivergenceEvent:
    """A number stopped being finite at a step; the run ended, or was rolled back to the checkpoint of `resumed_from`.

    `ranks` are the processes in which it was not finite, `samples` the images of the step in each of them, by index in
    the training set. `lr_factor` multiplies the schedule's learning rate from there on.
    """

    kind: ClassVar[str] = "divergence"
    step: int
    quantity: str
    value: str
    lr: float
    ranks: tuple[int, ...] = ()
    samples: tuple[tuple[int, ...], ...] = ()
    resumed_from: int | None = None
    lr_factor: float | None = omitted()
    time: str | None = omitted()


@frozen
class FingerprintEvent:
    """Checksums of the bits of what training computed up to a step, 16 hexadecimal digits each.

    `gradients` are those of the step itself; a checkpoint between two of them has none. `statistics` are the buffers,
    such as those of batch norms, `shards` the gradients of each virtual shard. `tensors` has the lower 32 bits for each
    gradient, if there are, and each weight, little-endian, as base64. `seconds` is the device's time for them.
    """

    kind: ClassVar[str] = "fingerprint"
    step: int
    weights: str
    statistics: str
    optimizer: str
    gradients: str | None = omitted()
    shards: tuple[str, ...] | None = omitted()
    tensors: str = ""
    seconds: float = 0.0
    time: str | None = omitted()


@frozen
class EndEvent(RunSummary):
    """A session of a run has ended, with the summary so far."""

    kind: ClassVar[str] = "end"
    status: str
    time: str | None = omitted()


Event = (
    StartEvent
    | StepEvent
    | EpochEvent
    | EvalEvent
    | CheckpointEvent
    | DivergenceEvent
    | FingerprintEvent
    | WarningEvent
    | EndEvent
)
_KINDS: dict[str, type[Event]] = {cls.kind: cls for cls in get_args(Event)}
EVENT_KINDS = tuple(_KINDS)


def encode_event(event: Event) -> dict[str, Any]:
    """The event as one JSON object, its kind first."""
    return {"kind": event.kind, **encode(event)}


def decode_event(tree: Any) -> Event | None:
    """An event from its JSON object; None for a kind this version does not know. Raises DamagedRecord."""
    kind = tree.get("kind") if isinstance(tree, dict) else None
    if not isinstance(kind, str):
        raise DamagedRecord("an event has a kind")
    cls = _KINDS.get(kind)
    return None if cls is None else decode(cls, tree)


def sessions(events: Sequence[Event]) -> list[list[StepEvent]]:
    """The step events of each session of a run, in order: a session begins at a start event, and may have no steps."""
    parts: list[list[StepEvent]] = []
    for event in events:
        if isinstance(event, StartEvent) or (isinstance(event, StepEvent) and not parts):
            parts.append([])
        if isinstance(event, StepEvent):
            parts[-1].append(event)
    return parts
