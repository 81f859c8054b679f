"""Averaging gradients: what is exposed on the device, and in host memory where the device has no collectives.

Several processes are compared in test_world; here one process is a group of its own.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn

from tests.conftest import TINY
from tests.queueing_device import QueueingCpu, VirtualClock, WindowsCpu
from vernier.config import Machine
from vernier.devices.cpu import Cpu
from vernier.engine.processes.gradients import GradientReduction, _DdpReduction, _LateReduction, build_reduction
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World

ALONE = World(Topology())


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class NoCollectives(Cpu):
    backend = None


class AfterBackward(Cpu):
    exchange = "after backward"


def test_the_exchange_suits_the_device(group: None) -> None:
    two, net = World(Topology(world=2)), nn.Linear(2, 1)
    assert type(build_reduction(net, ALONE, Machine(), Cpu())) is GradientReduction
    assert type(build_reduction(net.requires_grad_(False), two, Machine(), Cpu())) is GradientReduction
    assert isinstance(build_reduction(net.requires_grad_(True), two, Machine(), Cpu()), _DdpReduction)
    assert isinstance(build_reduction(net, two, Machine(), NoCollectives()), _LateReduction)
    assert isinstance(build_reduction(net, two, Machine(), AfterBackward()), _LateReduction)


def one_step(exchange: _DdpReduction, device: QueueingCpu, monkeypatch: pytest.MonkeyPatch, sending_s: float) -> None:
    """A step whose backward pass takes 30 ms on the device after 10 ms of forward pass; the host queues it in 1 ms."""

    def backward(gradient: torch.Tensor) -> None:
        device.queue(0.030)
        device.clock.now_s += 0.001

    real = dist.all_reduce

    def all_reduce(*arguments: Any, **named: Any) -> Any:
        device.queue(sending_s)
        return real(*arguments, **named)

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    output = exchange.network(torch.ones(1, 2))
    output.register_hook(backward)
    exchange.begin_step()
    device.queue(0.010)
    output.sum().backward()
    exchange.backward_done()


def test_exposed_communication_is_what_the_device_waits_for(group: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was the host's time since a bucket was queued: nearly nothing, or with a synchronisation the whole backlog."""
    device = QueueingCpu(VirtualClock(), device_s=0.0, host_s=0.0)
    exchange = _DdpReduction(nn.Linear(2, 1), ALONE, Machine(), device)
    for sending_s in (0.020, 0.0):
        one_step(exchange, device, monkeypatch, sending_s)
        monkeypatch.undo()
    device.synchronize()
    first, second = exchange.pop_times()
    assert (first.compute_s, first.exposed_s) == (pytest.approx(0.040), pytest.approx(0.020))
    assert (second.compute_s, second.exposed_s) == (pytest.approx(0.040), pytest.approx(0.0))
    assert exchange.pop_times() == []


def test_without_events_no_time_of_the_exchange_is_invented(group: None, monkeypatch: pytest.MonkeyPatch) -> None:
    device = WindowsCpu(VirtualClock(), device_s=0.0, host_s=0.0)
    exchange = _DdpReduction(nn.Linear(2, 1), ALONE, Machine(), device)
    one_step(exchange, device, monkeypatch, 0.020)
    assert exchange.pop_times() == []


def test_accumulated_gradients_are_not_sent(group: None, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = _DdpReduction(nn.Linear(2, 1), ALONE, Machine(), Cpu())
    monkeypatch.setattr(dist, "all_reduce", None)
    exchange.begin_step()
    with exchange.no_sync():
        exchange.network(torch.ones(1, 2)).sum().backward()
        exchange.backward_done()
    assert exchange.pop_times() == []


@pytest.mark.parametrize("on_host", [True, False])
def test_after_backward_nothing_changes_that_no_process_has_a_gradient_of(group: None, on_host: bool) -> None:
    """Frozen parameters and unused ones: a gradient of zeros would let weight decay and momentum change them."""
    network = nn.ModuleDict({name: nn.Linear(2, 1) for name in ("used", "unused", "frozen")})
    network["frozen"].requires_grad_(False)
    exchange = _LateReduction(network, ALONE, on_host=on_host)
    network["used"](torch.tensor([[1.0, 2.0]])).sum().backward()
    exchange.average()
    assert torch.equal(network["used"].weight.grad, torch.tensor([[1.0, 2.0]]))  # type: ignore[arg-type]
    assert all(p.grad is None for name in ("unused", "frozen") for p in network[name].parameters())
    times = exchange.pop_times()
    assert len(times) == on_host  # on a device that queues, no clock of the host knows them
    assert all(time.compute_s > 0 and time.exposed_s > 0 for time in times)


def test_an_overflow_survives_averaging_so_that_all_processes_skip_the_step(group: None) -> None:
    network = nn.Linear(2, 1)
    exchange = _LateReduction(network, ALONE, on_host=True)
    network(torch.tensor([[1.0, float("inf")]])).sum().backward()
    exchange.average()
    assert not bool(network.weight.grad.isfinite().all())  # type: ignore[union-attr]


@pytest.mark.slow
def test_two_processes_on_a_device_without_collectives_learn_what_two_on_the_cpu_do(
    shapes: Path, tmp_path: Path, rgpu_environment: dict[str, str]
) -> None:
    """rgpu's server computes with the CPU's kernels, in another order: weights agree within 1e-4 after eight steps."""
    weights = {}
    for device in ("cpu", "rgpu"):
        flags = ["--procs", "2", "--device", device, "--set", "machine.accumulation=2", "--set", "limits.max_steps=8"]
        flags += ["--set", "model.batch_norm_images=0", "--set", "machine.telemetry_hz=0"]
        command = [sys.executable, "-m", "vernier", "train", "--data", str(shapes), "--out", str(tmp_path / device)]
        done = subprocess.run(
            [*command, *TINY, *flags], capture_output=True, text=True, timeout=300, env=rgpu_environment
        )
        assert done.returncode == 0, done.stderr[-3000:]
        (run,) = (tmp_path / device).iterdir()
        weights[device] = load_file(max((run / "checkpoints").glob("step-*")) / "model.safetensors")
    assert json.loads((run / "run.json").read_text())["summary"]["spent_s"]["communication"] > 0
    worst = max(float((weights["cpu"][k] - weights["rgpu"][k]).abs().max()) for k in weights["cpu"])
    assert worst < 1e-4
