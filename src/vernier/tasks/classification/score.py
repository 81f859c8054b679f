"""Score of a classifier: exact top-1, top-5 and loss, which classes it confuses, and its most confident mistakes."""

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch.nn import functional as F

from vernier.data.decoding.decode import BadImage, encode_thumbnail
from vernier.data.loading.targets import ClassTargets
from vernier.data.sources import Source
from vernier.records.codec import encode
from vernier.records.predictions import Mistake, Mistakes
from vernier.records.run import EvalResult

MISTAKES, THUMBNAIL_PX, PAIRS = 24, 96, 1000


@dataclass(frozen=True, order=True)
class _Miss:
    """A sample that was taken for another class; the most confident sorts first."""

    doubt: float
    """1 - the score of the class it was taken for."""
    sample: int
    truth: int
    taken_for: int
    truth_score: float


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

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "source": None}  # the data set is not sent to other processes

    def add(self, logits: torch.Tensor, targets: ClassTargets) -> None:
        logits, labels = logits.float(), targets.labels
        top = logits.topk(min(5, logits.shape[1]), dim=1).indices
        hits = top == labels[:, None]
        self.samples += len(labels)
        self.correct1 += int(hits[:, 0].sum())
        self.correct5 += int(hits.sum())
        self.batch_losses.append(float(F.cross_entropy(logits, labels, reduction="none").double().sum()))
        self.confusion.update(zip(labels.tolist(), top[:, 0].tolist(), strict=True))
        self._add_misses(logits, top[:, 0], targets)

    def _add_misses(self, logits: torch.Tensor, taken_for: torch.Tensor, targets: ClassTargets) -> None:
        wrong = (taken_for != targets.labels).nonzero()[:, 0]
        scores = logits[wrong].double().softmax(1)
        taken, truth = taken_for[wrong], targets.labels[wrong]
        of_taken, of_truth = (scores.gather(1, kind[:, None])[:, 0].tolist() for kind in (taken, truth))
        samples = targets.samples[wrong.cpu()].tolist()
        rows = zip(of_taken, samples, truth.tolist(), taken.tolist(), of_truth, strict=True)
        self._keep_worst(_Miss(1 - score, *rest) for score, *rest in rows if math.isfinite(score))

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
        n = max(self.samples, 1)
        figures: dict[str, float | None] = {
            "top1": 100 * self.correct1 / n,
            "top5": 100 * self.correct5 / n,
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
