"""The loads that benchmarks step through."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from tests.queueing_device import QueueingCpu, VirtualClock, WindowsCpu
from tests.tiny_training import tiny_config
from vernier.config import Machine, override
from vernier.engine.processes.gradients import _DdpReduction
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.errors import ConfigError
from vernier.lab.measured.workloads import TrainingLoad


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(("kind", "exposed_s"), [(QueueingCpu, 0.020), (WindowsCpu, None)])
def test_work_that_is_still_queued_is_not_communication(
    shapes: Path, group: None, monkeypatch: pytest.MonkeyPatch, kind: type[QueueingCpu], exposed_s: float | None
) -> None:
    """The whole backlog of the backward pass was: gradients are handed over long before the device has them."""
    clock = VirtualClock()
    device = kind(clock, device_s=0.0, host_s=0.0)
    monkeypatch.setattr("vernier.engine.build.resolve", lambda _: device)
    monkeypatch.setattr("vernier.lab.phases.now_s", clock)
    real = dist.all_reduce

    def all_reduce(*arguments: Any, **named: Any) -> Any:
        device.queue(0.020)
        return real(*arguments, **named)

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    load = TrainingLoad(tiny_config(shapes))
    try:
        weights = list(load.job.model.parameters())
        for weight in weights:
            weight.register_hook(lambda _: device.queue(0.001))
        load.job.step.head_warmup.reduction = _DdpReduction(load.job.model, World(Topology()), Machine(), device)
        load.step()  # buckets are arranged anew after the first one
        phases = load.split(2)
    finally:
        load.close()
    total = pytest.approx([0.001 * len(weights) + 0.020] * 2)
    if exposed_s is None:
        assert "communication" not in phases
        assert phases["backward"] == total
    else:
        assert phases["communication"] == pytest.approx([exposed_s] * 2)
        assert [a + b for a, b in zip(phases["backward"], phases["communication"], strict=True)] == total


def test_half_precision_is_measured_with_its_loss_scaling(shapes: Path) -> None:
    """Elsewhere the benchmark of fp16 training had no loss scaler: it was not the training that people run."""
    config = override(override(tiny_config(shapes), "machine.precision", "fp16"), "machine.allow_slow", True)
    load = TrainingLoad(config)
    try:
        load.step()
        state = load.job.step.scaler.state()
        assert state is not None
        assert state["_growth_tracker"] == 1  # it has seen the step
    finally:
        load.close()


def test_exact_reduction_cannot_be_measured_without_its_exchange(shapes: Path) -> None:
    config = override(tiny_config(shapes), "machine.reduction", "exact")
    with pytest.raises(ConfigError, match="exchange of gradients") as error:
        TrainingLoad(config, apart=True)
    assert error.value.given["apart"] is True
    assert error.value.works == [("machine.reduction", "ddp")]
