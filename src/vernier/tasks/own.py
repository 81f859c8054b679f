"""Losses and metrics of users: called as they are, and what they return is checked.

A loss gets logits in fp32 and class numbers. A metric gets those of the whole evaluation set at once, in the order of
the set: so it does not depend on batches or processes, at the price of keeping all logits in memory.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vernier.config import Recipe
from vernier.config.settings import LOSSES, METRICS
from vernier.errors import ConfigError
from vernier.own_code import OwnPart
from vernier.references import given

BUILT_IN_METRICS = ("top1", "top5")


class OwnLoss:
    """`f(logits, labels)`: the mean loss of a batch. Mixed images get the weighted loss of both labels."""

    def __init__(self, kind: str) -> None:
        self._part = OwnPart("loss.kind", kind, LOSSES, "cross-entropy")
        loss = self._part.value
        if isinstance(loss, nn.Module) and next(loss.parameters(), None) is not None:
            raise ConfigError(f"{given('loss.kind', kind)} has weights, which only a model can have: register buffers.")

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        if isinstance(self._part.value, nn.Module):
            self._part.value.to(logits.device)  # class weights in buffers
        loss = self._part(logits, labels)
        if not isinstance(loss, Tensor):
            raise self._part.wrong(f"returned {type(loss).__name__}; a loss is a tensor of one number")
        if loss.shape != ():
            raise self._part.wrong(f"returned a tensor {list(loss.shape)}; a loss is one number, such as its mean()")
        if loss.grad_fn is None:
            raise self._part.wrong("returned a number without a gradient; compute it from the logits, in PyTorch")
        return loss


def metric_name(text: str) -> str:
    """How a metric is called in results: `macro_f1` of `mymetrics:macro_f1(beta=2)`."""
    return text.partition("(")[0].partition("#")[0].rpartition(":")[2].rpartition(".")[2]


def deciding_metric(recipe: Recipe) -> str:
    """The metric of a classifier that decides which weights are best. Raises ConfigError for one that there is not."""
    names = (*BUILT_IN_METRICS, *map(metric_name, recipe.eval.metrics))
    if len(set(names)) < len(names):
        raise ConfigError(f"{given('eval.metrics', recipe.eval.metrics)}: two metrics have one name: {names}.")
    if recipe.eval.best and recipe.eval.best not in names:
        raise ConfigError(f"{given('eval.best', recipe.eval.best)} is not one of: {', '.join(names)}.")
    return recipe.eval.best or names[0]


class OwnMetrics:
    """`f(logits, labels)`, or an object with `update` and `compute` as torchmetrics has them: a number."""

    def __init__(self, references: Sequence[str]) -> None:
        self._parts = {metric_name(text): OwnPart("eval.metrics", text, METRICS) for text in references}

    def __len__(self) -> int:
        return len(self._parts)

    def __call__(self, logits: Tensor, labels: Tensor) -> dict[str, float | None]:
        return {name: self._compute(part, logits, labels) for name, part in self._parts.items()}

    def _compute(self, part: OwnPart, logits: Tensor, labels: Tensor) -> float:
        metric = part.value
        with torch.no_grad():
            if hasattr(metric, "update") and hasattr(metric, "compute"):
                if hasattr(metric, "reset"):
                    part.run(metric.reset)
                part.run(metric.update, logits, labels)
                value = part.run(metric.compute)
            else:
                value = part(logits, labels)
        if getattr(value, "shape", ()) != () or not isinstance(value, int | float | Tensor):
            raise part.wrong(f"returned {type(value).__name__}; a metric is one number")
        if not math.isfinite(value):
            raise part.wrong(f"returned {float(value)}; a metric is a finite number")
        return float(value)
