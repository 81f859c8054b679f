import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from vernier.config import Loss
from vernier.engine.step import mixup_draw
from vernier.tasks.classify import Score, mix_images, training_loss


def test_smoothing_spreads_its_mass_over_all_classes() -> None:
    logits, labels = torch.randn(5, 7), torch.tensor([0, 1, 2, 3, 6])
    log_p = F.log_softmax(logits, dim=1)
    by_hand = -(0.9 * log_p[torch.arange(5), labels] + 0.1 * log_p.mean(dim=1)).mean()
    torch.testing.assert_close(training_loss(logits, labels, Loss(label_smoothing=0.1)), by_hand)


def test_mixed_loss_is_the_loss_of_mixed_one_hot_labels() -> None:
    logits, labels = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 1])
    images, order = torch.randn(6, 3, 2, 2), torch.tensor([5, 4, 3, 2, 1, 0])
    mixed_images, mixed = mix_images(images, labels, 0.3, order)
    torch.testing.assert_close(mixed_images, 0.3 * images + 0.7 * images[order])
    one_hot = F.one_hot(labels, 4).float()
    target = 0.3 * one_hot + 0.7 * one_hot[order]
    torch.testing.assert_close(training_loss(logits, labels, Loss(), mixed), F.cross_entropy(logits, target))


def test_mixup_draws_follow_beta_and_do_not_depend_on_anything_else() -> None:
    weights = np.array([mixup_draw(1, step, 0, 0, 0.2, 4)[0] for step in range(2000)])
    assert weights.mean() == pytest.approx(0.5, abs=0.03)
    assert weights.var() == pytest.approx(0.25 / (2 * 0.2 + 1), abs=0.01)
    assert mixup_draw(1, 7, 0, 0, 0.2, 4)[0] == mixup_draw(1, 7, 1, 3, 0.2, 4)[0]
    assert torch.equal(mixup_draw(1, 7, 0, 0, 0.2, 50)[1], mixup_draw(1, 7, 0, 0, 0.2, 50)[1])
    assert not torch.equal(mixup_draw(1, 7, 0, 0, 0.2, 50)[1], mixup_draw(1, 7, 1, 0, 0.2, 50)[1])


def test_scores_count_exactly_and_the_order_of_batches_cannot_matter() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(103, 10), torch.randint(0, 10, (103,))
    whole, forwards, backwards = Score(), Score(), Score()
    whole.add(logits, labels)
    parts = [(logits[i : i + 10], labels[i : i + 10]) for i in range(0, 103, 10)]
    for part in parts:
        forwards.add(*part)
    for part in reversed(parts):
        backwards.add(*part)
    assert forwards.result() == backwards.result()
    top1 = (logits.argmax(1) == labels).sum().item()
    assert whole.result()["top1"] == forwards.result()["top1"] == 100 * top1 / 103
    assert forwards.result()["loss"] == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-6)
    assert forwards.result()["samples"] == 103


def test_few_classes_and_no_samples_are_safe() -> None:
    score = Score()
    assert score.result()["top1"] == 0
    score.add(torch.tensor([[0.0, 1.0]]), torch.tensor([1]))
    assert score.result()["top5"] == 100
    assert math.isfinite(score.result()["loss"])
