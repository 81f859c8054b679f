"""From a Config to a Job: data, model, optimiser and loaders, built and checked before anything is written.

The device and the network come from `engine.build`, the evaluator from `inference.evaluate`; `loop` runs the job.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from vernier.config import Config, Derived, Machine, derive, digest, to_dict
from vernier.config.settings import REDUCTIONS
from vernier.data.loading.bad_images import BadImages
from vernier.data.loading.loader import Loader
from vernier.data.loading.order import ShardedTrainOrder, TrainOrder
from vernier.data.loading.targets import BoxTargets
from vernier.data.overview import outline_boxes
from vernier.data.sources import ShardSource, Source
from vernier.data.sources.views import CacheDecision, cache_in_memory
from vernier.devices import Device
from vernier.engine.build import build_model_for_data, prepare_device, threads_notes
from vernier.engine.convolutions import use_kernels
from vernier.engine.execution import Execution
from vernier.engine.inference.evaluate import Evaluator
from vernier.engine.processes.batch_norm import convert_batch_norms
from vernier.engine.processes.gradients import GradientReduction, ReductionFactory, build_reduction
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.engine.starting_weights import apply_starting_weights, from_scratch_warnings
from vernier.errors import ConfigError, NoSuchSplit
from vernier.host_memory import available_bytes, resident_bytes
from vernier.measure.memory import FreeMemory, KnownData, check_memory, predict_memory
from vernier.measure.what_ran import describe_feeding, describe_run
from vernier.models.drop_path import PathMasks
from vernier.models.recomputing import recompute_activations
from vernier.optim.build import build_optimizer
from vernier.optim.ema import WeightAverage
from vernier.plugins import load_plugin
from vernier.records.events import Loading
from vernier.records.run import CheckpointState, MemoryPrediction, Progress, Rollbacks
from vernier.records.what_ran import WhatRan
from vernier.references import use
from vernier.store import CheckpointDir
from vernier.tasks import task_of
from vernier.tasks.base import CountingReader, Task

from .checkpoints.contents import read_state, restore
from .guard import open_guard
from .head_warmup import HeadWarmup
from .step import TrainStep


@dataclass(frozen=True)
class _FirstImages:
    """The first training images as the network gets them, augmented: uint8 [images, height, width, channels].

    `classes` has the name of each; none for a detector, whose boxes are drawn in.
    """

    images: npt.NDArray[np.uint8]
    classes: tuple[str, ...] = ()


@dataclass
class Job:
    """Everything a training run needs, ready to start."""

    config: Config
    task: Task
    derived: Derived
    device: Device
    threads: int
    train_source: Source
    val_source: Source | None
    model: nn.Module
    optimizer: torch.optim.Optimizer
    average: WeightAverage | None
    step: TrainStep
    order: TrainOrder
    loader: Loader
    network: Execution
    world: World
    bad: BadImages
    loading: Loading
    evaluator: Evaluator | None
    memory: MemoryPrediction
    """The peak of this process, predicted."""
    notes: tuple[str, ...] = ()
    """Shown at the start: which weights were loaded, what is frozen, what is special about the data."""
    warnings: tuple[str, ...] = ()
    """Shown at the start as warnings."""

    def bad_images(self) -> list[BadImages]:
        """The counters of unreadable images: that of training, and that of validation if there is one."""
        return [self.bad] if self.evaluator is None else [self.bad, self.evaluator.bad]

    def requests(self, start: int, stop: int) -> Iterator[tuple[int, Any]]:
        """The (epoch, indices) that the loader loads for steps `start` to `stop`, in order."""
        for step in range(start, stop):
            epoch, within = divmod(step, self.derived.steps_per_epoch)
            for micro in range(self.derived.accumulation):
                yield epoch, self.order.indices(epoch, within, micro)

    def what_ran(self, *, image_px: int | None = None) -> WhatRan:
        """What this job runs; a measurement of single steps gives the size of their images."""
        recipe, devices = self.config.recipe, self.device.identity()
        local_rank = self.world.topology.local_rank
        return describe_run(
            self.config,
            "train",
            image_px=image_px or recipe.data.image_px,
            classes=len(self.train_source.classes),
            channels=self.train_source.channels,
            batch_per_device=self.derived.process_batch * self.derived.accumulation,
            devices=self.derived.world,
            feeding=describe_feeding(recipe.data.source, self.loading, self.loader.workers),
            device_kind=self.device.name,
            device=devices[min(local_rank, len(devices) - 1)] if devices else None,
            threads=self.threads,
            whole_run=image_px is None,
        )

    def state(self, progress: Progress) -> CheckpointState:
        """The state.json of a checkpoint at this point of the run."""
        return CheckpointState(
            step=progress.step,
            progress=copy.deepcopy(progress),  # it is written while training goes on
            classes=tuple(self.train_source.classes),
            channels=self.train_source.channels,
            data_fingerprint=self.train_source.fingerprint(),
            recipe_digest=digest(self.config.recipe),
            config=to_dict(self.config),
            category_ids=self.task.category_ids(self.train_source),
        )

    def restore(self, checkpoint: CheckpointDir) -> Progress:
        """Load a checkpoint into the live objects; how far it was."""
        progress = read_state(checkpoint).progress
        restore(checkpoint, self.model, self.optimizer, self.average)
        self.step.scaler.load(progress.scaler)
        self.step.lr_factor = (progress.rollbacks or Rollbacks()).lr_factor
        return progress

    def first_images(self, count: int = 16) -> _FirstImages:
        """At most so many images of the first batch, before MixUp and CutMix."""
        indices = self.order.indices(0, 0, 0)[:count]
        (batch,) = self.loader.batches([(0, indices)])
        images: npt.NDArray[np.uint8] = batch.images.permute(0, 2, 3, 1).cpu().numpy().copy()
        if isinstance(batch.targets, BoxTargets):
            outline_boxes(images, batch.targets.ltrb.cpu().numpy(), batch.targets.classes.cpu().numpy())
            return _FirstImages(images)
        return _FirstImages(images, tuple(self.train_source.classes[label] for label in batch.targets.tolist()))

    def close(self) -> None:
        self.loader.close()
        if self.evaluator is not None:
            self.evaluator.close()


def prepare(config: Config, *, fresh: bool = True, world: World | None = None) -> Job:
    """Open the data, build the model, and check that everything fits together. Raises ConfigError, writes nothing.

    Not `fresh`: a checkpoint is about to be restored, so starting weights are not read again.
    """
    recipe, machine, world = config.recipe, config.machine, world or World(Topology())
    device, threads = prepare_device(config, exact=machine.reduction == "exact")
    torch_device, task = device.torch_device(world.topology.local_rank), task_of(recipe, machine)
    train_source, val_source = _open_data(task, validation=recipe.eval.every_epochs > 0)
    derived = derive(config, train_samples=len(train_source))
    model = build_model_for_data(config, task, train_source, torch_device)
    model = _recompute(convert_batch_norms(model, config, derived, world, device), machine, device)
    config = use_kernels(config, model, device, world)
    weight_notes = apply_starting_weights(model, config, train_source, fresh=fresh)
    optimizer = build_optimizer(model, recipe, derived.lr, fused=device.fuses_optimizer(machine.precision))
    average = WeightAverage(model, recipe.ema, derived.steps_per_epoch) if recipe.ema.decay > 0 else None
    reader, loading = _build_reader(config, derived, task, train_source)
    # After the weights are loaded: what this process already holds counts as free for it.
    known = _known_data(train_source, val_source, loading, device)
    memory_warnings = _check_memory(config, derived, device, world, known)
    paths, network = PathMasks(model, derived.process_batch, torch_device), Execution(model, machine, device)
    # A traced network is fixed to a shape: that of the first image size.
    example = torch.zeros(derived.process_batch, len(recipe.data.mean), *reader.shape_at(0)[:2], device=torch_device)
    # Not called yet: head warm-up makes one per phase, as a reduction knows its parameters from the start.
    reduction = partial(_reduction, network.training_network(example), world, config, derived, device, threads)
    order = _train_order(config, derived, train_source, world.rank)
    job = Job(
        config=config,
        task=task,
        derived=derived,
        device=device,
        threads=threads,
        train_source=train_source,
        val_source=val_source,
        model=model,
        optimizer=optimizer,
        average=average,
        step=TrainStep(
            config=config,
            derived=derived,
            task=task,
            model=model,
            head_warmup=HeadWarmup(model, HeadWarmup.count_steps(config, derived), reduction),
            optimizer=optimizer,
            average=average,
            device=device,
            world=world,
            paths=paths,
        ),
        order=order,
        loader=_build_loader(reader, config, derived, device, len(train_source)),
        network=network,
        world=world,
        bad=reader.bad,
        loading=loading,
        evaluator=None if val_source is None else Evaluator(config, task, val_source, device, world),
        notes=(*_data_notes(train_source, val_source), *weight_notes, *threads_notes(config, threads)),
        memory=predict_memory(config, derived, known),
        warnings=(*memory_warnings, *(from_scratch_warnings(config) if fresh else ())),
    )
    job.step.guard = open_guard(job)
    return job


def _recompute(model: nn.Module, machine: Machine, device: Device) -> nn.Module:
    """Apply machine.activation_checkpointing."""
    if machine.activation_checkpointing:  # keep less, and nothing that was freed, which was as much again
        recompute_activations(model)
        device.return_freed_memory()
    return model


def _build_loader(reader: CountingReader, config: Config, derived: Derived, device: Device, samples: int) -> Loader:
    machine, batch = config.machine, derived.process_batch
    return Loader(
        reader, batch=batch, workers=machine.workers, prefetch=machine.prefetch, device=device, samples=samples
    )


def _known_data(train: Source, val: Source | None, loading: Loading, device: Device) -> KnownData:
    return KnownData(
        on_cpu=device.name == "cpu",
        classes=len(train.classes),
        cached_bytes=(loading.cache_needs_bytes or 0) if loading.cache == "memory" else 0,
        val_images=0 if val is None else len(val),
    )


def _check_memory(config: Config, derived: Derived, device: Device, world: World, known: KnownData) -> tuple[str, ...]:
    """A warning where the training may not fit into the device. Raises TooLittleMemory where it surely does not."""
    where, held = world.topology, 0
    if device.name == "cpu":
        free, held = FreeMemory(bytes=available_bytes(), processes=where.local_world), resident_bytes()
    elif (own := device.free_memory(where.local_rank)) is None:
        return ()
    else:
        free = FreeMemory(bytes=own, where=f"on the device, {device.name}")
        if memory := device.memory():
            held = memory.reserved_bytes or memory.allocated_bytes  # its freed blocks are free for it, and no other
    warning = check_memory(config, derived, free, held, known)
    return (warning,) if warning else ()


def _train_order(config: Config, derived: Derived, source: Source, rank: int = 0) -> TrainOrder:
    """The order of the training samples: over the whole set, or over a few shards at a time."""
    recipe = config.recipe
    order = TrainOrder(
        samples=len(source),
        seed=recipe.seed,
        global_batch=recipe.global_batch,
        accumulation=derived.accumulation,
        repeats=recipe.augment.repeats,
        world=derived.world,
        rank=rank,
        neighbouring=derived.virtual_shards is not None,
    )
    if not recipe.data.shuffle_shards:
        return order
    if not isinstance(source, ShardSource):
        raise ConfigError(
            f"data.shuffle_shards = {recipe.data.shuffle_shards}, but {recipe.data.source} is not made of shards. "
            "Set data.shuffle_shards=0."
        )
    starts = tuple(source.starts.tolist())
    return ShardedTrainOrder(**vars(order), starts=starts, window=recipe.data.shuffle_shards)


def _reduction(
    network: nn.Module, world: World, config: Config, derived: Derived, device: Device, threads: int
) -> GradientReduction:
    """How the processes combine their gradients. Collective."""
    kind = config.machine.reduction
    if kind == "ddp":
        return build_reduction(network, world, config.machine, device)
    build: ReductionFactory = load_plugin(REDUCTIONS, "machine.reduction", kind, "ddp")
    return build(network, world, config, derived, device, threads)


def _build_reader(config: Config, derived: Derived, task: Task, source: Source) -> tuple[CountingReader, Loading]:
    """The reader of training batches; how it decodes, resizes and caches images."""
    data, machine = config.recipe.data, config.machine
    # Cached images have their full size: with scaled decoding they would differ from those of the first epoch.
    cached_source, cache = cache_in_memory(source, 0 if data.scaled_decode else machine.cache_share, derived.world)
    reader = task.train_reader(source, cached_source, machine)
    backend = getattr(reader, "decoder", machine.backend)  # what auto was; other loaders have no choice
    return reader, Loading(
        **vars(cache if backend == "native" else CacheDecision(cache="off")),
        backend=backend,
        source=type(source).__name__,
        resize=reader.resize,
        scaled_decode=data.scaled_decode,
    )


def _data_notes(train: Source, val: Source | None) -> tuple[str, ...]:
    """What is special about the data, each thing once."""
    return tuple(dict.fromkeys((*train.notes, *(val.notes if val else ()))))


def _open_data(task: Task, *, validation: bool) -> tuple[Source, Source | None]:
    """The training and the validation data, which must have the same classes."""
    train = task.open("train")
    try:
        val = task.open("val") if validation else None
    except NoSuchSplit as error:
        raise NoSuchSplit(f"{error.message} To train without validation: {use('train_only', True)}.") from None
    if val is not None and val.classes != train.classes:
        differing = sorted(set(train.classes) ^ set(val.classes)) or ["none, their order differs"]
        raise ConfigError(
            f"Training and validation data have different classes: {len(train.classes)} and {len(val.classes)}; "
            f"not in both: {', '.join(differing[:5])}{', ...' if len(differing) > 5 else ''}."
        )
    return train, val
