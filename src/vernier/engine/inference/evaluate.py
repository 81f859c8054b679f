"""Evaluation: every sample once, exactly, on any number of processes."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import nn

from vernier.data.augment.normalize import Normalizer
from vernier.data.loading.loader import Batch, Loader
from vernier.data.loading.order import EvalOrder
from vernier.data.sources import Source
from vernier.devices import Device
from vernier.engine.execution import Execution, borrowed
from vernier.engine.observe import Observers
from vernier.engine.processes.world import World
from vernier.tasks.base import CountingReader, Forward, Score, Task


@contextlib.contextmanager
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


class Evaluator:
    """A validation set, ready to be scored again and again."""

    def __init__(
        self, task: Task, source: Source, reader: CountingReader, order: EvalOrder, normalize: Normalizer,
        device: Device, place: torch.device, *, workers: int, prefetch: int, world: World,
    ) -> None:  # fmt: skip
        self._task, self._source, self._world = task, source, world
        self._order, self._normalize, self._device, self._place = order, normalize, device, place
        self.bad = reader.bad
        self._loader = Loader(
            reader, batch=order.batch, workers=workers, prefetch=prefetch, pin=device.pins_memory
        )  # fmt: skip

    def score(
        self,
        network: Execution,
        weights: dict[str, torch.Tensor] | None,
        observers: Observers,
        check_stop: Callable[[], None],
    ) -> Score:
        """The whole set's at the first process, each one's own part elsewhere; `check_stop` may raise between batches.

        Every process asks `check_stop` as often, also one with fewer batches.
        """
        score = self._task.score(self._source)
        mine = self._order.own_batches()
        rounds = -(-self._order.batches // self._world.size)
        forward = network.evaluation_network(self._order.batch)
        with borrowed(network.model, weights), evaluating(network.model):
            batches = self._loader.batches((0, indices) for indices in mine)
            with contextlib.closing(batches):
                for done in range(1, rounds + 1):
                    if done <= len(mine):
                        self._add(score, next(batches), forward)
                    observers.progress("evaluate", done, rounds)
                    check_stop()
        score.merge(self._world.gather(score)[1:])
        return score

    def _add(self, score: Score, batch: Batch, forward: Forward) -> None:
        images = self._normalize(self._device.upload(batch.images, self._place))
        self._device.uploads_done()
        score.add(self._task.predict(forward, images), batch.targets.to(self._place))
        self._device.mark_step()

    def close(self) -> None:
        self._loader.close()
