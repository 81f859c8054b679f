"""A training run: its evaluations, speed and summary (`run.json`, the `end` event), and the state of a checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from vernier.frozen import frozen
from vernier.own_code import OwnCode

from .codec import flattened, omitted
from .profile import ProfileSummary
from .statistics import SampleSummary
from .what_ran import WhatRan

AgreementVerdict = Literal["inside", "above", "below", "no-spread", "not-comparable"]
StepTiming = Literal["host clock", "device events", "synchronised", "windows"]
"""How the times of steps are known. host clock: the device is done when an operation returns. device events: moments
that the device recorded in its queue. synchronised: the host's clock, after waiting for the device at every step.
windows: only the sum of several steps is known, and each of them has their mean."""
Status = Literal["running", "finished", "stopped", "crashed", "failed", "unknown"]


@frozen
class ClassScore:
    """COCO's figures of one class of a detector."""

    category_id: int
    name: str
    AP: float | None = None
    AP50: float | None = None


@frozen
class Part:
    """What an evaluation of a part of the set covers: images, and classes that occur in them."""

    images: int
    of_images: int
    classes: int
    of_classes: int

    def __str__(self) -> str:
        plural = "es" if self.of_classes > 1 else ""
        return f"{self.images:,} of {self.of_images:,} images, {self.classes:,} of {self.of_classes:,} class{plural}"


@frozen
class EvalResult:
    """One evaluation. `figures` are named as the task names them: top1 and top5 in percent, AP and AP50 from 0 to 1.

    A figure is None where the data has nothing to measure it on. `exact` is False when only a part was evaluated.
    """

    samples: int = 0
    averaged: bool = False
    exact: bool = True
    flip_tta: bool = False
    part: Part | None = omitted()
    """None where the whole set was evaluated, and in files of 0.3."""
    detections: int | None = omitted()
    classes: tuple[ClassScore, ...] | None = omitted()
    figures: dict[str, float | None] = flattened()

    def describe_part(self) -> str:
        """What was evaluated, in words; empty for the whole set."""
        return "" if self.exact else f"PART of the set: {self.part}" if self.part else "PART of the validation set"


def own_figures(figures: Mapping[str, float | None]) -> dict[str, float]:
    """The figures that are metrics of users."""
    known = ("top1", "top5", "loss", "eval_accuracy")
    own = {name: value for name, value in figures.items() if name not in known and not name.startswith(("AP", "AR"))}
    return {name: value for name, value in own.items() if value is not None}


@frozen
class EvaluationReport(EvalResult):
    """What `vernier eval` answers: the result, which weights on which data, and how it was computed."""

    weights: str
    data: str
    split: str = "val"
    step: int | None = None
    seconds: float = 0.0
    images_per_s_total: float = 0.0
    compilation: "Compilation | None" = None
    procs: int = 1
    threads: int = 1
    written: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bad_images: tuple[str, ...] = ()
    classes_matched: Literal["name", "order", "subset", "number"] | None = omitted()
    """How the data's classes were matched with the model's outputs: the same names, the same in another order, some of
    the model's names, or by number."""
    prepared: str | None = omitted()
    """How images were prepared for the network, in words."""
    engine: "EngineReport | None" = omitted()
    """Where another engine than PyTorch was chosen: which, its check, and what was measured."""
    ran: WhatRan | None = omitted()


@frozen
class FinetuningRecord:
    """What came out of a fine-tuning: the result that chose its weights, and one on images that chose nothing."""

    held_out: EvalResult | None = None
    test: EvalResult | None = None


@frozen
class Best:
    """The best evaluation so far: its step, and the figure by which it was chosen."""

    step: int
    figures: dict[str, float | None] = flattened()


@frozen
class PublishedFigure:
    """A published mean with its spread over runs, as far as the source states it."""

    mean: float
    sd: float | None = None
    n: int | None = None


@frozen
class Agreement:
    """A result and the published one. `interval`: where 95 % of repetitions fall; None without a published spread."""

    metric: str
    value: float
    published: PublishedFigure
    runs_assumed: int | None = None
    where: str = ""
    difference: float
    interval: tuple[float, float] | None = None
    verdict: AgreementVerdict
    samples: tuple[int | None, int | None] = (None, None)
    differs: tuple[str, ...] = ()


@frozen
class PublishedSpeed:
    """A published rate and the measured one: `times_published` is the measured rate per device over the published one.

    `differs` names what was not the same: devices, batch, arithmetic, data.
    """

    images_per_s_total: float
    devices: int
    device: str
    batch_per_device: int
    precision: str
    latency_ms: float | None = omitted()
    latency_ms_p95: float | None = omitted()
    latency_ms_p99: float | None = omitted()
    where: str = ""
    times_published: float
    differs: tuple[str, ...] = ()


@frozen
class EnergyPerImage:
    """Energy over all devices of one kind that computed. `method` says which counter or integral it comes from."""

    joules_per_image: float
    joules: float
    devices: int
    device_kind: str
    method: str
    mean_power_w: float


@frozen
class TrainingSpeed:
    """Throughput over the steady steps of a run, data loading included, and the spread of its step times."""

    images_per_s_total: float
    images_per_s_per_device: float
    devices: int
    method: str
    images_per_s_total_95: tuple[float | None, float | None] = (None, None)
    compute_only_images_per_s_total: float | None = None
    data_wait_share: float | None = None
    step_times: StepTiming | None = omitted()
    """How single steps were timed; None in older files: host clock. For `windows` the two fields below are None."""
    step_s_median: float | None = None
    step_s: SampleSummary | None = None
    steps_measured: int | None = None
    warmup_steps_excluded: int | None = None
    energy: EnergyPerImage | None = None
    energy_missing: str | None = omitted()


@frozen
class Compilation:
    """What preparing the network for its mode took. Recompilations are graphs compiled after the first call."""

    mode: str = "eager"
    seconds: float = 0.0
    graphs: int = 0
    recompilations: int = 0


@frozen
class MemoryPrediction:
    """The memory that a process was expected to need at its peak, and its parts, in bytes.

    On a device with memory of its own it is the device's, and `process_bytes` and `data_bytes` are 0.
    """

    peak_bytes: int
    weights_bytes: int = 0
    """Weights, what the optimiser keeps, averages."""
    activations_bytes: int = 0
    """Activations and gradients at the peak of a step."""
    data_bytes: int = 0
    """Batches of the loader, cached images."""
    process_bytes: int = 0
    """Python, PyTorch, and freed memory that stays with the process."""
    in_evaluation: bool = False
    """The peak is that of an evaluation."""
    counted_on: str = ""
    """The device of the forward pass that the estimate is made from: meta, which computes nothing, or cpu for a model
    that looks at values. Empty: the layers were known."""


@frozen
class PeakMemory:
    """The largest memory of a process of the run, as measured, and as it was predicted before the first step."""

    measured_bytes: int | None = None
    predicted_bytes: int


@frozen
class BadImageNote:
    """An image that could not be read, and why."""

    path: str
    reason: str


@frozen
class RunSummary:
    """What a run came to. A benchmark's run directory has only `training`, where one training was measured."""

    step: int | None = None
    epoch: float | None = None
    result: EvalResult | None = None
    best: Best | None = None
    reached_target: bool | None = None
    stopped_early: bool | None = omitted()
    """Ended by eval.patience: the last evaluations were not better than an earlier one."""
    agreement: Agreement | None = None
    spent_s: dict[str, float] = field(default_factory=dict)
    skipped_steps: int = 0
    rollbacks: int | None = omitted()
    bad_images: tuple[BadImageNote, ...] = ()
    profile: ProfileSummary | None = None
    compilation: Compilation | None = None
    training: TrainingSpeed | None = None
    memory: PeakMemory | None = omitted()
    ran: WhatRan | None = omitted()
    notes: tuple[str, ...] | None = omitted()
    """What a reader of the result should know about the validation data."""
    published_speeds: tuple[PublishedSpeed, ...] | None = omitted()


@frozen
class RunStatus:
    """run.json. `crashed`: ended without saying so, and can be resumed. `diverged`: failed because of its numbers."""

    status: Status = "unknown"
    updated: str | None = None
    reason: str | None = None
    diverged: bool | None = omitted()
    summary: RunSummary | None = None


@frozen
class Rollbacks:
    """How often a run went back to a checkpoint because it diverged, and the factor on its learning rate since."""

    count: int = 0
    lr_factor: float = 1.0


@frozen
class HeldOut:
    """held_out.json: the images that a training set aside for validation, by name, and the rule that chose them."""

    data: str
    share: float
    rule: str = "the images of each class (boxes: of the set) whose names have the lowest SHA-256; no seed is involved"
    images: int
    train_images: int
    names: tuple[str, ...]


@frozen
class DataContent:
    """What the files of a split contain, as `data.sources.content` sees it; `times` are empty where all was hashed."""

    content: str
    times: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Progress:
    """How far a run is; the training loop updates it. Every random choice is a function of it and the seed.

    With the tensors of the checkpoint this is the whole state of a run. `scaler` is the loss scaler's state.
    """

    step: int = 0
    last_eval_step: int = 0
    best_step: int | None = None
    best_value: float | None = None
    result: EvalResult | None = None
    reached_target: bool = False
    evals_since_best: int | None = omitted()
    """Evaluations after the best one, where there are some; those of the head's own phase are not counted."""
    scaler: dict[str, int | float] | None = None
    rollbacks: Rollbacks | None = omitted()
    data: dict[str, DataContent] | None = omitted()
    """By split; None in checkpoints of earlier versions."""
    code: tuple[OwnCode, ...] | None = omitted()
    """Of the user; None if there is none."""
    spent_s: dict[str, float] = field(default_factory=dict)


@frozen
class CheckpointState:
    """state.json. `config` is the JSON tree of the run's configuration; `category_ids` are a detector's, per class."""

    step: int
    progress: Progress
    classes: tuple[str, ...]
    channels: int
    data_fingerprint: str
    recipe_digest: str = ""
    config: Any
    category_ids: tuple[int, ...] | None = omitted()


@frozen
class ExportCheck:
    """An exported network and PyTorch's on the same validation images. `against` is the runtime that ran the export.

    `max_difference` and `largest_output` are over all outputs. `same_top1` counts images with the same most likely
    class; None for detectors.
    """

    against: str
    images: int
    data: str
    max_difference: float
    largest_output: float
    same_top1: int | None


@frozen
class Int8Loss:
    """What INT8 (or bf16) costs and gains: the same network in fp32 and in it on the same images, none of them
    calibrated on.

    `metric` names the figure; None without labels. `same_top1` is the share of images with the same most likely class;
    None for detectors. Rates are in images per second, measured in turns.
    """

    calibration_images: int
    images: int
    metric: str | None = None
    fp32: float | None = None
    int8: float | None = None
    same_top1: float | None = None
    fp32_images_per_s: float
    int8_images_per_s: float

    def figures(self) -> str:
        """The figure in INT8 and in fp32, in words; empty without labels. top1 is in per cent, AP from 0 to 1."""
        if self.metric is None or self.fp32 is None or self.int8 is None:
            return ""
        change = self.int8 - self.fp32
        if self.metric == "top1":
            return f"top-1 {self.int8:.2f} % against {self.fp32:.2f} % ({change:+.2f} points)"
        return f"{self.metric} {self.int8:.4f} against {self.fp32:.4f} ({100 * change:+.2f} points)"

    def line(self, name: str) -> str:
        """The loss beside the speed, in words."""
        calibrated = f"; calibrated on {self.calibration_images} others" if self.calibration_images else ""
        figures = f"{self.figures()}, " if self.figures() else ""
        same = "" if self.same_top1 is None else f"the same class for {100 * self.same_top1:.1f} %, "
        return (
            f"{name} against fp32: {figures}{same}{self.int8_images_per_s:.1f} against {self.fp32_images_per_s:.1f} "
            f"img/s ({self.int8_images_per_s / self.fp32_images_per_s:.2f} x), on {self.images} images"
            f"{calibrated}"
        )


@frozen
class EngineReport:
    """Which engine runs a network, and why it may: its check against `reference` (None for PyTorch itself).

    `rates` are images per second by engine, measured in turns on `batch` images; `problems` say why an installed
    engine is not among them. `same_boxes` counts images for which a detector's best object is the same.
    """

    engine: str
    requested: str
    reference: str = "PyTorch"
    check: ExportCheck | None = None
    same_boxes: int | None = omitted()
    batch: int | None = omitted()
    rates: dict[str, float] | None = omitted()
    problems: tuple[str, ...] = ()
    int8: Int8Loss | None = omitted()
    bf16: Int8Loss | None = omitted()

    def lines(self) -> tuple[str, ...]:
        """For people: which engine, how it was checked, and the rates that decided."""
        rates = ", ".join(f"{name} {rate:.1f}" for name, rate in (self.rates or {}).items())
        why = f": the fastest of those measured in turns, img/s at batch {self.batch}: {rates}" if rates else ""
        lines = [f"engine: {self.engine}{why if self.requested == 'auto' else ''}"]
        if self.check is not None:
            images = self.check.images
            same = f"the same class for {self.check.same_top1} of {images}, "
            boxes = "" if self.same_boxes is None else f"the same best object for {self.same_boxes} of {images}, "
            lines.append(
                f"checked in fp32 against {self.reference} on {images} of these images: "
                f"{boxes if self.check.same_top1 is None else same}largest difference {self.check.max_difference:.2g} "
                f"of outputs up to {self.check.largest_output:.3g}"
            )
        losses = [loss.line(name) for name, loss in (("INT8", self.int8), ("bf16", self.bf16)) if loss]
        return (*lines, *losses, *self.problems)


@frozen
class ModelFile:
    """What an exported file says about itself, one string per field in its metadata: enough to use it without the run.

    `settings` is the JSON tree of a configuration with the network and the preparation of images. `pixels`: a network
    that takes uint8 and normalises it itself. `figures` are those of `result`, for programs that read no more.
    """

    model: str
    network: str = ""
    recipe: str = ""
    vernier: str = ""
    ran: str = ""
    input: str = ""
    data_fingerprint: str = ""
    settings: Any = None
    classes: tuple[str, ...]
    channels: int = 3
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    eval_px: int
    eval_short_side_px: int
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    pixels: bool = False
    step: int | None = None
    averaged: bool = False
    result: EvalResult | None = None
    result_step: int | None = None
    figures: dict[str, float | None] = flattened()
