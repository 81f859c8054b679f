import numpy as np
import pytest
import torch
from torch.nn import functional as F

from vernier.config import Augment, Loss
from vernier.tasks.classification.task import Mixed, cut_images, mix_draw, mix_images, mix_partners, training_loss


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
    draws = [mix_draw(Augment(mixup=0.2), 1, step) for step in range(2000)]
    weights = np.array([d.weight for d in draws if d is not None and d.kind == "mixup"])
    assert len(weights) == 2000
    assert weights.mean() == pytest.approx(0.5, abs=0.03)
    assert weights.var() == pytest.approx(0.25 / (2 * 0.2 + 1), abs=0.01)
    assert mix_draw(Augment(mixup=0.2), 1, 7) == mix_draw(Augment(mixup=0.2), 1, 7)
    assert mix_draw(Augment(), 1, 7) is None
    assert torch.equal(mix_partners(1, 7, 0, 0, 50), mix_partners(1, 7, 0, 0, 50))
    assert not torch.equal(mix_partners(1, 7, 0, 0, 50), mix_partners(1, 7, 1, 0, 50))


def test_mixup_and_cutmix_take_turns_by_chance() -> None:
    kinds = [d.kind for s in range(2000) if (d := mix_draw(Augment(mixup=0.2, cutmix=1.0), 1, s)) is not None]
    assert kinds.count("cutmix") / 2000 == pytest.approx(0.5, abs=0.04)
    alone = [mix_draw(Augment(cutmix=1.0), 1, step) for step in range(50)]
    assert {d.kind for d in alone if d is not None} == {"cutmix"}


@pytest.mark.parametrize(("centre", "share"), [((0.5, 0.5), 0.25), ((0.0, 0.0), 0.0625), ((0.99, 0.5), 0.125)])
def test_cutmix_pastes_a_box_and_weighs_labels_by_what_is_left(centre: tuple[float, float], share: float) -> None:
    images, labels = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 3, 16, 16), torch.arange(4)
    cut, mixed = cut_images(images, labels, 0.75, centre, torch.tensor([1, 2, 3, 0]))
    pasted = (cut[0] == 1).float().mean().item()
    assert pasted == pytest.approx(share, abs=0.04)
    assert mixed.weight == pytest.approx(1 - pasted)
    assert set(cut[0].unique().tolist()) == {0.0, 1.0}
    assert mixed.labels.tolist() == [1, 2, 3, 0]
    assert images[0].unique().tolist() == [0.0]


def test_smoothing_over_the_others_leaves_the_true_class_its_mass() -> None:
    """The variability study's formula: 1 - e for the true class, e / (K - 1) for each other."""
    logits, labels = torch.randn(5, 7), torch.tensor([0, 1, 2, 3, 6])
    target = torch.full((5, 7), 0.1 / 6).scatter_(1, labels[:, None], 0.9)
    given = training_loss(logits, labels, Loss(label_smoothing=0.1, smoothing_over="others"))
    torch.testing.assert_close(given, F.cross_entropy(logits, target))


def test_binary_loss_by_hand() -> None:
    logits, labels = torch.tensor([[0.3, -1.0, 2.0]]), torch.tensor([2])
    soft = Mixed(torch.tensor([0]), 0.9)
    p = torch.sigmoid(logits)[0]
    by_hand = (
        -(0.1 * p[0].log() + 0.9 * (1 - p[0]).log() + (1 - p[1]).log() + 0.9 * p[2].log() + 0.1 * (1 - p[2]).log()) / 3
    )
    torch.testing.assert_close(training_loss(logits, labels, Loss(kind="bce"), soft), by_hand)
    hard = -((1 - p[0]).log() + (1 - p[1]).log() + p[2].log()) / 3
    torch.testing.assert_close(training_loss(logits, labels, Loss(kind="bce", bce_threshold=0.2), soft), hard)
    both = -(p[0].log() + (1 - p[1]).log() + p[2].log()) / 3
    evenly = Mixed(torch.tensor([0]), 0.6)
    torch.testing.assert_close(training_loss(logits, labels, Loss(kind="bce", bce_threshold=0.2), evenly), both)


def test_binary_targets_are_smoothed_as_one_hot_labels_are() -> None:
    logits, labels = torch.zeros(1, 4), torch.tensor([1])
    loss = training_loss(logits + 3, labels, Loss(kind="bce", label_smoothing=0.1))
    target = torch.tensor([[0.025, 0.925, 0.025, 0.025]])
    torch.testing.assert_close(loss, F.binary_cross_entropy_with_logits(logits + 3, target))
