import torch
from torch.nn import functional as F

from vernier.config import Data, Loss, Recipe
from vernier.data.augment.mixing import MixedLabels, mixup
from vernier.tasks.classification.task import Classify, training_hits, training_loss


def test_smoothing_spreads_its_mass_over_all_classes() -> None:
    logits, labels = torch.randn(5, 7), torch.tensor([0, 1, 2, 3, 6])
    log_p = F.log_softmax(logits, dim=1)
    by_hand = -(0.9 * log_p[torch.arange(5), labels] + 0.1 * log_p.mean(dim=1)).mean()
    torch.testing.assert_close(training_loss(logits, labels, Loss(label_smoothing=0.1)), by_hand)


def test_mixed_loss_is_the_loss_of_mixed_one_hot_labels() -> None:
    logits, labels = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 1])
    images, order = torch.randn(6, 3, 2, 2), torch.tensor([5, 4, 3, 2, 1, 0])
    mixed_images, mixed = mixup(images, labels, 0.3, order)
    torch.testing.assert_close(mixed_images, 0.3 * images + 0.7 * images[order])
    one_hot = F.one_hot(labels, 4).float()
    target = 0.3 * one_hot + 0.7 * one_hot[order]
    torch.testing.assert_close(training_loss(logits, labels, Loss(), mixed), F.cross_entropy(logits, target))


def test_hits_of_mixed_images_count_by_the_share_of_their_labels() -> None:
    """As in the MixUp paper's code; a hit on the second label is no miss."""
    logits = torch.eye(8)[[2, 3, 4]] + torch.linspace(0.5, 0, 8)  # each image: its class first, then 0, 1, 2, ...
    labels = torch.tensor([2, 0, 7])
    assert training_hits(logits, labels).tolist() == [1, 2]
    mixed = MixedLabels(torch.tensor([7, 3, 4]), 0.75)
    torch.testing.assert_close(training_hits(logits, labels, mixed), torch.tensor([0.75 + 0.5, 1.5 + 0.5]))
    assert training_hits(torch.tensor([[0.0, 1.0]]), torch.tensor([0])).tolist() == [0, 1]  # fewer than five classes


def test_smoothing_over_the_others_leaves_the_true_class_its_mass() -> None:
    """The variability study's formula: 1 - e for the true class, e / (K - 1) for each other."""
    logits, labels = torch.randn(5, 7), torch.tensor([0, 1, 2, 3, 6])
    target = torch.full((5, 7), 0.1 / 6).scatter_(1, labels[:, None], 0.9)
    given = training_loss(logits, labels, Loss(label_smoothing=0.1, smoothing_over="others"))
    torch.testing.assert_close(given, F.cross_entropy(logits, target))


def test_binary_loss_by_hand() -> None:
    logits, labels = torch.tensor([[0.3, -1.0, 2.0]]), torch.tensor([2])
    soft = MixedLabels(torch.tensor([0]), 0.9)
    p = torch.sigmoid(logits)[0]
    by_hand = (
        -(0.1 * p[0].log() + 0.9 * (1 - p[0]).log() + (1 - p[1]).log() + 0.9 * p[2].log() + 0.1 * (1 - p[2]).log()) / 3
    )
    torch.testing.assert_close(training_loss(logits, labels, Loss(kind="bce"), soft), by_hand)
    hard = -((1 - p[0]).log() + (1 - p[1]).log() + p[2].log()) / 3
    torch.testing.assert_close(training_loss(logits, labels, Loss(kind="bce", bce_threshold=0.2), soft), hard)
    both = -(p[0].log() + (1 - p[1]).log() + p[2].log()) / 3
    evenly = MixedLabels(torch.tensor([0]), 0.6)
    torch.testing.assert_close(training_loss(logits, labels, Loss(kind="bce", bce_threshold=0.2), evenly), both)


def test_binary_targets_are_smoothed_as_one_hot_labels_are() -> None:
    logits, labels = torch.zeros(1, 4), torch.tensor([1])
    loss = training_loss(logits + 3, labels, Loss(kind="bce", label_smoothing=0.1))
    target = torch.tensor([[0.025, 0.925, 0.025, 0.025]])
    torch.testing.assert_close(loss, F.binary_cross_entropy_with_logits(logits + 3, target))


def test_the_preparation_of_images_is_described() -> None:
    recipe = Recipe(name="r", data=Data(eval_px=224, eval_short_side_px=256, interpolation="bicubic"))
    assert Classify(recipe).describe_preparation() == "short side 256, centre 224, bicubic, ImageNet mean and std"


def test_images_are_opened_in_the_channels_that_the_network_takes() -> None:
    recipe = Recipe(name="r", data=Data(source="synthetic", mean=(0.5,), std=(0.5,)))
    source = Classify(recipe).open("val")
    assert (source.channels, source.image(0).shape[2]) == (1, 1)
