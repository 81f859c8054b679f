"""Evaluation: every sample once, exactly, on any number of processes; during a training or of a trained model.

The task scores predictions (`tasks`); loading a trained model is `trained`'s business.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from vernier.clock import now_s
from vernier.config import Config, override
from vernier.data.augment.normalize import Normalizer
from vernier.data.loading.loader import Batch, Loader
from vernier.data.loading.order import EvalOrder, fair_sample
from vernier.data.sources import Source
from vernier.data.sources.base import BoxSource, Indices
from vernier.data.sources.views import cache_in_memory, renumber_classes
from vernier.devices import Device
from vernier.engine.execution import Execution, borrowed, evaluating
from vernier.engine.observe import Observer, Observers
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.measure.throughput import Window
from vernier.measure.what_ran import describe_feeding, describe_run
from vernier.records.run import EvalResult, EvaluationReport, Part
from vernier.records.what_ran import WhatRan
from vernier.references import given, use
from vernier.store import write_json
from vernier.tasks import task_of
from vernier.tasks.base import Forward, Score, Task
from vernier.wording import plural

from .engines import find_engine
from .trained import Trained


class Evaluator:
    """A validation set, ready to be scored repeatedly. Every process evaluates its own batches of it."""

    def __init__(
        self, config: Config, task: Task, source: Source, device: Device, world: World, *, takes_pixels: bool = False
    ) -> None:
        """With `takes_pixels` the network gets uint8 images, which it normalises itself."""
        machine = config.machine
        self._task, self._source, self._device, self._world = task, source, device, world
        self._flip_tta = config.recipe.eval.flip_tta
        self._torch_device = device.torch_device(world.topology.local_rank)
        self._normalize = None if takes_pixels else Normalizer(config.recipe.data, self._torch_device)
        samples, self.part = _choose_samples(source, config.limits.max_eval_steps, machine.eval_batch)
        self._order = EvalOrder(samples=samples, batch=machine.eval_batch, rank=world.rank, world=world.size)
        # Half the share: the cache of the training set needs memory at the same time.
        reader = task.eval_reader(cache_in_memory(source, machine.cache_share / 2, world.size)[0])
        self.bad = reader.bad
        self.times = _BatchTimes(device)
        """Of this process's batches in the last evaluation."""
        self._loader = Loader(
            reader,
            batch=machine.eval_batch,
            workers=machine.workers,
            prefetch=machine.prefetch,
            device=device,
            samples=len(source),
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
        # The largest number of batches of any process: all of them call `check_stop`, which is collective, as often.
        rounds = -(-self._order.batches // self._world.size)
        forward = network.evaluation_network(self._order.batch)
        batches = self._loader.batches((0, indices) for indices in mine)
        with borrowed(network.model, weights), evaluating(network.model, self._device), contextlib.closing(batches):
            self.times = _BatchTimes(self._device)
            self._device.end_step()  # the weights that were lent are no part of the first batch's program
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
        self._device.end_step()  # nor their return a part of the next step's
        # By rank: the first process has its own part already, and the others get an empty list.
        score.merge(self._world.gather(score)[1:])
        return score

    def result(self, score: Score, *, averaged: bool) -> EvalResult:
        """The result of a score, the same in every process."""
        result = self._world.broadcast_from_first(score.result)
        return replace(result, averaged=averaged, exact=self.part is None, part=self.part, flip_tta=self._flip_tta)

    def _add(self, score: Score, batch: Batch, forward: Forward) -> None:
        images = self._device.upload(batch.images, self._torch_device)
        if self._normalize is not None:
            images = self._normalize(images)
        batch.copied()
        score.add(self._task.predict(forward, images), batch.targets)
        self._device.end_step()

    def close(self) -> None:
        self._loader.close()


def _choose_samples(source: Source, max_steps: int | None, batch: int) -> tuple[Indices, Part | None]:
    """The samples to evaluate: all of them, or a fair sample of so many batches, and what that sample covers.

    The class of an image with boxes is the rarest one in it; images without boxes are a class of their own.
    """
    every = np.arange(len(source))
    if max_steps is None or len(source) <= max_steps * batch:
        return every, None
    if isinstance(source, BoxSource):
        present = [set(source.boxes(index).classes.tolist()) for index in range(len(source))]
    else:
        present = [{label} for label in source.all_labels().tolist()]
    images = Counter(chain.from_iterable(present))
    # The rarest class decides, so that a short evaluation still has images of rare ones.
    kinds = np.array([min(classes, key=images.__getitem__, default=-1) for classes in present])
    chosen = fair_sample(kinds, max_steps * batch)
    classes = set().union(*(present[i] for i in chosen))
    return chosen, Part(images=len(chosen), of_images=len(every), classes=len(classes), of_classes=len(images))


def evaluate_trained(
    trained: Trained,
    *,
    max_eval_steps: int | None = None,
    observers: Sequence[Observer] = (),
    split: str | None = None,
    out: Path | None = None,
    world: World | None = None,
    classes_by_number: bool = False,
) -> EvaluationReport:
    """Evaluate a model on a split of the data of its configuration; its predictions go to `out` as JSON files.

    Without a `split`: the validation split, or all of other data that has no splits. With several processes the first
    one's report is about all of them.
    """
    world = world or World(Topology())
    config = override(trained.config, "limits.max_eval_steps", max_eval_steps)
    device, task = trained.device, task_of(config.recipe)
    source, match = _open_matched(trained, config, split, classes_by_number=classes_by_number)
    trained = with_engine(replace(trained, config=config), source, batch=config.machine.eval_batch)
    evaluator = Evaluator(config, task, source, device, world, takes_pixels=trained.takes_pixels)
    network = Execution(trained.model, config.machine, device, frozen=True)
    # After the set was opened and the engine checked: the rate is that of the evaluation alone.
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
    """The model, run by the engine of its settings, which is checked on images of the source."""
    engine = find_engine(trained.config.machine)
    return trained if engine is None else engine.use(trained, source, batch=batch, labelled=labelled)


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
    # A whole model in a file has no mode; what runs it, such as onnxruntime, takes its place.
    return replace(ran, mode=trained.runtime) if trained.runtime else ran


def _bad_images(evaluator: Evaluator, world: World) -> tuple[str, ...]:
    """The unreadable images of all processes."""
    return tuple(sorted({bad.path for part in world.gather(evaluator.bad.samples()) for bad in part}))


def _open_matched(
    trained: Trained, config: Config, split: str | None, *, classes_by_number: bool = False
) -> tuple[Source, "_ClassMatch"]:
    """The data of `config` with its labels under the numbers of the model's outputs, and how they were matched.

    Raises ConfigError for a split that is not there and for classes or images that are not the model's.
    """
    data = config.recipe.data
    # The model was not trained on other data, so that no part of it has to be held out.
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
    match = _match_classes(
        trained.classes, source.classes, named=trained.named, by_number=classes_by_number, metric=task.metric
    )
    return source if match.in_order else renumber_classes(source, trained.classes, match.outputs), match


def _held_out_part(trained: Trained, task: Task, name: str) -> Source | None:
    """The validation part of a folder without splits that the model was trained on, or of a copy; None for others."""
    is_own = _is_own(trained, name)
    try:
        # By content, too: a copy of the folder also has images that the model was trained on.
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


class _BatchTimes:
    """Collects moments; a batch lasts until the next one begins, loading included, as a step of training does."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._known = device.step_times != "windows"
        self._moments: list[Any] = [device.record_event()]
        self.wait_s: tuple[float, ...] = ()

    def add(self, wait_s: float) -> None:
        """A batch has been queued, after waiting so long for its images."""
        self.wait_s += (wait_s,)
        self._moments.append(self._device.record_event())

    def seconds(self) -> tuple[float, ...] | None:
        """The seconds of each batch, after synchronising; None where the device cannot tell."""
        if not self._known or not self.wait_s:
            return None
        self._device.synchronize()
        return tuple(max(0.0, self._device.elapsed_s(start, end)) for start, end in pairwise(self._moments))


SHOWN = 5
How = Literal["name", "order", "subset", "number"]


@frozen
class _ClassMatch:
    """The output of a model for each class of the data.

    `how`: the same names in the same order, in another order, a subset of the model's names, or by number alone.
    """

    how: How
    outputs: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def in_order(self) -> bool:
        """Whether class i of the data is output i of as many."""
        return self.how in ("name", "number")


def _match_classes(
    model: tuple[str, ...], data: tuple[str, ...], *, named: bool = True, by_number: bool = False, metric: str = "top1"
) -> _ClassMatch:
    """Match the classes of the data with the model's. Raises ConfigError where they are different ones.

    Not `named`: the model's classes are only numbers, as many as it has outputs. `by_number`: ignore the names.
    """
    if by_number or not named:
        return _match_numbers(model, data, named=named, metric=metric)
    if model == data:
        return _ClassMatch(how="name", outputs=tuple(range(len(data))))
    outputs = {name: output for output, name in enumerate(model)}
    # A name that occurs twice could be either output.
    if not set(data) <= set(model) or len(outputs) < len(model) or len(set(data)) < len(data):
        raise ConfigError(_explain_difference(model, data))
    matched = tuple(outputs[name] for name in data)
    if len(data) < len(model):
        return _ClassMatch(how="subset", outputs=matched, notes=(_describe_subset(len(model), len(data), metric),))
    note = (
        f"the data has the model's {len(model):,} classes in another order "
        f"({_list(data)} instead of {_list(model)}); they were matched by name"
    )
    return _ClassMatch(how="order", outputs=matched, notes=(note,))


def _match_numbers(model: tuple[str, ...], data: tuple[str, ...], *, named: bool, metric: str) -> _ClassMatch:
    numbers = tuple(int(name) if name.isascii() and name.isdecimal() else -1 for name in data)
    # People name folders 0, 7 and 13 after the outputs of weights that have no names.
    positions = len(set(numbers)) == len(data) and min(numbers) >= 0 and max(numbers) < len(model)
    if not named and positions and len(data) < len(model):
        notes = (
            f"classes taken by number: the weights have no class names, so the class called {data[-1]} is output "
            f"{numbers[-1]}, counted from 0",
            _describe_subset(len(model), len(data), metric),
        )
        return _ClassMatch(how="subset", outputs=numbers, notes=notes)
    if len(model) != len(data):
        counts = f"The model has {len(model):,} classes, the data has {len(data):,} ({_list(data)})"
        if named:
            raise ConfigError(
                f"{counts}: too few or too many for {given('classes_by_number', True)}. Without it, names are matched."
            )
        raise ConfigError(
            f"{counts}, and the weights have no class names to match by. Use data with the same classes, or give the "
            f"weights names: {use('classes', slot='FILE')} with one per line."
        )
    reason = given("classes_by_number", True) if named else "the weights have no class names"
    note = f"classes taken by number ({reason}): {data[0]} is output 0, {data[-1]} is output {len(data) - 1}"
    return _ClassMatch(how="number", outputs=tuple(range(len(data))), notes=(note,))


def _describe_subset(model: int, data: int, metric: str) -> str:
    """What a result on some of the classes is about: a classifier may take an image for any class it knows."""
    head = f"{data:,} of the model's {model:,} classes are in this data"
    if metric == "top1":
        return f"{head}; top-1 is over all {model:,} outputs"
    return f"{head}; {metric} is over those, objects of the other classes are not counted"


def _explain_difference(model: tuple[str, ...], data: tuple[str, ...]) -> str:
    if len(model) == len(data):
        pairs = [f"{i}: {a} | {b}" for i, (a, b) in enumerate(zip(model, data, strict=True)) if a != b]
        return (
            f"The data's {len(data):,} classes have other names than the model's. The first differences, "
            f"model | data: {_list(pairs)}. Use data with the model's class names, or take class i of the data for "
            f"output i of the model: {use('classes_by_number', True)}."
        )
    unknown = [name for name in data if name not in set(model)] or list(data)
    return (
        f"The model has {len(model):,} classes ({_list(model)}), the data has {len(data):,}, of which the model does "
        f"not know {len(unknown):,}: {_list(unknown)}. Use data with the model's class names, or with some of them."
    )


def _list(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else "")
