"""Exact reduction: the same weights, bit for bit, whatever the number of processes; and what it refuses."""

import gc
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.engine.processes.workers import config_for
from tests.kernels.exact import exact_workers
from vernier.config import Derived
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.devices.cpu import Cpu
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.engine.training.session import train
from vernier.errors import ConfigError, RunFailed
from vernier.kernels.exact.reduction import ExactReduction, refuse_unequal_processes

REPO = Path(__file__).resolve().parents[3]
ALONE = World(Topology())
EVERYTHING, MORE = (1, 2, 3), (4, 6)
"""Numbers of processes that do all trainings, and that do one."""


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def answers(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, str]]:
    """Digests by the number of processes. Two processes are killed in the middle of a training, which three resume."""
    folder = tmp_path_factory.mktemp("exact")
    boxes = make_shapes(folder / "boxes", ShapesSpec(kind="detect", train=24, val=6, size_px=96, seed=3))
    common = {"shapes": str(shapes), "boxes": str(boxes), "kill": False, "resume": ""}
    plans: list[dict[str, Any]] = []
    for procs in (*EVERYTHING, *MORE):
        names = list(exact_workers.SCENARIOS) if procs in EVERYTHING else ["plain"]
        files = {"out": str(folder / f"{procs}"), "answer": str(folder / f"{procs}.json")}
        plans.append({**common, **files, "procs": procs, "scenarios": names})
    plans[2]["resume"] = str(folder / "begun" / "killed")
    plans.insert(1, {**plans[1], "kill": True, "out": str(folder / "begun")})
    (folder / "plans.json").write_text(json.dumps(plans))
    done = subprocess.run(
        [sys.executable, str(REPO / "tests/kernels/exact/exact_workers.py"), str(folder / "plans.json")],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{REPO}"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {procs: json.loads((folder / f"{procs}.json").read_text()) for procs in (*EVERYTHING, *MORE)}


@pytest.mark.slow
@pytest.mark.parametrize("name", exact_workers.SCENARIOS)
@pytest.mark.parametrize("procs", [2, 3])
def test_the_state_is_the_same_for_any_number_of_processes(
    answers: dict[int, dict[str, str]], procs: int, name: str
) -> None:
    """Weights, optimiser, averages, statistics, loss scale, losses and results: one digest of them all.

    Two processes do so with activation checkpointing.
    """
    assert answers[procs][name] == answers[1][name]


@pytest.mark.slow
@pytest.mark.parametrize("procs", MORE)
def test_four_and_six_processes_too(answers: dict[int, dict[str, str]], procs: int) -> None:
    assert answers[procs] == {"plain": answers[1]["plain"]}


@pytest.mark.slow
def test_a_killed_training_goes_on_with_another_number_of_processes(answers: dict[int, dict[str, str]]) -> None:
    assert answers[3]["resumed"] == answers[1]["plain"]


@pytest.mark.slow
def test_trainings_differ_from_each_other(answers: dict[int, dict[str, str]]) -> None:
    assert len(set(answers[1].values())) == len(exact_workers.SCENARIOS)


@pytest.mark.slow
def test_one_shard_is_the_usual_training_of_one_process(shapes: Path, tmp_path: Path) -> None:
    """The sums, buckets and statistics of exact reduction change nothing where there is nothing to add."""
    files = {}
    for reduction, shards in (("ddp", None), ("exact", 1)):
        changes = {"machine.reduction": reduction, "virtual_shards": shards, "limits.max_steps": 3, "ema.decay": 0.9}
        run = train(config_for(str(shapes), **changes), tmp_path / reduction, world=ALONE).run
        checkpoint = run.checkpoints.committed()[-1].path
        files[reduction] = [load_file(checkpoint / f"{name}.safetensors") for name in ("model", "optimizer", "ema")]
    for usual, exact in zip(files["ddp"], files["exact"], strict=True):
        assert usual.keys() == exact.keys()
        assert all(torch.equal(usual[name], exact[name]) for name in usual)


def derived(shards: int) -> Derived:
    return Derived(
        world=1,
        process_batch=4,
        accumulation=shards,
        lr=0.1,
        end_lr=0.0,
        steps_per_epoch=1,
        total_steps=1,
        stop_step=1,
        virtual_shards=shards,
    )


def small_network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))


def one_step(exchange: ExactReduction, images: torch.Tensor, shards: int, *, correct: bool = False) -> None:
    exchange.begin_step()
    for shard in images.chunk(shards):
        exchange.begin_micro()
        loss = exchange.network(shard).square().mean()
        exchange.forward_done(loss, torch.tensor([1.0, 3.0]) if correct else None)
        (loss / shards).backward()
        exchange.backward_done()
    exchange.average()


def test_gradient_loss_and_hits_are_those_of_the_whole_batch() -> None:
    """With batch norm switched off, a mean over shards is the mean over their images."""
    network, images = small_network(), torch.randn(12, 1, 4, 4)
    network[1].eval()  # type: ignore[index]
    exchange = ExactReduction(network, ALONE, derived(3), 25, Cpu())
    one_step(exchange, images, 3, correct=True)
    sums = [p.grad.clone() for p in network.parameters() if p.grad is not None]
    reference = small_network()
    reference[1].eval()  # type: ignore[index]
    loss = reference(images).square().mean()
    loss.backward()
    for mine, other in zip(sums, reference.parameters(), strict=True):
        torch.testing.assert_close(mine, other.grad)
    torch.testing.assert_close(exchange.loss, loss.detach())
    assert exchange.correct is not None
    assert exchange.correct.tolist() == [3.0, 9.0]
    assert exchange.pop_times() == []


def test_statistics_are_updated_once_per_step_by_the_mean_of_the_shards() -> None:
    network, images = small_network(), torch.randn(12, 1, 4, 4)
    means = torch.stack([network[0](part).mean((0, 2, 3)) for part in images.chunk(3)]).detach()  # type: ignore[index]
    one_step(ExactReduction(network, ALONE, derived(3), 25, Cpu()), images, 3)
    norm = network[1]  # type: ignore[index]
    torch.testing.assert_close(norm.running_mean, 0.1 * means.mean(0))
    assert int(norm.num_batches_tracked) == 1


def test_statistics_of_frozen_layers_stay_as_they_are() -> None:
    """The mean of twelve equal numbers is not always that number."""
    network = small_network()
    norm = network[1].eval()  # type: ignore[index]
    norm.running_mean.copy_(torch.rand(4))
    before = norm.running_mean.clone()
    one_step(ExactReduction(network, ALONE, derived(12), 25, Cpu()), torch.randn(12, 1, 4, 4), 12)
    assert torch.equal(norm.running_mean, before)
    assert int(norm.num_batches_tracked) == 0


def test_gradients_do_not_depend_on_the_size_of_buckets() -> None:
    images, gradients = torch.randn(12, 1, 4, 4), []
    for bucket_mb in (0, 25):  # 0: every parameter has its own
        network = small_network()
        one_step(ExactReduction(network, ALONE, derived(4), bucket_mb, Cpu()), images, 4)
        gradients.append([p.grad for p in network.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_a_parameter_without_a_gradient_is_an_error() -> None:
    network = nn.ModuleDict({"used": nn.Linear(2, 1), "unused": nn.Linear(2, 1)})
    exchange = ExactReduction(network, ALONE, derived(1), 25, Cpu())
    exchange.begin_step()
    exchange.begin_micro()
    loss = network["used"](torch.ones(1, 2)).sum()
    exchange.forward_done(loss, None)
    loss.backward()
    with pytest.raises(RunFailed, match=r"got no gradient.*machine.reduction=ddp"):
        exchange.average()


def test_the_network_is_freed_with_its_exchange() -> None:
    """Hooks of parameters refer to buckets; a bucket that referred to parameters would keep them for ever."""
    network = small_network()
    exchange = ExactReduction(network, ALONE, derived(2), 25, Cpu())
    one_step(exchange, torch.randn(4, 1, 4, 4), 2)
    gone = weakref.ref(network)
    del network, exchange
    gc.collect()
    assert gone() is None


class Peers(World):
    """Two processes, of which only this one is here."""

    def __init__(self, *others: Any) -> None:
        super().__init__(Topology(world=2))
        self._others = others

    def gather(self, value: Any) -> list[Any]:
        return [value, *(other(value) for other in self._others)]

    def broadcast_from_first(self, compute: Any) -> Any:
        return compute()


def test_processes_that_compute_differently_are_refused() -> None:
    refuse_unequal_processes(Peers(lambda value: ("rank 1", value[1])), Cpu(), 1)
    with pytest.raises(ConfigError, match=r"rank 0 has .*1 thread,.*rank 1 has .*2 threads.*same machine.thr"):
        refuse_unequal_processes(Peers(lambda value: ("rank 1", (value[1][0], 2, value[1][2]))), Cpu(), 1)
    with pytest.raises(ConfigError, match=r"rank 1 has Another CPU.*Use hosts of one kind"):
        refuse_unequal_processes(Peers(lambda value: ("rank 1", ("Another CPU", *value[1][1:]))), Cpu(), 1)
