"""Muon (Jordan 2024) as airbench trains convolutional networks with it: filters by Muon, all other weights by SGD."""

from typing import Any

from vernier.config import Optim, option
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.references import given, use

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""A quintic that takes singular values from 0 to 1 close to 1, some beyond: fast rather than exact."""
_ITERATIONS = 3


@frozen
class Muon(Optim):
    """Momentum whose step is made orthogonal, for filters of convolutions; SGD for other weights. Nesterov in both.

    Filters: v = momentum v + g; w = w sqrt(outputs) / |w|; w -= lr orthogonal(g + momentum v). Their length is fixed,
    which batch norm makes irrelevant, so they have no weight decay. Others: g is g + weight_decay / lr_share w, so that
    a step takes away lr weight_decay of a weight, with `lr` the schedule's, whatever the group's share of it.
    """

    name: str = option("muon", "Muon, as airbench's, for classifiers; a step takes lr x weight_decay of a weight")
    filter_momentum: float = option(0.6, "momentum of convolutions", low=0, high=0.9999)
    bias_lr: float | None = option(
        None, "peak learning rate of biases and scales below the head; scaled with the batch as lr is", above=0
    )
    head_lr: float | None = option(None, "peak learning rate of the head; scaled as lr is", above=0)

    def check(self, *, detector: bool) -> None:
        muon, sgd = given("optim.name", "muon"), use("optim.name", "sgd")
        if detector:
            raise ConfigError(
                f"{muon} keeps the length of all filters, and a detector's last ones must grow. Use {sgd}."
            )
        if self.bias_lr is None or self.head_lr is None:
            raise ConfigError(
                f"{muon} has three learning rates: optim.lr of convolutions, optim.bias_lr and optim.head_lr. Set all "
                f"of them, for example {use('optim.bias_lr', 100)} and {use('optim.head_lr', 0.02)} (those of "
                "airbench-cifar10)."
            )
        if self.layer_decay != 1 or self.backbone_lr_share != 1:
            raise ConfigError(
                f"{muon} has learning rates of its own: omit {given('optim.layer_decay')} and "
                f"{given('optim.backbone_lr_share')}, or use {sgd}."
            )

    def groups(self, model: Any) -> Any:
        """Filters of convolutions, biases and scales below the head, and the head."""
        from vernier.models.contract import layout_of
        from vernier.optim.build import group_of

        assert self.bias_lr is not None, "`check` lets no Muon be without it"
        assert self.head_lr is not None, "`check` lets no Muon be without it"
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        filters = [p for _, p in named if p.dim() == 4]
        in_backbone = layout_of(model).in_backbone
        biases, head = ([p for n, p in named if p.dim() != 4 and in_backbone(n) == low] for low in (True, False))
        groups = [
            # Muon sets the length of filters in each step, so weight decay would have no effect.
            group_of(filters, 0.0),
            group_of(biases, self.weight_decay, self.bias_lr / self.lr),
            group_of(head, self.weight_decay, self.head_lr / self.lr),
        ]
        return [group for group in groups if group["params"]]

    def update(self, weights: Any, states: Any, group: Any) -> None:
        for p in weights:
            grad, buffer, filters = p.grad, states[p]["momentum_buffer"], p.dim() == 4
            if group["weight_decay"]:
                grad = grad.add(p, alpha=group["weight_decay"] / group["lr_share"])
            momentum = self.filter_momentum if filters else self.momentum
            update = grad.add(buffer.mul_(momentum).add_(grad), alpha=momentum)
            if filters:
                # The clamp keeps filters of zeros, which the division would make NaN.
                p.mul_(len(p) ** 0.5 / p.norm().clamp_min(1e-12))
                update = _orthogonalised(update.flatten(1)).reshape(update.shape)
            p.sub_(update, alpha=group["lr"])


def _orthogonalised(matrix: Any) -> Any:
    """About the nearest orthogonal matrix (U V^T of the singular value decomposition), by Newton-Schulz iterations.

    Its singular values come out at 0.5 to 1.5 and not at 1, which trains as well.
    """
    a, b, c = _NEWTON_SCHULZ
    # The Gram matrix of the shorter side is the smaller one.
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if tall else matrix) / (matrix.norm() + 1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x
