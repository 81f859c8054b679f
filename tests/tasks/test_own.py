"""Losses and metrics of users: what they get, and that a result does not depend on batches."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vernier.config import Augment, Eval, Loss, Recipe
from vernier.data.augment.mixing import MixedLabels
from vernier.data.loading.targets import ClassTargets
from vernier.data.sources.synthetic import SyntheticSource
from vernier.errors import ConfigError
from vernier.own_code import refer_to
from vernier.tasks.classification import Classify, _ClassificationScore, _training_loss
from vernier.tasks.own import OwnLoss, OwnMetrics, deciding_metric, metric_name


class Weighted(nn.Module):
    """Class weights in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weights", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels, self.weights)


def first_label(logits: Tensor, labels: Tensor) -> float:
    """Depends on the order of the samples."""
    return float(labels[0])


class Recall:
    """As a metric of torchmetrics."""

    def reset(self) -> None:
        self.right: list[Tensor] = []

    def update(self, logits: Tensor, labels: Tensor) -> None:
        self.right.append(logits.argmax(1) == labels)

    def compute(self) -> Tensor:
        return torch.cat(self.right).float().mean()


def test_a_module_with_class_weights_is_a_loss() -> None:
    logits, labels = torch.randn(6, 3, requires_grad=True), torch.tensor([0, 1, 2, 0, 1, 2])
    expected = F.cross_entropy(logits, labels, torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(OwnLoss(refer_to(Weighted))(logits, labels), expected)


def test_mixed_images_have_the_loss_of_both_labels() -> None:
    logits, labels, second = torch.randn(2, 3, requires_grad=True), torch.tensor([0, 1]), torch.tensor([2, 2])
    own = OwnLoss(refer_to(F.cross_entropy))
    mixed = MixedLabels(second, torch.tensor(0.25), torch.tensor(0.75))
    torch.testing.assert_close(
        _training_loss(logits, labels, Loss(kind="x"), mixed, own), _training_loss(logits, labels, Loss(), mixed)
    )


def test_a_metric_sees_the_whole_set_in_its_order() -> None:
    source = SyntheticSource("val")
    metrics = [refer_to(first_label), refer_to(Recall)]
    whole, part = (_ClassificationScore(source, OwnMetrics(metrics)) for _ in range(2))
    logits = torch.eye(1000)[:8]
    for score, samples in ((whole, [4, 5, 6, 7]), (part, [0, 1, 2, 3])):
        score.add(logits[samples], ClassTargets(torch.tensor(samples) // 2 * 2, torch.tensor(samples)))
        score.collect()
    whole.merge([part])
    assert {name: whole.result().figures[name] for name in ("first_label", "Recall")} == {
        "first_label": 0.0,
        "Recall": 0.5,
    }


def test_one_metric_decides_which_weights_are_best() -> None:
    assert metric_name("mine.py:Scores.f1(beta=2)") == "f1"
    assert metric_name("python:f1#2") == "f1"
    assert Classify(Recipe()).metric == "top1"
    assert deciding_metric(Recipe(eval=Eval(metrics=("mine:f1",), best="f1"))) == "f1"
    with pytest.raises(ConfigError, match="not one of: top1, top5"):
        deciding_metric(Recipe(augment=Augment(), eval=Eval(best="f1")))
    with pytest.raises(ConfigError, match="one name"):
        deciding_metric(Recipe(eval=Eval(metrics=("mine:f1", "other:f1"))))
