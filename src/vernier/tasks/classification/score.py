"""What a classifier got right and wrong: exact top-1, top-5 and loss, which classes it confuses, its most confident mistakes."""

import contextlib
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional as F

from vernier.data.decoding.decode import BadImage, encode_thumbnail
from vernier.data.loading.targets import ClassTargets
from vernier.data.sources import Source

MISTAKES, THUMBNAIL_PX, PAIRS = 24, 96, 1000


@dataclass(frozen=True, order=True)
class Mistake:
    """A sample that was taken for another class; the most confident sorts first."""

    doubt: float
    """1 - the score of the class it was taken for."""
    sample: int
    truth: int
    taken_for: int
    truth_score: float


@dataclass
class ClassScore:
    """Counts over evaluated samples. Batches are kept apart and summed exactly, so the order they come in cannot matter."""

    source: Source | None = None
    samples: int = 0
    correct1: int = 0
    correct5: int = 0
    batch_losses: list[float] = field(default_factory=list)
    seen: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How often a class (first) was taken for a class (second)."""
    mistakes: list[Mistake] = field(default_factory=list)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "source": None}  # the data set does not travel between processes

    def add(self, logits: torch.Tensor, targets: ClassTargets) -> None:
        logits, labels = logits.float(), targets.labels
        top = logits.topk(min(5, logits.shape[1]), dim=1).indices
        hits = top == labels[:, None]
        self.samples += len(labels)
        self.correct1 += int(hits[:, 0].sum())
        self.correct5 += int(hits.sum())
        self.batch_losses.append(float(F.cross_entropy(logits, labels, reduction="none").double().sum()))
        self.seen.update(zip(labels.tolist(), top[:, 0].tolist(), strict=True))
        self._keep_mistakes(logits, top[:, 0], targets)

    def _keep_mistakes(self, logits: torch.Tensor, taken_for: torch.Tensor, targets: ClassTargets) -> None:
        wrong = (taken_for != targets.labels).nonzero()[:, 0]
        scores = logits[wrong].double().softmax(1)
        taken, truth = taken_for[wrong], targets.labels[wrong]
        of_taken, of_truth = (scores.gather(1, kind[:, None])[:, 0].tolist() for kind in (taken, truth))
        samples = targets.samples[wrong.cpu()].tolist()
        found = zip(of_taken, samples, truth.tolist(), taken.tolist(), of_truth, strict=True)
        self.mistakes = sorted([*self.mistakes, *(Mistake(1 - s, *rest) for s, *rest in found if math.isfinite(s))])[
            :MISTAKES
        ]

    def merge(self, others: Iterable["ClassScore"]) -> None:
        for other in others:
            self.samples += other.samples
            self.correct1 += other.correct1
            self.correct5 += other.correct5
            self.batch_losses += other.batch_losses
            self.seen += other.seen
            self.mistakes = sorted([*self.mistakes, *other.mistakes])[:MISTAKES]

    def result(self) -> dict[str, Any]:
        """top1 and top5 in percent, mean loss, and over how many samples."""
        n = max(self.samples, 1)
        return {
            "top1": 100 * self.correct1 / n,
            "top5": 100 * self.correct5 / n,
            "loss": math.fsum(self.batch_losses) / n,
            "samples": self.samples,
        }

    def documents(self) -> dict[str, Any]:
        """`mistakes`: samples and hits of each class, the pairs confused most often, the most confident mistakes as pictures."""
        if self.source is None:
            return {}
        classes = self.source.classes
        totals, hits = Counter[int](), Counter[int]()
        for (truth, taken), count in self.seen.items():
            totals[truth] += count
            hits[truth] += count if truth == taken else 0
        wrong = [[t, p, n] for (t, p), n in self.seen.items() if t != p]
        document = {
            "classes": list(classes),
            "samples": [totals[c] for c in range(len(classes))],
            "correct": [hits[c] for c in range(len(classes))],
            "confused": sorted(wrong, key=lambda e: (-e[2], e[0], e[1]))[:PAIRS],
            "mistakes": [self._described(m, self.source) for m in self.mistakes],
        }
        return {"mistakes": document}

    def _described(self, mistake: Mistake, source: Source) -> dict[str, Any]:
        picture = None
        with contextlib.suppress(BadImage, OSError):
            picture = encode_thumbnail(source.image(mistake.sample), THUMBNAIL_PX)
        return {
            "sample": mistake.sample, "image": source.describe(mistake.sample), "truth": mistake.truth,
            "taken_for": mistake.taken_for, "score": 1 - mistake.doubt, "truth_score": mistake.truth_score, "jpeg": picture,
        }  # fmt: skip
