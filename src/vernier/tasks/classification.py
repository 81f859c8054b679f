"""Image classification: the loss on smoothed, possibly mixed labels, the prediction, and the score.

The score has exact top-1, top-5 and loss, which classes are confused, and the most confident mistakes. Every batch
leaves six float32 numbers per sample on the device, not its logits. They are read once, at the end; sums are in
float64, on the host.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from vernier.config import Loss, Machine, Recipe
from vernier.config.checks import check_loader
from vernier.config.settings import BUILT_IN_LOSSES, LOADERS
from vernier.data.augment.mixing import MixedLabels, mix_batch
from vernier.data.augment.normalize import describe_normalisation
from vernier.data.decoding.decode import BadImage, encode_thumbnail
from vernier.data.loading.readers import EvalReader, TrainReader
from vernier.data.loading.targets import ClassTargets
from vernier.data.sources import Source, open_split
from vernier.data.sources.views import with_channels
from vernier.plugins import load_plugin, plugin_names
from vernier.records.codec import encode
from vernier.records.predictions import Mistake, Mistakes, ScoredClass
from vernier.records.run import EvalResult

from .base import BatchLoss, CountingReader, Forward, MicroStep, TrainingReader
from .own import OwnLoss, OwnMetrics, deciding_metric


class Classify:
    """One class per image."""

    name = "classify"

    def __init__(self, recipe: Recipe, shard_cache_gb: float | None = None) -> None:
        self._recipe, self._shard_cache_gb = recipe, shard_cache_gb
        self.metric = deciding_metric(recipe)
        self._own_loss: OwnLoss | None = None

    def open(self, split: str, *, whole: bool = False) -> Source:
        data = self._recipe.data
        source = open_split(
            data.source,
            split,
            val_share=data.val_share,
            whole=whole,
            hold_out=data.hold_out,
            shard_cache_gb=self._shard_cache_gb,
            exif=data.exif == "apply",
        )
        return with_channels(source, len(data.mean))

    def describe_preparation(self) -> str:
        data = self._recipe.data
        return (
            f"short side {data.eval_short_side_px}, centre {data.eval_px}, {data.interpolation}, "
            f"{describe_normalisation(data)}"
        )

    def outputs(self, classes: int) -> int:
        return classes + self._recipe.model.unused_outputs

    def train_reader(self, source: Source, cached: Source, machine: Machine) -> TrainingReader:
        recipe, backend = self._recipe, machine.backend
        # Here, where training begins: a model can be used without the code of its loss.
        if recipe.loss.kind not in BUILT_IN_LOSSES:
            self._own_loss = OwnLoss(recipe.loss.kind)
        OwnMetrics(recipe.eval.metrics)  # refused now, not after the first epoch
        check_loader(machine, recipe, detector=False)
        if backend in plugin_names(LOADERS):
            reader: TrainingReader = load_plugin(LOADERS, "machine.backend", backend, "native")(source, recipe, machine)
            return reader
        images = cached if backend in ("auto", "native") else source  # decoders of windows need encoded images
        return TrainReader(images, recipe.data, recipe.augment, recipe.seed, backend)

    def eval_reader(self, source: Source) -> CountingReader:
        return EvalReader(source, self._recipe.data)

    def loss(
        self,
        forward: Forward,
        images: Tensor,
        targets: Tensor,
        at: MicroStep,
        *,
        count_correct: bool = False,
    ) -> BatchLoss:
        recipe = self._recipe
        # Mixed on the device after normalization, from the step's own random stream: a resumed run repeats it.
        images, mixed = mix_batch(
            images, targets, recipe.augment, seed=recipe.seed, step=at.step, micro=at.micro, rank=at.rank
        )
        logits = forward(images)
        correct = _correct_predictions(logits, targets, mixed) if count_correct else None
        return BatchLoss(_training_loss(logits, targets, recipe.loss, mixed, self._own_loss), correct)

    def predict(self, forward: Forward, images: Tensor) -> Tensor:
        """Compute logits; with test-time augmentation their mean over the image and its mirror image."""
        logits: Tensor = forward(images).float()
        if self._recipe.eval.flip_tta:
            logits = (logits + forward(images.flip(3)).float()) / 2
        return logits

    def name_predictions(self, predicted: Tensor, targets: Any, classes: tuple[str, ...]) -> list[list[ScoredClass]]:
        """Give the five most likely classes; unused outputs are left out."""
        # Unused outputs are cut off before the softmax, so that the scores of all real classes add up to 1.
        best = predicted[:, : len(classes)].softmax(1).topk(min(5, len(classes)), dim=1)
        scores, kinds = torch.stack([best.values, best.indices.float()]).tolist()  # one transfer from the device
        return [
            [ScoredClass(class_name=classes[int(c)], score=s) for s, c in zip(*image, strict=True)]
            for image in zip(scores, kinds, strict=True)
        ]

    def score(self, source: Source) -> "_ClassificationScore":
        return _ClassificationScore(source, OwnMetrics(self._recipe.eval.metrics))

    def target(self) -> float | None:
        return self._recipe.eval.target_top1

    def category_ids(self, source: Source) -> None:
        return None


def _training_loss(
    logits: Tensor, labels: Tensor, loss: Loss, mixed: MixedLabels | None = None, own: OwnLoss | None = None
) -> Tensor:
    """Compute the mean loss over the batch, and over the classes with `bce`."""
    logits = logits.float()
    if loss.kind == "bce":
        return F.binary_cross_entropy_with_logits(logits, _binary_targets(logits, labels, loss, mixed))
    of_labels = own or partial(_cross_entropy, loss=loss)
    value = of_labels(logits, labels)
    if mixed is None:
        return value
    # Cross-entropy is linear in its target: two hard labels, weighted, equal one mixed target [N, K].
    return mixed.weight * value + mixed.second_weight * of_labels(logits, mixed.second)


def _correct_predictions(logits: Tensor, labels: Tensor, mixed: MixedLabels | None = None) -> Tensor:
    """Count the images whose class is the most likely one, and among the five most likely: [2], where the logits are.

    An image mixed from two counts for each of its labels by that label's share, as in the code of the MixUp paper.
    """
    # [N, 5] class numbers, best first; each label occurs at most once in its row.
    best = logits.detach().topk(min(5, logits.shape[1]), dim=1).indices

    def correct(labels: Tensor) -> Tensor:
        right = (best == labels[:, None]).float()
        return torch.stack([right[:, 0].sum(), right.sum()])

    if mixed is None:
        return correct(labels)
    return mixed.weight * correct(labels) + mixed.second_weight * correct(mixed.second)


def _cross_entropy(logits: Tensor, labels: Tensor, loss: Loss) -> Tensor:
    """Cross-entropy with smoothing over all K classes; over the other K - 1 it is the same with a larger mass."""
    classes, mass = logits.shape[1], loss.label_smoothing
    if loss.smoothing_over == "others" and classes > 1:
        # PyTorch gives each of the K classes mass / K, the true one included. Others get e / (K - 1) if mass is
        # e K / (K - 1), and the true class then keeps 1 - e.
        mass = mass * classes / (classes - 1)
    return F.cross_entropy(logits, labels, label_smoothing=mass)


def _binary_targets(logits: Tensor, labels: Tensor, loss: Loss, mixed: MixedLabels | None) -> Tensor:
    """Make targets [samples, classes] in 0..1: smoothed one-hot labels, mixed, then thresholded if there is a
    threshold."""
    classes = logits.shape[1]
    off = loss.label_smoothing / (classes if loss.smoothing_over == "all" else max(1, classes - 1))
    on = 1 - loss.label_smoothing + (off if loss.smoothing_over == "all" else 0.0)

    def one_hot(labels: Tensor) -> Tensor:
        return torch.full_like(logits, off).scatter_(1, labels[:, None], on)

    targets = one_hot(labels)
    if mixed is not None:
        targets = torch.lerp(one_hot(mixed.second), targets, mixed.weight)
    return targets if loss.bce_threshold is None else (targets > loss.bce_threshold).to(logits.dtype)


# Limits of the document, which must stay small for any number of samples and classes.
MISTAKES, THUMBNAIL_PX, PAIRS = 24, 96, 1000


@dataclass(frozen=True, order=True)
class _Miss:
    """A sample that was taken for another class; the most confident sorts first."""

    # The order of fields is the sorting order: ties go by sample number, not by the order of batches.
    doubt: float
    """1 - the score of the class it was taken for."""
    sample: int
    truth: int
    taken_for: int
    truth_score: float


class _Summary(NamedTuple):
    """What the score needs to know about the samples of a batch: [N] float32 each."""

    taken_for: Tensor
    """The class with the highest logit; a float32 holds every integer up to 2^24."""
    in_top5: Tensor
    loss: Tensor
    taken_logit: Tensor
    truth_logit: Tensor
    other_logits: Tensor
    """logsumexp of all logits but the highest: the doubt is precise where the score rounds to 1."""


def _summarise(logits: Tensor, labels: Tensor) -> Tensor:
    """The `_Summary` of a batch as one tensor, computed where the logits are."""
    best = logits.topk(min(5, logits.shape[1]), dim=1)
    taken_for = best.indices[:, :1]
    summary = _Summary(
        taken_for=taken_for[:, 0],
        in_top5=(best.indices == labels[:, None]).sum(1),
        loss=F.cross_entropy(logits, labels, reduction="none"),
        taken_logit=best.values[:, 0],
        truth_logit=logits.gather(1, labels[:, None])[:, 0],
        # -inf removes the highest logit from the sum.
        other_logits=logits.scatter(1, taken_for, -math.inf).logsumexp(1),
    )
    return torch.stack([column.float() for column in summary])


@dataclass
class _ClassificationScore:
    """Counts over evaluated samples. Batch losses are summed exactly, so the order of batches does not matter."""

    source: Source | None = None
    metrics: OwnMetrics | None = None
    samples: int = 0
    correct1: int = 0
    correct5: int = 0
    batch_losses: list[float] = field(default_factory=list)
    confusion: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Samples by (true class, predicted class)."""
    misses: list[_Miss] = field(default_factory=list)
    _uncollected: list[tuple[Tensor, ClassTargets]] = field(default_factory=list)
    """The batches that are still on the device: a summary [6, samples] and the targets, on the host."""
    _logits: list[tuple[ClassTargets, Tensor]] = field(default_factory=list)
    """Those of all batches, on the host, if a user's metric needs them."""

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "source": None, "metrics": None}  # other processes have the data set and the code

    def add(self, logits: Tensor, targets: ClassTargets) -> None:
        labels = targets.labels.to(logits.device, non_blocking=True)
        self._uncollected.append((_summarise(logits.float(), labels), targets))
        self.samples += len(labels)
        if self.metrics and self.source is not None:
            self._logits.append((targets, logits[:, : len(self.source.classes)].float().cpu()))

    def collect(self) -> None:
        """Read every batch so far from the device, in one transfer, and count it."""
        if not self._uncollected:
            return
        # One read for all batches: on an asynchronous device, each read waits for all work that is queued.
        summaries, batches = zip(*self._uncollected, strict=True)
        self._uncollected = []
        parts = torch.split(torch.cat(summaries, dim=1).cpu(), [len(targets) for targets in batches], dim=1)
        for part, targets in zip(parts, batches, strict=True):
            self._count(_Summary(*part), targets)

    def _count(self, batch: "_Summary", targets: ClassTargets) -> None:
        labels, taken_for = targets.labels, batch.taken_for.long()
        self.correct1 += int((taken_for == labels).sum())
        self.correct5 += int(batch.in_top5.sum())
        self.batch_losses.append(float(batch.loss.double().sum()))
        self.confusion.update(zip(labels.tolist(), taken_for.tolist(), strict=True))
        # topk ranks NaN first, so a diverged model would fill the list of mistakes with samples without a score.
        wrong = (taken_for != labels) & batch.taken_logit.isfinite()
        taken, truth, others = (t[wrong].double() for t in (batch.taken_logit, batch.truth_logit, batch.other_logits))
        # With t the highest logit and o the logsumexp of the others, 1 - softmax is e^o / (e^t + e^o) = sigmoid(o - t),
        # which does not cancel as 1 - p does for p near 1. logaddexp(t, o) is the logsumexp of all logits.
        doubts = (others - taken).sigmoid()
        truth_scores = (truth - torch.logaddexp(taken, others)).exp()
        columns = (doubts, targets.samples[wrong], labels[wrong], taken_for[wrong], truth_scores)
        self._keep_worst(_Miss(*row) for row in zip(*(column.tolist() for column in columns), strict=True))

    def _keep_worst(self, misses: Iterable[_Miss]) -> None:
        self.misses = sorted([*self.misses, *misses])[:MISTAKES]

    def merge(self, others: Iterable["_ClassificationScore"]) -> None:
        for other in others:
            self.samples += other.samples
            self.correct1 += other.correct1
            self.correct5 += other.correct5
            self.batch_losses += other.batch_losses
            self.confusion += other.confusion
            self._keep_worst(other.misses)
            self._logits += other._logits

    def result(self) -> EvalResult:
        """top1 and top5 in percent, and the mean loss."""
        assert not self._uncollected, "collect() comes first"
        n = max(self.samples, 1)
        figures: dict[str, float | None] = {
            "top1": 100 * self.correct1 / n,
            "top5": 100 * self.correct5 / n,
            # fsum rounds once, so the order in which processes add their batches does not change a bit.
            "loss": math.fsum(self.batch_losses) / n,
        }
        if self.metrics and self._logits:
            order = torch.cat([targets.samples for targets, _ in self._logits]).argsort()
            logits = torch.cat([logits for _, logits in self._logits])[order]
            labels = torch.cat([targets.labels for targets, _ in self._logits])[order]
            figures |= self.metrics(logits, labels)
        return EvalResult(samples=self.samples, figures=figures)

    def documents(self) -> Mapping[str, object]:
        """`mistakes`: see `records.predictions.Mistakes`."""
        if self.source is None:
            return {}
        classes = self.source.classes
        totals = Counter[int]()
        for (truth, _), count in self.confusion.items():
            totals[truth] += count
        wrong = [(t, p, n) for (t, p), n in self.confusion.items() if t != p]
        document = Mistakes(
            classes=tuple(classes),
            samples=tuple(totals[c] for c in range(len(classes))),
            correct=tuple(self.confusion[c, c] for c in range(len(classes))),
            confused=tuple(sorted(wrong, key=lambda e: (-e[2], e[0], e[1]))[:PAIRS]),
            mistakes=tuple(_describe(miss, self.source) for miss in self.misses),
        )
        return {"mistakes": encode(document)}


def _describe(miss: _Miss, source: Source) -> Mistake:
    thumbnail = None
    # A mistake is listed even if its image cannot be read any more.
    with contextlib.suppress(BadImage, OSError):
        thumbnail = encode_thumbnail(source.image(miss.sample), THUMBNAIL_PX)
    return Mistake(
        sample=miss.sample,
        image=source.describe(miss.sample),
        truth=miss.truth,
        taken_for=miss.taken_for,
        score=1 - miss.doubt,
        truth_score=miss.truth_score,
        jpeg=thumbnail,
    )
