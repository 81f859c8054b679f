"""One optimiser step: accumulated gradients, and the phases a timer sees."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import repeat
from typing import Any

import torch
from torch import nn

from vernier.config import Config, Machine, Optim, Recipe, Schedule, derive
from vernier.data.loading.loader import Batch
from vernier.devices.cpu import Cpu
from vernier.engine.processes.gradients import Exchange
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.engine.training.step import TrainStep
from vernier.models import build
from vernier.optim.build import build_optimizer
from vernier.tasks import task_of

IMAGES = torch.randint(0, 256, (8, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(8)


def without_batch_norm(model: nn.Module) -> nn.Module:
    """Batch norm depends on which images are in a micro-batch; without it their gradients add up exactly."""
    for name, child in list(model.named_children()):
        if isinstance(child, nn.BatchNorm2d):
            setattr(model, name, nn.Identity())
        else:
            without_batch_norm(child)
    return model


def step_of(accumulation: int) -> tuple[nn.Module, TrainStep, Iterator[Batch]]:
    """A model from a fixed seed, its step, and the same eight images in micro-batches."""
    torch.manual_seed(0)
    recipe = Recipe(global_batch=8, optim=Optim(lr=0.05, momentum=0.0), schedule=Schedule(kind="constant", epochs=100))
    config = Config(recipe=recipe, machine=Machine(threads=1, accumulation=accumulation))
    derived = derive(config, train_samples=8)
    model = without_batch_norm(build("resnet8-small", num_classes=10, width=8))
    step = TrainStep(
        config=config,
        derived=derived,
        task=task_of(recipe),
        model=model,
        exchange=Exchange(model),
        optimizer=build_optimizer(model, replace(recipe.optim, weight_decay=0.0), derived.lr),
        average=None,
        device=Cpu(),
        world=World(Topology()),
    )
    batches = zip(IMAGES.chunk(accumulation), LABELS.chunk(accumulation), strict=True)
    return model, step, iter([Batch(images, labels, 0.0) for images, labels in batches])


def test_accumulation_gives_the_same_gradient_as_one_large_batch() -> None:
    gradients, losses = [], []
    for accumulation in (1, 4):
        model, step, batches = step_of(accumulation)
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        losses.append(float(step(0, batches)[0]))
        gradients.append({name: (before[name] - p.detach()) / 0.05 for name, p in model.named_parameters()})
    assert max(float(g.abs().max()) for g in gradients[0].values()) > 1e-3
    for name, whole in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], whole, rtol=1e-3, atol=1e-5, msg=name)
    torch.testing.assert_close(losses[1], losses[0])


def test_every_phase_of_a_step_is_timed_once_per_micro_batch() -> None:
    _, step, batches = step_of(2)
    phases: list[str] = []

    @contextmanager
    def record(name: str) -> Iterator[Any]:
        phases.append(name)
        yield

    step.phase = record
    step(0, batches)
    assert phases == ["data", "copy", "forward", "backward"] * 2 + ["optimizer"]


def test_the_data_wait_of_a_step_is_that_of_its_batches() -> None:
    _, step, _ = step_of(2)
    _, wait_s = step(0, repeat(Batch(IMAGES[:4], LABELS[:4], 0.25)))
    assert wait_s == 0.5
