"""One optimiser step: accumulated gradients, the phases a timer sees, and that nothing waits for the device."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.conftest import REPO
from vernier.config import Config, Machine, Recipe, Schedule, derive
from vernier.data.loading.loader import Batch
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.devices.cpu import Cpu
from vernier.engine.processes.gradients import GradientReduction
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.engine.training.head_warmup import HeadWarmup
from vernier.engine.training.step import TrainStep
from vernier.models import build
from vernier.models.drop_path import DropPath, PathMasks
from vernier.optim.build import build_optimizer
from vernier.optim.kinds.sgd import Sgd
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


def step_of(
    accumulation: int, *, rank: int = 0, drop_path: float = 0.0
) -> tuple[nn.Module, TrainStep, Iterator[Batch]]:
    """A model from a fixed seed, its step, and the same eight images in micro-batches."""
    torch.manual_seed(0)
    recipe = Recipe(global_batch=8, optim=Sgd(lr=0.05, momentum=0.0), schedule=Schedule(kind="constant", epochs=100))
    config = Config(recipe=recipe, machine=Machine(threads=1, accumulation=accumulation))
    derived = derive(config, train_samples=8)
    model = without_batch_norm(build("resnet8-small", num_classes=10, width=8, drop_path=drop_path))
    step = TrainStep(
        config=config,
        derived=derived,
        task=task_of(recipe),
        model=model,
        head_warmup=HeadWarmup(model, 0, lambda: GradientReduction(model)),
        optimizer=build_optimizer(model, replace(recipe, optim=replace(recipe.optim, weight_decay=0.0)), derived.lr),
        average=None,
        device=Cpu(),
        world=World(Topology(rank=rank)),
        paths=PathMasks(model, derived.process_batch, torch.device("cpu")),
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


def test_hits_are_counted_over_micro_batches_with_the_weights_of_the_step() -> None:
    model, step, batches = step_of(2)
    images = step._normalize(IMAGES)
    with torch.no_grad():
        best = model(images).topk(5, dim=1).indices
    right = best == LABELS[:, None]
    step(0, batches)
    assert step.correct.pop().tolist() == []  # off unless asked for
    model, step, batches = step_of(2)
    step.correct.enabled = True
    step(0, batches)
    assert step.correct.pop().tolist() == [int(right[:, 0].sum()), int(right.sum())]
    assert step.correct.pop().tolist() == []


def test_the_data_wait_of_a_step_is_that_of_its_batches() -> None:
    _, step, _ = step_of(2)
    _, wait_s = step(0, repeat(Batch(IMAGES[:4], LABELS[:4], 0.25)))
    assert wait_s == 0.5


@pytest.mark.slow
def test_steps_do_not_wait_for_a_device_that_queues(
    shapes: Path, tmp_path: Path, rgpu_environment: dict[str, str]
) -> None:
    """A report waits twice, however many steps it covers: once for the steps, once for their losses.

    MixUp, training accuracy, moving average, clipping and accumulation; a detector's loss. With fp16, PyTorch's
    GradScaler waits once per step to learn whether to skip it; it was three times, to count the skipped ones.
    """
    boxes = make_shapes(tmp_path / "boxes", ShapesSpec(kind="detect", train=12, val=2, size_px=96, seed=5))
    script = [sys.executable, str(REPO / "tests/engine/training/count_waits.py"), str(shapes), str(boxes)]
    environ = {**rgpu_environment, "PYTHONPATH": f"{rgpu_environment['PYTHONPATH']}:{REPO}"}
    done = subprocess.run(script, capture_output=True, text=True, timeout=300, env=environ)
    assert done.returncode == 0, done.stderr[-3000:]
    reports = json.loads(done.stdout.splitlines()[-1])
    assert all({1, 3} <= {steps for steps, _ in of_one} for of_one in reports.values())
    assert [waits for name in ("classifier", "detector") for steps, waits in reports[name] if waits != 2] == []
    assert [(steps, waits) for steps, waits in reports["fp16"] if waits != 2 + steps] == []


def test_stochastic_depth_depends_on_step_micro_step_and_rank_and_on_no_generator() -> None:
    masks: dict[tuple[int, int], list[str]] = {}
    for seed, (rank, number) in enumerate([(0, 0), (0, 1), (1, 0), (0, 0)]):
        model, step, batches = step_of(2, rank=rank, drop_path=0.5)
        drawn: list[str] = []

        @contextmanager
        def look(phase: str, model: nn.Module = model, drawn: list[str] = drawn) -> Iterator[None]:
            if phase == "backward":
                drawn.append(str([m.mask for m in model.modules() if isinstance(m, DropPath)]))
            yield

        step.phase = look
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        step(number, batches)
        assert torch.equal(state, torch.get_rng_state())
        assert masks.setdefault((rank, number), drawn) == drawn  # the same question, the same answer
    assert len({mask for drawn in masks.values() for mask in drawn}) == 6


_ON_BOTH_DEVICES = """
import json, sys
from pathlib import Path
import rgpu, torch
from tests.tiny_training import tiny_config
from vernier.config import Augment, Ema, Model, override, optimizers
from vernier.optim.kinds.sgd import Sgd
from vernier.engine.observe import Observers
from vernier.engine.training.setup import prepare

STEPS, results = 4, {}
for optimizer in ("sgd", "lars"):
    config = tiny_config(
        Path(sys.argv[1]),
        model=Model(name="resnet14-small", width=8, drop_path=0.5),
        augment=Augment(crop="pad", mixup=0.2, cutmix=1.0),
        optim=optimizers()[optimizer](lr=0.02, clip_norm=1.0),
        ema=Ema(decay=0.9),
    )
    config = override(config, "machine.accumulation", 2)
    weights, figures, masks = [], [], []
    for device in ("cpu", "rgpu"):
        job = prepare(override(config, "machine.device", device))
        batches = job.loader.batches(job.requests(0, STEPS))
        before = rgpu.session.get().stats["waits"]
        for step in range(STEPS):
            job.step(step, batches)
        round_trips = rgpu.session.get().stats["waits"] - before
        masks.append([module.mask.flatten().tolist() for module in job.model.modules() if hasattr(module, "mask")])
        score = job.evaluator.score(job.network, job.average.tensors, Observers(), lambda: None)
        figures.append(job.evaluator.result(score, averaged=True).figures)
        weights.append(torch.cat([p.detach().cpu().flatten() for p in job.model.parameters()]))
        job.close()
    apart = (weights[0] - weights[1]).norm() / weights[0].norm()
    results[optimizer] = {"apart": float(apart), "round_trips": round_trips, "figures": figures, "masks": masks}
print(json.dumps(results))
"""


@pytest.mark.slow
def test_a_device_that_queues_learns_what_the_cpu_learns_without_waiting(
    shapes: Path, on_rgpu: Callable[..., Any]
) -> None:
    """Stochastic depth, mixing, accumulation, clipping and averaging: no value is read back.

    Without LAMB, whose first steps are the signs of gradients, also of those that are rounding errors.
    """
    for optimizer, result in on_rgpu(_ON_BOTH_DEVICES, shapes).items():
        on_cpu, on_device = result["masks"]
        assert on_cpu == on_device
        assert any(0.0 in mask for mask in on_cpu)
        assert result["apart"] < 1e-5, optimizer
        assert result["round_trips"] == 0, optimizer
        assert result["figures"][1] == pytest.approx(result["figures"][0], rel=1e-4), optimizer
