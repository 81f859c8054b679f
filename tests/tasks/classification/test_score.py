import base64
import io
import math
import pickle
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from vernier.data.loading.targets import ClassTargets
from vernier.data.sources import FolderSource
from vernier.records.codec import decode
from vernier.records.predictions import Mistakes
from vernier.tasks.classification.score import MISTAKES, ClassificationScore


def targets(labels: torch.Tensor, first: int = 0) -> ClassTargets:
    return ClassTargets(labels, torch.arange(first, first + len(labels)))


def test_scores_count_exactly_and_the_order_of_batches_cannot_matter() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(103, 10), torch.randint(0, 10, (103,))
    whole, forwards, backwards = ClassificationScore(), ClassificationScore(), ClassificationScore()
    whole.add(logits, targets(labels))
    parts = [(logits[i : i + 10], targets(labels[i : i + 10], i)) for i in range(0, 103, 10)]
    for part in parts:
        forwards.add(*part)
    for part in reversed(parts):
        backwards.add(*part)
    for score in (whole, forwards, backwards):
        score.collect()
    assert forwards.result() == backwards.result()
    assert forwards.misses == backwards.misses
    top1 = (logits.argmax(1) == labels).sum().item()
    assert whole.result().figures["top1"] == forwards.result().figures["top1"] == 100 * top1 / 103
    assert forwards.result().figures["loss"] == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-6)
    assert forwards.result().samples == 103


def test_few_classes_and_no_samples_are_safe() -> None:
    score = ClassificationScore()
    assert score.result().figures["top1"] == 0
    assert score.documents() == {}
    score.add(torch.tensor([[0.0, 1.0]]), targets(torch.tensor([1])))
    score.collect()
    assert score.result().figures["top5"] == 100
    assert math.isfinite(score.result().figures["loss"])


def test_the_document_counts_classes_and_shows_the_most_confident_mistakes(shapes: Path) -> None:
    source = FolderSource(shapes / "val")
    torch.manual_seed(1)
    logits, labels = 4 * torch.randn(50, 10), torch.from_numpy(source.labels)
    whole, halves = ClassificationScore(source), [ClassificationScore(source), ClassificationScore(source)]
    for half, part in zip(halves, (slice(0, 25), slice(25, 50)), strict=True):  # the same batches, by other processes
        for score in (whole, half):
            score.add(logits[part], targets(labels[part], part.start))
    for score in (whole, *halves):
        score.collect()
    halves[0].merge([pickle.loads(pickle.dumps(halves[1]))])
    document = whole.documents()["mistakes"]
    assert halves[0].documents()["mistakes"] == document
    mistakes = decode(Mistakes, document)

    guessed = logits.argmax(1)
    assert sum(mistakes.samples) == 50
    assert sum(mistakes.correct) == int((guessed == labels).sum())
    assert sum(n for _, _, n in mistakes.confused) == int((guessed != labels).sum())
    scores = logits.double().softmax(1).max(1).values
    wrong = [i for i in range(50) if guessed[i] != labels[i]]
    best = sorted(wrong, key=lambda i: -float(scores[i]))[:MISTAKES]
    assert [m.sample for m in mistakes.mistakes] == best
    first = mistakes.mistakes[0]
    assert first.score == pytest.approx(float(scores[best[0]]))
    assert Path(first.image).is_file()
    assert max(Image.open(io.BytesIO(base64.b64decode(first.jpeg or ""))).size) == 32


def test_scores_that_are_not_numbers_leave_no_mistake_to_show() -> None:
    score = ClassificationScore()
    score.add(torch.tensor([[math.nan, 1.0], [2.0, 1.0]]), targets(torch.tensor([1, 1])))
    score.collect()
    assert [m.sample for m in score.misses] == [1]


def test_figures_are_sums_of_float64_to_the_last_bit() -> None:
    """Every sample leaves six numbers behind, not its logits."""
    torch.manual_seed(2)
    score, losses = ClassificationScore(), []
    for first in range(0, 200, 50):
        logits, labels = 3 * torch.randn(50, 100), torch.randint(0, 100, (50,))
        losses.append(float(F.cross_entropy(logits, labels, reduction="none").double().sum()))
        score.add(logits, targets(labels, first))
    assert len(pickle.dumps(score)) < 200 * 6 * 4 + 200 * 2 * 8 + 10_000
    score.collect()
    assert score.result().figures["loss"] == math.fsum(losses) / 200


def test_of_two_certain_mistakes_the_more_certain_comes_first() -> None:
    """Both scores round to 1 in float32."""
    score = ClassificationScore()
    score.add(torch.tensor([[0.0, 20.0], [0.0, 22.0], [0.0, 21.0]]), targets(torch.tensor([0, 0, 0])))
    score.collect()
    assert [miss.sample for miss in score.misses] == [1, 2, 0]
    assert score.misses[0].doubt == pytest.approx(math.exp(-22.0), rel=1e-5)
    assert score.misses[0].truth_score == pytest.approx(math.exp(-22.0), rel=1e-5)
