"""Score of a classifier: exact top-1, top-5 and loss, which classes it confuses, and its most confident mistakes.

Every batch leaves six float32 numbers per sample on the device, not its logits. They are read once, at the end; sums
are in float64, on the host.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch.nn import functional as F

from vernier.data.decoding.decode import BadImage, encode_thumbnail
from vernier.data.loading.targets import ClassTargets
from vernier.data.sources import Source
from vernier.records.codec import encode
from vernier.records.predictions import Mistake, Mistakes
from vernier.records.run import EvalResult

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

    taken_for: torch.Tensor
    """The class with the highest logit; a float32 holds every integer up to 2^24."""
    in_top5: torch.Tensor
    loss: torch.Tensor
    taken_logit: torch.Tensor
    truth_logit: torch.Tensor
    other_logits: torch.Tensor
    """logsumexp of all logits but the highest: the doubt is precise where the score rounds to 1."""


def _summarise(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
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
class ClassificationScore:
    """Counts over evaluated samples. Batch losses are summed exactly, so the order of batches does not matter."""

    source: Source | None = None
    samples: int = 0
    correct1: int = 0
    correct5: int = 0
    batch_losses: list[float] = field(default_factory=list)
    confusion: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Samples by (true class, predicted class)."""
    misses: list[_Miss] = field(default_factory=list)
    _uncollected: list[tuple[torch.Tensor, ClassTargets]] = field(default_factory=list)
    """The batches that are still on the device: a summary [6, samples] and the targets, on the host."""

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "source": None}  # the data set is not sent to other processes

    def add(self, logits: torch.Tensor, targets: ClassTargets) -> None:
        labels = targets.labels.to(logits.device, non_blocking=True)
        self._uncollected.append((_summarise(logits.float(), labels), targets))
        self.samples += len(labels)

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

    def merge(self, others: Iterable["ClassificationScore"]) -> None:
        for other in others:
            self.samples += other.samples
            self.correct1 += other.correct1
            self.correct5 += other.correct5
            self.batch_losses += other.batch_losses
            self.confusion += other.confusion
            self._keep_worst(other.misses)

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
