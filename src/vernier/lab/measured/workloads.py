"""The training and the inference of a recipe as loads that take steps (`lab.bench.measuring.Load`).

The training load is the code path of `vernier train`: same loader, same step. Nothing is written.
"""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from vernier.config import Config, train_px
from vernier.data.augment.normalize import Normalizer
from vernier.data.loading.loader import Batch, Loader
from vernier.data.sources.views import cache_in_memory
from vernier.devices import Device
from vernier.engine.build import build_model_for_data, prepare_device
from vernier.engine.execution import Execution, evaluating
from vernier.engine.inference.evaluate import with_engine
from vernier.engine.inference.trained import ModelChoice, Trained, load_model
from vernier.engine.processes.world import World
from vernier.engine.training.setup import Job, prepare
from vernier.engine.training.step import Phase, untimed
from vernier.errors import ConfigError
from vernier.lab.phases import PhaseClock
from vernier.measure.what_ran import describe_feeding, describe_run
from vernier.models.cost import cost_of
from vernier.records.events import Loading
from vernier.records.what_ran import WhatRan
from vernier.references import given, use
from vernier.tasks import task_of

_FORWARDS_PER_TRAINING_STEP = 3
"""The gradients of the weights and of the inputs cost as many multiply-accumulates as the forward pass each."""


class TrainingLoad:
    """A step: data, copy, forward, backward, optimiser; then the device is synchronised.

    `apart`: processes stay in step, but exchange no gradients.
    """

    def __init__(self, config: Config, world: World | None = None, *, apart: bool = False) -> None:
        if apart and config.machine.reduction == "exact":
            raise ConfigError(
                f"{given('apart', True)} omits the exchange of gradients, which "
                f"{given('machine.reduction', 'exact')} consists of. Use {use('machine.reduction', 'ddp')}, or leave "
                f"out {given('apart')}."
            )
        self.job: Job = prepare(config, world=world)
        self.job.step.no_sync = apart
        self.device: Device = self.job.device
        self.images, self.devices = config.recipe.global_batch, self.job.derived.world
        # A benchmark decides while it runs how many steps it takes, so that the loader has no end.
        self._batches = self.job.loader.batches(self.job.requests(0, 2**62))
        self._step = 0
        self._exposed_s: float | None = None
        self.threads = self.job.threads
        self.loss = torch.zeros(())

    @property
    def phase(self) -> Phase:
        return self.job.step.phase

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self.job.step.phase = phase

    @property
    def network(self) -> Execution:
        return self.job.network

    @property
    def torch_device(self) -> torch.device:
        return next(self.job.model.parameters()).device

    def flops_per_image(self) -> int:
        recipe, source = self.job.config.recipe, self.job.train_source
        px = train_px(recipe.data, recipe.augment, 0)
        macs = cost_of(recipe.model, px=px, classes=len(source.classes), channels=source.channels).macs
        return 2 * _FORWARDS_PER_TRAINING_STEP * macs

    def what_ran(self, *, in_memory: bool = False) -> WhatRan:
        """What the steps do; `in_memory` is for inference only."""
        recipe = self.job.config.recipe
        return self.job.what_ran(image_px=train_px(recipe.data, recipe.augment, 0))

    def step(self) -> float:
        # The schedule ends after the last step of the recipe; a longer measurement begins it again.
        self.loss, wait_s = self.job.step(self._step % self.job.derived.total_steps, self._batches)
        self._step += 1
        # Without it the clock would measure how fast work is queued.
        self.device.synchronize()
        exchanges = self.job.step.reduction.pop_times()
        self._exposed_s = sum(times.exposed_s for times in exchanges) if exchanges else None
        # Without gradients to wait for, processes would drift apart and not disturb each other as they do in training.
        if self.job.step.no_sync:
            self.job.world.any_process(False)
        return wait_s

    def split(self, steps: int) -> dict[str, list[float]]:
        """Communication during backward is a phase of its own, as far as no computation hides it."""

        def move_exposed_communication(clock: PhaseClock) -> None:
            if self._exposed_s is not None and not self.job.step.reduction.after_backward:
                # The clocks of communication and of the phase differ by their overhead: no phase may become negative.
                exposed_s = min(self._exposed_s, clock.steps[-1]["backward"])
                clock.add("backward", -exposed_s)
                clock.add("communication", exposed_s)

        return _split_by_phase(self, steps, move_exposed_communication)

    def close(self) -> None:
        self._batches.close()
        self.job.close()


class InferenceLoad:
    """A step: a batch of evaluation images through the network to predictions; then the device is synchronised.

    The network is that of a run or of an exported file, `path`, which an ONNX file runs itself; or the recipe's
    with new weights: speed does not depend on them.
    """

    devices = 1

    def __init__(self, config: Config, path: Path | None = None) -> None:
        # A run or a file keeps the settings of its model; all others are those of the benchmark.
        trained = None if path is None else load_model(ModelChoice(path=path, changed=lambda _: config))
        config = config if trained is None else trained.config
        # The source is opened first, as the number of classes of an untrained model follows from it.
        self._task = task_of(config.recipe, config.machine)
        self._source = self._task.open("val")
        self.device, self.threads = prepare_device(config)
        self.torch_device = self.device.torch_device(0)
        trained = trained or self._untrained(config)
        trained = with_engine(trained, self._source, batch=config.machine.eval_batch)
        self._classes, self._runtime, self.engine = len(trained.classes), trained.runtime, trained.engine
        machine, self._model = config.machine, trained.model
        self.network = Execution(self._model, machine, self.device, frozen=True)
        self._config, self.images = config, machine.eval_batch
        self._normalize = None if trained.takes_pixels else Normalizer(config.recipe.data, self.torch_device)
        source, self._cache = cache_in_memory(self._source, machine.cache_share, 1)
        reader = self._task.eval_reader(source)
        self._loader = Loader(
            reader,
            batch=self.images,
            workers=machine.workers,
            prefetch=machine.prefetch,
            device=self.device,
            samples=len(self._source),
        )
        offsets = itertools.count(0, self.images)
        # Images are taken round and round: a benchmark may need more batches than the data has.
        indices = (np.arange(start, start + self.images) % len(self._source) for start in offsets)
        self._batches = self._loader.batches((0, batch) for batch in indices)
        self.phase: Phase = untimed
        self._evaluating: AbstractContextManager[None] = evaluating(self._model, self.device)
        # Entered for the life of the load: switching modes in every step would be measured with it.
        self._evaluating.__enter__()
        self._forward = self.network.evaluation_network(self.images)

    def _untrained(self, config: Config) -> Trained:
        """The recipe's network for the data, with new weights."""
        return Trained(
            model=build_model_for_data(config, self._task, self._source, self.torch_device),
            config=config,
            classes=tuple(self._source.classes),
            device=self.device,
            origin="new weights",
            step=None,
            averaged=False,
            channels=self._source.channels,
        )

    def flops_per_image(self) -> int:
        model, px = self._config.recipe.model, self._config.recipe.data.eval_px
        return 2 * cost_of(model, px=px, classes=self._classes, channels=self._source.channels).macs

    def what_ran(self, *, in_memory: bool = False) -> WhatRan:
        """What the steps do; `in_memory`: with one batch again and again, as single-stream has it."""
        config, devices = self._config, self.device.identity()
        loading = Loading(**vars(self._cache))
        feeding = describe_feeding(config.recipe.data.source, loading, self._loader.workers)
        ran = describe_run(
            config,
            "infer",
            image_px=config.recipe.data.eval_px,
            classes=self._classes,
            channels=self._source.channels,
            batch_per_device=self.images,
            devices=1,
            feeding="one batch in memory, no loader" if in_memory else feeding,
            device_kind=self.device.name,
            device=devices[0] if devices else None,
            threads=self.threads,
        )
        return replace(ran, mode=self._runtime) if self._runtime else ran

    def run(self, images: torch.Tensor) -> None:
        """uint8 images on the host to predictions."""
        with self.phase("copy"):
            ready = self.device.upload(images, self.torch_device)
            if self._normalize is not None:
                ready = self._normalize(ready)
        with self.phase("forward"):
            self.predicted = self._task.predict(self._forward, ready)
            self.device.end_step()
        self.device.synchronize()

    def step(self) -> float:
        with self.phase("data"):
            batch: Batch = next(self._batches)
        self.run(batch.images)
        return batch.wait_s

    def reuse_batch(self) -> Callable[[], None]:
        """A function that runs one batch in memory: no data loading."""
        # The loader writes later batches into the same buffer.
        return partial(self.run, next(self._batches).images.clone())

    def split(self, steps: int) -> dict[str, list[float]]:
        return _split_by_phase(self, steps)

    def close(self) -> None:
        self._evaluating.__exit__(None, None, None)
        self._batches.close()
        self._loader.close()


def open_load(
    what: str, config: Config, world: World, *, path: Path | None = None, apart: bool = False
) -> TrainingLoad | InferenceLoad:
    """The load of a request: `train`, or inference."""
    return TrainingLoad(config, world, apart=apart) if what == "train" else InferenceLoad(config, path)


def _split_by_phase(
    load: TrainingLoad | InferenceLoad, steps: int, after: Callable[[PhaseClock], None] = lambda _: None
) -> dict[str, list[float]]:
    """Seconds by phase of some further steps; `after` each of them time may be moved between phases."""
    # Only for these steps: a synchronization per phase makes every step slower.
    clock = PhaseClock(load.device.synchronize)
    load.phase = clock
    try:
        for _ in range(steps):
            load.step()
            after(clock)
            clock.next_step()
    finally:
        load.phase = untimed
    return clock.by_phase()


class SingleStreamLoad:
    """Single-stream inference: the same batch again and again, already in memory; a step's time is its latency."""

    devices = 1

    def __init__(self, inference: InferenceLoad) -> None:
        self.images = inference.images
        self._run = inference.reuse_batch()

    def step(self) -> float:
        self._run()
        return 0.0

    def split(self, steps: int) -> dict[str, list[float]]:
        return {}
