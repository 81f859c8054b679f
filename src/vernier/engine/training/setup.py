"""From a Config to live objects, checked, before anything is written: data, model, optimiser, loaders."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from vernier.config import Config, Derived, derive
from vernier.cores import allowed_cores
from vernier.data.augment.normalize import Normalizer
from vernier.data.loading.backends import RESIZE_KERNELS
from vernier.data.loading.bad_images import BadImages
from vernier.data.loading.cache import CacheDecision, cache_in_memory
from vernier.data.loading.loader import Loader
from vernier.data.loading.order import EvalOrder, ShardedTrainOrder, TrainOrder
from vernier.data.sources import ShardSource, Source
from vernier.devices import Device, resolve
from vernier.engine.execution import Execution
from vernier.engine.inference.evaluate import Evaluator
from vernier.engine.processes.affinity import bind_cores
from vernier.engine.processes.batch_norm import with_span
from vernier.engine.processes.launch import Topology, topology
from vernier.engine.processes.world import World
from vernier.engine.starting_weights import (
    describe_weights,
    freeze,
    from_scratch,
    load_backbone,
    load_weights,
    photographs_for_check,
)  # fmt: skip
from vernier.engine.training.loss_scaling import LossScaler
from vernier.engine.training.step import TrainStep
from vernier.errors import ConfigError
from vernier.models import build, info
from vernier.optim.build import build_optimizer
from vernier.optim.ema import WeightAverage
from vernier.records.codec import encode
from vernier.tasks import task_of
from vernier.tasks.base import Task


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
    loading: dict[str, Any]
    """How images are read: recorded with the run."""
    evaluator: Evaluator | None
    notes: tuple[str, ...] = ()
    """What a person should know before it starts: which weights were loaded, what is frozen, what the data is like."""
    warnings: tuple[str, ...] = ()
    """What a person should think about before it goes on for hours."""

    def bad_images(self) -> list[BadImages]:
        """Those of training, and those of validation."""
        return [self.bad] if self.evaluator is None else [self.bad, self.evaluator.bad]

    def requests(self, start: int, stop: int) -> Iterator[tuple[int, Any]]:
        """What the loader has to load for steps `start` to `stop`, in order."""
        for step in range(start, stop):
            epoch, within = divmod(step, self.derived.steps_per_epoch)
            for micro in range(self.derived.accumulation):
                yield epoch, self.order.indices(epoch, within, micro)

    def close(self) -> None:
        self.loader.close()
        if self.evaluator is not None:
            self.evaluator.close()


def prepare(config: Config, *, fresh: bool = True, world: World | None = None) -> Job:
    """Open the data, build the model, and check that everything fits together. Raises ConfigError, writes nothing.

    Not `fresh`: a checkpoint is about to be restored, so the weights a recipe starts from are not read again.
    """
    recipe, machine, world = config.recipe, config.machine, world or World(Topology())
    device, threads = prepare_device(config)
    place = device.torch_device(world.topology.local_rank)
    task = task_of(recipe)
    train_source = task.open("train")
    val_source = task.open("val") if recipe.eval.every_epochs > 0 else None
    if val_source is not None and val_source.classes != train_source.classes:
        raise ConfigError(_class_mismatch(train_source.classes, val_source.classes))
    derived = derive(config, train_samples=len(train_source))
    model = with_span(model_for(config, task, train_source, place), config, derived, world, device)
    notes = (*train_source.notes, *_initial(model, config, val_source or train_source, place, fresh))
    optimizer = build_optimizer(model, recipe.optim, derived.lr, scaled=machine.precision == "fp16")
    average = WeightAverage(model, recipe.ema, derived.steps_per_epoch) if recipe.ema.decay > 0 else None
    normalize = Normalizer(recipe.data, place)
    order = train_order(config, derived, train_source, world.rank)
    # Decoded images that are kept have their full size: with scaled decoding they would be others than on first sight.
    kept, cache = cache_in_memory(train_source, 0 if recipe.data.scaled_decode else machine.cache_share, derived.world)
    reader = task.train_reader(train_source, kept, machine)
    loader = Loader(
        reader, batch=derived.process_batch, workers=machine.workers, prefetch=machine.prefetch, pin=device.pins_memory
    )
    network = Execution(model, machine, device, lambda: device.autocast(machine.precision))
    example = torch.zeros((derived.process_batch, len(recipe.data.mean), *reader.shape_at(0)[:2]), device=place)
    step = TrainStep(
        task=task, model=model, network=world.data_parallel(network.training_network(example), machine, place),
        optimizer=optimizer, average=average, scaler=LossScaler(machine, place),
        autocast=lambda: device.autocast(machine.precision), recipe=recipe, derived=derived, normalize=normalize,
        device=device, place=place, world=world,
    )  # fmt: skip
    return Job(
        config=config, task=task, derived=derived, device=device, threads=threads, train_source=train_source, val_source=val_source,
        model=model, optimizer=optimizer, average=average, step=step, order=order, loader=loader, network=network, world=world,
        bad=reader.bad, loading=loading_facts(config, train_source, cache),
        notes=notes, warnings=from_scratch(config) if fresh else (),
        evaluator=None if val_source is None else build_evaluator(config, task, val_source, device, world),
    )  # fmt: skip


def train_order(config: Config, derived: Derived, source: Source, rank: int = 0) -> TrainOrder:
    """The order over the whole set, or over a few shards at a time."""
    recipe = config.recipe
    common: dict[str, Any] = {
        "samples": len(source), "seed": recipe.seed, "global_batch": recipe.global_batch,
        "accumulation": derived.accumulation, "repeats": recipe.augment.repeats, "world": derived.world, "rank": rank,
    }  # fmt: skip
    if not recipe.data.shuffle_shards:
        return TrainOrder(**common)
    if not isinstance(source, ShardSource):
        raise ConfigError(
            f"data.shuffle_shards = {recipe.data.shuffle_shards}, but {recipe.data.source} is not made of shards. Use 0."
        )
    starts = tuple(source.starts.tolist())
    return ShardedTrainOrder(**common, starts=starts, window=recipe.data.shuffle_shards)


def loading_facts(config: Config, source: Source, cache: CacheDecision) -> dict[str, Any]:
    """The decoder and the resize kernel, which decide about pixels, and the cache, which does not."""
    backend = config.machine.backend
    return {
        "backend": backend,
        "source": type(source).__name__,
        "resize": RESIZE_KERNELS[backend].format(config.recipe.data.interpolation),
        "scaled_decode": config.recipe.data.scaled_decode,
        **encode(cache if backend == "native" else CacheDecision(cache="off")),
    }


def prepare_device(config: Config) -> tuple[Device, int]:
    """The device, asked whether it can do what is wanted, and its compute threads."""
    machine, where = config.machine, topology()
    device = resolve(machine.device)
    if why_not := device.refuse(machine.precision, machine.mode, allow_slow=machine.allow_slow):
        raise ConfigError(why_not)
    if machine.deterministic and (answer := device.deterministic()).verdict != "yes":
        raise ConfigError(f"--deterministic: {answer.why}: use {answer.instead}.")
    if device.name != "cpu" and where.local_world > device.count():
        raise ConfigError(
            f"{where.local_world} processes on {where.host}, but it has {device.count()} {device.name} device(s). "
            "Use one process a device."
        )
    cores = bind_cores(where, machine.max_cpus) if where.local_world > 1 or machine.max_cpus else allowed_cores()
    threads = machine.threads or len(cores)
    torch.set_num_threads(threads)
    device.prepare(machine.precision, deterministic=machine.deterministic, local_rank=where.local_rank)
    return device, threads


def place_of(device: Device) -> torch.device:
    """Where this process's tensors live."""
    return device.torch_device(topology().local_rank)


def model_for(config: Config, task: Task, source: Source, place: torch.device) -> nn.Module:
    """The recipe's network with the data's classes and channels."""
    recipe, classes = config.recipe, len(source.classes)
    wanted = recipe.model.num_classes
    if wanted is not None and wanted != classes:
        raise ConfigError(
            f"model.num_classes = {wanted}, but the data has {classes} classes ({_some(source.classes)}). "
            "Leave model.num_classes out to take it from the data."
        )
    if len(recipe.data.mean) != source.channels or len(recipe.data.std) != source.channels:
        raise ConfigError(
            f"data.mean and data.std have {len(recipe.data.mean)} and {len(recipe.data.std)} values, "
            f"but the images have {source.channels} channel(s)."
        )
    return make_model(config, task.outputs(classes), source.channels, place)


def _initial(model: nn.Module, config: Config, source: Source, place: torch.device, fresh: bool) -> tuple[str, ...]:
    """Load the weights the recipe starts from and freeze what it says; what was done, in words."""
    spec, notes = config.recipe.model, []
    if spec.weights and fresh:
        photographs = photographs_for_check(model, source, config.recipe.data, place)
        report = load_weights(model, spec.weights, reset_head=spec.reset_head, photographs=photographs)
        notes.append(describe_weights(spec.weights, report))
    if spec.backbone_weights and fresh:
        notes.append(load_backbone(model, spec.backbone_weights, source, config.recipe.data, place))
    if spec.reset_head and not spec.weights:
        raise ConfigError("model.reset_head needs weights to leave the head out of. Give --weights FILE, or drop it.")
    if spec.freeze:
        count = freeze(model, spec)
        notes.append(f"{count} of {len(list(model.parameters()))} tensors are frozen ({', '.join(spec.freeze)})")
    return tuple(notes)


def make_model(config: Config, outputs: int, channels: int, place: torch.device) -> nn.Module:
    """The recipe's network from the recipe's seed, in the machine's memory layout."""
    spec = config.recipe.model
    torch.manual_seed(config.recipe.seed)
    model = build(
        spec.name,
        num_classes=outputs,
        in_channels=channels,
        init=spec.init,
        zero_gamma=spec.zero_gamma,
        stem=spec.stem,
        width=spec.width,
        drop_path=spec.drop_path,
        blurpool=spec.blurpool,
        box_sizes=spec.box_sizes,
        image_px=None if info(spec.name).ssd is None else config.recipe.data.image_px,
    )
    layout = torch.channels_last if config.machine.channels_last else torch.contiguous_format
    return model.to(device=place, memory_format=layout)  # type: ignore[call-overload, no-any-return]


def build_evaluator(
    config: Config, task: Task, source: Source, device: Device, world: World | None = None
) -> Evaluator:
    """Every process evaluates its own batches of the set."""
    machine, world = config.machine, world or World(Topology())
    place = device.torch_device(world.topology.local_rank)
    kept, _ = cache_in_memory(source, machine.cache_share / 2, world.size)
    order = EvalOrder(
        samples=len(source), batch=machine.eval_batch, max_batches=config.limits.max_eval_steps,
        rank=world.rank, world=world.size,
    )  # fmt: skip
    return Evaluator(
        task, source, task.eval_reader(kept), order, Normalizer(config.recipe.data, place), device, place,
        workers=machine.workers, prefetch=machine.prefetch, world=world,
    )  # fmt: skip


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _class_mismatch(train: tuple[str, ...], val: tuple[str, ...]) -> str:
    odd = sorted(set(train) ^ set(val))
    return (
        f"Training and validation data have different classes: {len(train)} and {len(val)}; "
        f"not in both: {', '.join(odd[:5])}{', ...' if len(odd) > 5 else ''}."
    )
