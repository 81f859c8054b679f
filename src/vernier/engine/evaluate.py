"""Evaluation: every sample once, exactly, on any number of processes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from vernier.data.loader import Loader
from vernier.data.order import EvalOrder
from vernier.data.sources import Source
from vernier.data.transforms import Normalizer
from vernier.engine.observe import Observers
from vernier.engine.step import Autocast
from vernier.tasks.base import CountingReader, Forward, Score, Task


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, no gradients; the mode found is put back, module by module: frozen ones stay as they are."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module, training in before:
            module.training = training


def forward_with(model: nn.Module, weights: dict[str, torch.Tensor] | None) -> Forward:
    """The model as it is, or with other weights in place of its own, without copying either."""
    if weights is None:
        return model
    return lambda images: torch.func.functional_call(model, weights, (images,))


class Evaluator:
    """A validation set, ready to be scored again and again."""

    def __init__(
        self, task: Task, source: Source, reader: CountingReader, order: EvalOrder, normalize: Normalizer, device: torch.device,
        *, workers: int, prefetch: int, autocast: Autocast = nullcontext,
    ) -> None:  # fmt: skip
        self._task, self._source, self._autocast = task, source, autocast
        self._order, self._normalize, self._device = order, normalize, device
        self.bad = reader.bad
        self._loader = Loader(reader, batch=order.batch, workers=workers, prefetch=prefetch)

    def score(
        self,
        model: nn.Module,
        weights: dict[str, torch.Tensor] | None,
        observers: Observers,
        check_stop: Callable[[], None],
    ) -> Score:
        """Run the whole set through the model; `check_stop` may raise between batches."""
        score = self._task.score(self._source)
        batches = self._order.mine()
        plain = forward_with(model, weights)

        def forward(images: torch.Tensor) -> Any:
            with self._autocast():
                return plain(images)

        with evaluating(model):
            for done, batch in enumerate(self._loader.batches((0, indices) for indices in batches), start=1):
                images = self._normalize(batch.images.to(self._device, non_blocking=True))
                score.add(self._task.predict(forward, images), batch.targets.to(self._device))
                observers.progress("evaluate", done, len(batches))
                check_stop()
        return score

    def close(self) -> None:
        self._loader.close()
