"""Blocks of training steps under any topology, for whoever measures how fast they are."""

from vernier.config import Config
from vernier.engine.distributed import World
from vernier.engine.setup import prepare
from vernier.measure.clock import now_s


class Stepper:
    """A training that is only stepped: no events, evaluations or checkpoints. All processes must ask for the same blocks."""

    def __init__(self, config: Config, world: World | None = None) -> None:
        self._job = prepare(config, world=world)
        self.world, self.images_per_step = self._job.world, config.recipe.global_batch
        derived, order = self._job.derived, self._job.order
        self._batches = self._job.loader.batches(
            (epoch, order.indices(epoch, within, micro))
            for epoch in range(1_000_000)
            for within in range(derived.steps_per_epoch)
            for micro in range(derived.accumulation)
        )
        self._step = 0

    def block(self, steps: int) -> float:
        """Seconds that so many steps took, data included, from when all processes were ready until all were done."""
        self._job.device.synchronize()
        self.world.any(False)
        began = now_s()
        for _ in range(steps):
            self._job.step(self._step, self._batches)
            self._step += 1
        self._job.device.synchronize()
        self.world.any(False)
        return now_s() - began

    def close(self) -> None:
        self._batches.close()
        self._job.close()
