"""Evaluation: every sample once, exactly, on any number of processes; during a training or of a trained model.

The task scores predictions (`tasks`); loading a trained model is `trained`'s business.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from vernier.clock import now_s
from vernier.config import Config, override
from vernier.data.augment.normalize import Normalizer
from vernier.data.loading.cache import cache_in_memory
from vernier.data.loading.loader import Batch, Loader
from vernier.data.loading.order import EvalOrder
from vernier.data.sources import Source
from vernier.data.sources.views import renumber_classes
from vernier.devices import Device
from vernier.engine.execution import Execution, borrowed, modes_restored
from vernier.engine.observe import Observer, Observers
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.errors import ConfigError
from vernier.measure.throughput import Window
from vernier.measure.what_ran import describe_feeding, describe_run
from vernier.records.run import EvalResult, EvaluationReport
from vernier.records.what_ran import WhatRan
from vernier.references import given
from vernier.store import write_json
from vernier.tasks import task_of
from vernier.tasks.base import Forward, Score, Task
from vernier.wording import plural

from .batch_times import BatchTimes
from .classes import ClassMatch, match_classes
from .trained import Trained


@contextlib.contextmanager
def evaluating(model: nn.Module, device: Device) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards each module gets its own mode back: frozen ones stay frozen."""
    with modes_restored(model), device.without_gradients():
        model.eval()
        yield


class Evaluator:
    """A validation set, ready to be scored repeatedly. Every process evaluates its own batches of it."""

    def __init__(
        self, config: Config, task: Task, source: Source, device: Device, world: World, *, takes_pixels: bool = False
    ) -> None:
        """With `takes_pixels` the network gets uint8 images, which it normalises itself."""
        machine = config.machine
        self._task, self._source, self._device, self._world = task, source, device, world
        self._exact, self._flip_tta = config.limits.max_eval_steps is None, config.recipe.eval.flip_tta
        self._torch_device = device.torch_device(world.topology.local_rank)
        self._normalize = None if takes_pixels else Normalizer(config.recipe.data, self._torch_device)
        self._order = EvalOrder(
            samples=len(source),
            batch=machine.eval_batch,
            max_batches=config.limits.max_eval_steps,
            rank=world.rank,
            world=world.size,
        )
        reader = task.eval_reader(cache_in_memory(source, machine.cache_share / 2, world.size)[0])
        self.bad = reader.bad
        self.times = BatchTimes(device)
        """Of this process's batches in the last evaluation."""
        self._loader = Loader(
            reader, batch=machine.eval_batch, workers=machine.workers, prefetch=machine.prefetch, device=device
        )

    def score(
        self,
        network: Execution,
        weights: dict[str, torch.Tensor] | None,
        observers: Observers,
        check_stop: Callable[[], None],
    ) -> Score:
        """Score the set: in the first process the whole set, in the others their part. `weights` replace the network's.

        `check_stop` may raise between batches. Every process calls it equally often, also one with fewer batches.
        """
        score, mine = self._task.score(self._source), self._order.own_batches()
        rounds = -(-self._order.batches // self._world.size)
        forward = network.evaluation_network(self._order.batch)
        batches = self._loader.batches((0, indices) for indices in mine)
        with borrowed(network.model, weights), evaluating(network.model, self._device), contextlib.closing(batches):
            self.times = BatchTimes(self._device)
            for done in range(1, rounds + 1):
                if done <= len(mine):
                    began_s = now_s()
                    batch = next(batches)
                    wait_s = now_s() - began_s
                    self._add(score, batch, forward)
                    self.times.add(wait_s)
                observers.progress("evaluate", done, rounds)
                check_stop()
            score.collect()
        score.merge(self._world.gather(score)[1:])
        return score

    def result(self, score: Score, *, averaged: bool) -> EvalResult:
        """The result of a score, the same in every process."""
        result = self._world.broadcast_from_first(score.result)
        return replace(result, averaged=averaged, exact=self._exact, flip_tta=self._flip_tta)

    def _add(self, score: Score, batch: Batch, forward: Forward) -> None:
        images = self._device.upload(batch.images, self._torch_device)
        if self._normalize is not None:
            images = self._normalize(images)
        self._device.uploads_done()
        score.add(self._task.predict(forward, images), batch.targets)
        self._device.mark_step()

    def close(self) -> None:
        self._loader.close()


def evaluate_trained(
    trained: Trained,
    *,
    data: str | None = None,
    max_eval_steps: int | None = None,
    observers: Sequence[Observer] = (),
    split: str | None = None,
    out: Path | None = None,
    world: World | None = None,
    classes_by_number: bool = False,
) -> EvaluationReport:
    """Evaluate a model on a split of its own or of other data; its predictions go to `out` as JSON files.

    Without a `split`: the validation split, or all of other data that has no splits. With several processes the first
    one's report is about all of them.
    """
    world = world or World(Topology())
    config = override(trained.config, "limits.max_eval_steps", max_eval_steps)
    if data is not None:
        config = override(config, "data.source", data)
    device, task = trained.device, task_of(config.recipe)
    source, match = open_matched(trained, config, split, classes_by_number=classes_by_number)
    trained = with_engine(replace(trained, config=config), source, batch=config.machine.eval_batch)
    evaluator = Evaluator(config, task, source, device, world, takes_pixels=trained.takes_pixels)
    network = Execution(trained.model, config.machine, device, frozen=True)
    began_s = now_s()
    try:
        score = evaluator.score(network, None, Observers(*observers), lambda: None)
    finally:
        evaluator.close()
    seconds = now_s() - began_s
    return EvaluationReport(
        **vars(evaluator.result(score, averaged=trained.averaged)),
        weights=trained.origin,
        data=config.recipe.data.source,
        split="all" if source.undivided else split or "val",
        step=trained.step,
        seconds=seconds,
        images_per_s_total=Window(samples=score.samples, wall_s=seconds).samples_per_s,
        compilation=network.compilation,
        procs=world.size,
        threads=torch.get_num_threads(),
        written=() if out is None or not world.first else _write_documents(score, out),
        notes=(*trained.notes, *source.notes, *match.notes),
        bad_images=_bad_images(evaluator, world),
        classes_matched=match.how,
        prepared=trained.prepared or task.describe_preparation(),
        engine=trained.engine,
        ran=_what_ran(trained, config, task, world),
    )


def with_engine(trained: Trained, source: Source, *, batch: int, labelled: bool = True) -> Trained:
    """The model, run by the engine of its settings (`runtimes`), which is checked on images of the source."""
    if trained.config.machine.engine == "torch" and not trained.config.machine.int8:
        return trained
    from vernier.engine.runtimes.choosing import use_engine  # which evaluates and exports itself

    return use_engine(trained, source, batch=batch, labelled=labelled)


def _what_ran(trained: Trained, config: Config, task: Task, world: World) -> WhatRan:
    data, machine, devices = config.recipe.data, config.machine, trained.device.identity()
    ran = describe_run(
        config,
        "eval",
        image_px=data.eval_px,
        classes=len(trained.classes),
        channels=trained.channels,
        batch_per_device=machine.eval_batch,
        devices=world.size,
        feeding=describe_feeding(data.source, None, machine.workers),
        device_kind=trained.device.name,
        device=devices[0] if devices else None,
        threads=torch.get_num_threads(),
    )
    return replace(ran, mode=trained.runtime) if trained.runtime else ran


def _bad_images(evaluator: Evaluator, world: World) -> tuple[str, ...]:
    """The unreadable images of all processes."""
    return tuple(sorted({bad.path for part in world.gather(evaluator.bad.samples()) for bad in part}))


def open_matched(
    trained: Trained, config: Config, split: str | None, *, classes_by_number: bool = False
) -> tuple[Source, ClassMatch]:
    """The data of `config` with its labels under the numbers of the model's outputs, and how they were matched.

    Raises ConfigError for a split that is not there and for classes or images that are not the model's.
    """
    data = config.recipe.data
    if data.hold_out and not _is_own(trained, data.source):
        config = override(config, "data.hold_out", False)
    task = task_of(config.recipe, config.machine)
    if len(data.mean) != trained.channels:
        raise ConfigError(
            f"{given('data.mean')} has {plural(len(data.mean), 'value')}, but the model takes images of "
            f"{plural(trained.channels, 'channel')}. Omit {given('data.mean')} and {given('data.std')}: "
            "images are converted to what the model takes."
        )
    source = task.open(split or "val", whole=split is None)
    if source.undivided:
        source = _held_out_part(trained, task, data.source) or source
    match = match_classes(
        trained.classes, source.classes, named=trained.named, by_number=classes_by_number, metric=task.metric
    )
    return source if match.in_order else renumber_classes(source, trained.classes, match.outputs), match


def _held_out_part(trained: Trained, task: Task, name: str) -> Source | None:
    """The validation part of a folder without splits that the model was trained on, or of a copy; None for others."""
    is_own = _is_own(trained, name)
    try:
        unchanged = task.open("train").fingerprint() == trained.own_fingerprint
    except ConfigError:  # it cannot be divided, so nothing was trained on a part of it
        if is_own:
            raise
        return None
    if not is_own and not unchanged:
        return None
    source = task.open("val")
    if trained.own_fingerprint and not unchanged:
        source.notes += ("the folder or its val_share has changed since then: images that were trained on may be here",)
    return source


def _is_own(trained: Trained, name: str) -> bool:
    """Whether a data set is the one that the model was trained on, by its path."""
    own = trained.own_data
    return name == own or (bool(own) and Path(name).expanduser().resolve() == Path(own).expanduser().resolve())


def _write_documents(score: Score, out: Path) -> tuple[str, ...]:
    out.mkdir(parents=True, exist_ok=True)
    documents = score.documents()
    for name, document in documents.items():
        write_json(out / f"{name}.json", document)
    return tuple(str(out / f"{name}.json") for name in documents)
