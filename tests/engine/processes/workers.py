"""What each process of the tests with several processes does: a few small trainings, with results for comparison.

Run as `torchrun --nproc-per-node N workers.py PLAN.json`, or called in one process. All comparisons share these
trainings, because every process costs seconds of imports.
"""

import copy
import gc
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.engine.inference.loading import load_trained
from vernier.config import Config, Machine, override
from vernier.devices import resolve
from vernier.devices.cpu import Cpu
from vernier.engine import build
from vernier.engine.inference.evaluate import evaluate_trained
from vernier.engine.processes.gradients import build_reduction
from vernier.engine.processes.launch import topology
from vernier.engine.processes.world import World, join_processes
from vernier.engine.training import setup
from vernier.engine.training.checkpoints.resume import ResumePoint
from vernier.engine.training.session import train
from vernier.engine.training.step import TrainStep
from vernier.records.codec import encode
from vernier.records.events import DivergenceEvent, StepEvent
from vernier.store import RunDir
from vernier.tasks.base import MicroStep


class NoCollectives(Cpu):
    """A device whose gradients are averaged in host memory."""

    backend = None


def config_for(shapes: str, **changes: Any) -> Config:
    settings: dict[str, Any] = {
        "data.source": shapes,
        "data.image_px": 16,
        "data.eval_px": 16,
        "data.eval_short_side_px": 16,
        "augment.crop": "none",
        "model.name": "resnet8-small",
        "model.width": 8,
        "model.stem": "small",
        "global_batch": 24,
        "optim.lr": 0.05,
        "schedule.epochs": 2.0,
        "limits.log_every_steps": 1,
        "machine.threads": 1,
        "machine.workers": 1,
        "machine.eval_batch": 7,
        "machine.rank_timeout_s": 20.0,
        "eval.every_epochs": 0.0,
        "checkpoint.every_epochs": 0.0,
    }
    config = Config()
    for name, value in {**settings, **changes}.items():
        config = override(config, name.replace("__", "."), value)
    return config


def thread_names() -> list[str]:
    """Names of the threads of this process, on Linux."""
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]


def losses(run: RunDir) -> list[float]:
    return [event.loss for event in run.history() if isinstance(event, StepEvent)]


def without_norm(model: nn.Module) -> nn.Module:
    for name, child in list(model.named_children()):
        if isinstance(child, nn.BatchNorm2d):
            setattr(model, name, nn.Identity())
        else:
            without_norm(child)
    return model


def scenario(plan: dict[str, Any], world: World, name: str, **changes: Any) -> RunDir:
    changes.setdefault("machine.procs", world.size)
    config = config_for(plan["shapes"], **changes)
    outcome = train(config, Path(plan["out"]) / name, world=world)
    return outcome.run


def rolled_back(plan: dict[str, Any], world: World) -> dict[str, Any]:
    """A training whose loss is infinite at step 4 in the last process only, until the rate is lower."""
    loss = TrainStep._loss

    def poisoned(step: TrainStep, at: MicroStep, batch: Any, **options: Any) -> torch.Tensor:
        bad = at.step == 3 and world.rank == world.size - 1 and step.lr_factor == 1.0
        return loss(step, at, batch, **options) * (float("inf") if bad else 1.0)

    TrainStep._loss = poisoned  # type: ignore[method-assign]
    try:
        changes = {"limits.on_divergence": "rollback", "limits.max_steps": 5, "checkpoint.every_steps": 2}
        run = scenario(plan, world, "rolled back", **changes)
    finally:
        TrainStep._loss = loss  # type: ignore[method-assign]
    # First the steps are repeated as they were, then with a lower rate.
    repeated, event = (event for event in run.history(world.rank) if isinstance(event, DivergenceEvent))
    assert repeated.lr_factor == 1.0
    everywhere = world.gather([event.step, event.resumed_from])
    return {
        "ranks": event.ranks,
        "samples": event.samples,
        "agreed": everywhere,
        "steps": [e.step for e in run.history() if isinstance(e, StepEvent)],
    }


def in_buckets(world: World) -> dict[str, Any]:
    """The gradients of a few steps over several buckets: how far they are from the mean, and whether all agree."""
    torch.manual_seed(0)
    network = nn.Sequential(*(nn.Linear(600, 600) for _ in range(4)))
    exchange = build_reduction(network, world, Machine(bucket_mb=1), Cpu())
    errors, entered = [], world.heart.collectives_entered if world.heart else 0
    for step in range(5):
        images = torch.randn(8, 600, generator=torch.Generator().manual_seed(10 * step + world.rank))
        alone = copy.deepcopy(network)
        alone(images).square().mean().backward()
        means = [p.grad for p in alone.parameters() if p.grad is not None]
        exchange.begin_step()
        exchange.network(images).square().mean().backward()
        exchange.backward_done()
        world.average_(means)
        own = torch.cat([p.grad.reshape(-1) for p in network.parameters() if p.grad is not None])
        flat = torch.cat([mean.reshape(-1) for mean in means])
        errors.append(float((own - flat).norm() / flat.norm()))
        network.zero_grad()
    sums = world.gather(own.double().sum().item())
    buckets = (world.heart.collectives_entered - entered if world.heart else 0) // 5 - 1
    return {"errors": errors, "sums": sums, "buckets": buckets}


def everything(plan: dict[str, Any], world: World) -> dict[str, Any]:
    """Loss curves, sample order, weights and evaluations with these processes."""
    results: dict[str, Any] = {"processes": world.size}
    results["in sync"] = losses(
        scenario(plan, world, "sync", **{"model.batch_norm_images": 0, "eval.every_epochs": 1.0})
    )
    recomputed = {"model.batch_norm_images": 0, "machine.activation_checkpointing": True, "limits.max_steps": 3}
    results["recomputed"] = losses(scenario(plan, world, "recomputed", **recomputed))
    results["groups"] = losses(scenario(plan, world, "groups", **{"model.batch_norm_images": 4}))
    results["rolled back"] = rolled_back(plan, world)
    results["in buckets"] = in_buckets(world) if world.size > 1 else {}
    trained = load_trained(Path(plan["trained"])) if plan["trained"] else None
    if trained is not None:
        results["evaluated"] = encode(evaluate_trained(trained, world=world))
    real_build = build.build
    build.build = lambda *a, **k: without_norm(real_build(*a, **k))  # type: ignore[attr-defined]
    try:
        parts = {"machine.accumulation": 6 // world.size, "limits.max_steps": 6}
        plain = scenario(plan, world, "plain", **parts, **{"limits.train_accuracy": True})
        results["plain"] = losses(plain)
        results["correct"] = [event.top1 for event in plain.history() if isinstance(event, StepEvent)]
        if plan["resume"]:
            run = RunDir.open(Path(plan["resume"]))
            point = ResumePoint(run, run.checkpoints.committed()[0])
            config = config_for(
                plan["shapes"],
                **{"machine.procs": world.size, "limits.max_steps": 6, "machine.accumulation": 6 // world.size},
            )
            results["resumed"] = str(train(config, Path(plan["out"]), point, world=world).run.path)
        half = scenario(plan, world, "half", **{"machine.accumulation": 6 // world.size, "limits.max_steps": 3})
        results["half"], results["plain run"] = str(half.path), str(plain.path)
        build.resolve = lambda _: NoCollectives()  # type: ignore[attr-defined]
        host = scenario(plan, world, "host", **{"machine.accumulation": 6 // world.size, "limits.max_steps": 6})
        results["host run"] = str(host.path)
    finally:
        build.build, build.resolve = real_build, resolve  # type: ignore[attr-defined]
    job = setup.prepare(config_for(plan["shapes"], **{"machine.procs": world.size}), world=world)
    orders = world.gather([job.order.indices(0, step, 0).tolist() for step in range(3)])
    results["order"] = [[i for own in orders for i in own[step]] for step in range(3)]
    job.close()
    return results


def main(path: str) -> None:
    plan = json.loads(Path(path).read_text())
    config = config_for(plan["shapes"])
    torch.set_num_threads(1)
    with join_processes(topology(), resolve("cpu"), config.machine) as world:
        results = everything(plan, world)
        if world.first:
            Path(plan["answer"]).write_text(json.dumps(results))
    gc.collect()
    threads = thread_names().count("pt_gloo_runloop")
    if threads > 2:
        sys.exit(f"{threads} threads of process groups are left; PyTorch keeps the 2 of the default group")


if __name__ == "__main__":
    main(sys.argv[1])
