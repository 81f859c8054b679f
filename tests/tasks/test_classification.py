import base64
import io
import math
import pickle
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from vernier.config import Data, Loss, Recipe
from vernier.data.augment.mixing import MixedLabels, _mixup
from vernier.data.loading.targets import ClassTargets
from vernier.data.sources import FolderSource
from vernier.records.codec import decode
from vernier.records.predictions import Mistakes
from vernier.tasks.classification import MISTAKES, Classify, _ClassificationScore, _correct_predictions, _training_loss


def test_smoothing_spreads_its_mass_over_all_classes() -> None:
    logits, labels = torch.randn(5, 7), torch.tensor([0, 1, 2, 3, 6])
    log_p = F.log_softmax(logits, dim=1)
    by_hand = -(0.9 * log_p[torch.arange(5), labels] + 0.1 * log_p.mean(dim=1)).mean()
    torch.testing.assert_close(_training_loss(logits, labels, Loss(label_smoothing=0.1)), by_hand)


def test_mixed_loss_is_the_loss_of_mixed_one_hot_labels() -> None:
    logits, labels = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 1])
    images, order = torch.randn(6, 3, 2, 2), torch.tensor([5, 4, 3, 2, 1, 0])
    mixed_images, mixed = _mixup(images, labels, 0.3, order)
    torch.testing.assert_close(mixed_images, 0.3 * images + 0.7 * images[order])
    one_hot = F.one_hot(labels, 4).float()
    target = 0.3 * one_hot + 0.7 * one_hot[order]
    torch.testing.assert_close(_training_loss(logits, labels, Loss(), mixed), F.cross_entropy(logits, target))


def test_hits_of_mixed_images_count_by_the_share_of_their_labels() -> None:
    """As in the MixUp paper's code; a hit on the second label is no miss."""
    logits = torch.eye(8)[[2, 3, 4]] + torch.linspace(0.5, 0, 8)  # each image: its class first, then 0, 1, 2, ...
    labels = torch.tensor([2, 0, 7])
    assert _correct_predictions(logits, labels).tolist() == [1, 2]
    mixed = MixedLabels(torch.tensor([7, 3, 4]), torch.tensor(0.75), torch.tensor(0.25))
    torch.testing.assert_close(_correct_predictions(logits, labels, mixed), torch.tensor([0.75 + 0.5, 1.5 + 0.5]))
    assert _correct_predictions(torch.tensor([[0.0, 1.0]]), torch.tensor([0])).tolist() == [
        0,
        1,
    ]  # fewer than five classes


def test_smoothing_over_the_others_leaves_the_true_class_its_mass() -> None:
    """The variability study's formula: 1 - e for the true class, e / (K - 1) for each other."""
    logits, labels = torch.randn(5, 7), torch.tensor([0, 1, 2, 3, 6])
    target = torch.full((5, 7), 0.1 / 6).scatter_(1, labels[:, None], 0.9)
    given = _training_loss(logits, labels, Loss(label_smoothing=0.1, smoothing_over="others"))
    torch.testing.assert_close(given, F.cross_entropy(logits, target))


def test_binary_loss_by_hand() -> None:
    logits, labels = torch.tensor([[0.3, -1.0, 2.0]]), torch.tensor([2])
    soft = MixedLabels(torch.tensor([0]), torch.tensor(0.9), torch.tensor(0.1))
    p = torch.sigmoid(logits)[0]
    by_hand = (
        -(0.1 * p[0].log() + 0.9 * (1 - p[0]).log() + (1 - p[1]).log() + 0.9 * p[2].log() + 0.1 * (1 - p[2]).log()) / 3
    )
    torch.testing.assert_close(_training_loss(logits, labels, Loss(kind="bce"), soft), by_hand)
    hard = -((1 - p[0]).log() + (1 - p[1]).log() + p[2].log()) / 3
    torch.testing.assert_close(_training_loss(logits, labels, Loss(kind="bce", bce_threshold=0.2), soft), hard)
    both = -(p[0].log() + (1 - p[1]).log() + p[2].log()) / 3
    evenly = MixedLabels(torch.tensor([0]), torch.tensor(0.6), torch.tensor(0.4))
    torch.testing.assert_close(_training_loss(logits, labels, Loss(kind="bce", bce_threshold=0.2), evenly), both)


def test_binary_targets_are_smoothed_as_one_hot_labels_are() -> None:
    logits, labels = torch.zeros(1, 4), torch.tensor([1])
    loss = _training_loss(logits + 3, labels, Loss(kind="bce", label_smoothing=0.1))
    target = torch.tensor([[0.025, 0.925, 0.025, 0.025]])
    torch.testing.assert_close(loss, F.binary_cross_entropy_with_logits(logits + 3, target))


def test_the_preparation_of_images_is_described() -> None:
    recipe = Recipe(name="r", data=Data(eval_px=224, eval_short_side_px=256, interpolation="bicubic"))
    assert Classify(recipe).describe_preparation() == "short side 256, centre 224, bicubic, ImageNet mean and std"


def test_images_are_opened_in_the_channels_that_the_network_takes() -> None:
    recipe = Recipe(name="r", data=Data(source="synthetic", mean=(0.5,), std=(0.5,)))
    source = Classify(recipe).open("val")
    assert (source.channels, source.image(0).shape[2]) == (1, 1)


def targets(labels: torch.Tensor, first: int = 0) -> ClassTargets:
    return ClassTargets(labels, torch.arange(first, first + len(labels)))


def test_scores_count_exactly_and_the_order_of_batches_cannot_matter() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(103, 10), torch.randint(0, 10, (103,))
    whole, forwards, backwards = _ClassificationScore(), _ClassificationScore(), _ClassificationScore()
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
    top5 = (logits.topk(5).indices == labels[:, None]).any(1).sum().item()
    assert whole.result().figures["top5"] == forwards.result().figures["top5"] == 100 * top5 / 103
    assert forwards.result().figures["loss"] == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-6)
    assert forwards.result().samples == 103


def test_few_classes_and_no_samples_are_safe() -> None:
    score = _ClassificationScore()
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
    whole, halves = _ClassificationScore(source), [_ClassificationScore(source), _ClassificationScore(source)]
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
    score = _ClassificationScore()
    score.add(torch.tensor([[math.nan, 1.0], [2.0, 1.0]]), targets(torch.tensor([1, 1])))
    score.collect()
    assert [m.sample for m in score.misses] == [1]


def test_figures_are_sums_of_float64_to_the_last_bit() -> None:
    """Every sample leaves six numbers behind, not its logits."""
    torch.manual_seed(2)
    score, losses = _ClassificationScore(), []
    for first in range(0, 200, 50):
        logits, labels = 3 * torch.randn(50, 100), torch.randint(0, 100, (50,))
        losses.append(float(F.cross_entropy(logits, labels, reduction="none").double().sum()))
        score.add(logits, targets(labels, first))
    assert len(pickle.dumps(score)) < 200 * 6 * 4 + 200 * 2 * 8 + 10_000
    score.collect()
    assert score.result().figures["loss"] == math.fsum(losses) / 200


def test_of_two_certain_mistakes_the_more_certain_comes_first() -> None:
    """Both scores round to 1 in float32."""
    score = _ClassificationScore()
    score.add(torch.tensor([[0.0, 20.0], [0.0, 22.0], [0.0, 21.0]]), targets(torch.tensor([0, 0, 0])))
    score.collect()
    assert [miss.sample for miss in score.misses] == [1, 2, 0]
    assert score.misses[0].doubt == pytest.approx(math.exp(-22.0), rel=1e-5)
    assert score.misses[0].truth_score == pytest.approx(math.exp(-22.0), rel=1e-5)
