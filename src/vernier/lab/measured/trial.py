"""One thing tried on a device in this process, with the code that training and evaluation use.

`lab.machine.trials` starts the processes and shows what happened: `vernier doctor --devices`.
"""

import math

import torch

from vernier.config import Config, config_from_tree
from vernier.devices import Device, resolve
from vernier.engine.observe import Observers
from vernier.engine.processes.world import World
from vernier.errors import RunFailed
from vernier.records.bench import TrialRequest, TrialResult
from vernier.wording import plural

from .workloads import TrainingLoad

STEPS = 2
_COPIED_BYTES = 2**20
_SIZE = 256
_PRODUCTS = 10


def run_trial(request: TrialRequest, world: World) -> TrialResult:
    """Try what is requested. Raises whatever goes wrong, ConfigError where the device refuses."""
    config = config_from_tree(request.config)
    if request.trial in ("train", "evaluate"):
        return TrialResult(seen=_use_network(config, world, evaluate=request.trial == "evaluate"))
    device = resolve(config.machine.device)
    device.prepare()
    if request.trial == "identity":
        return TrialResult(seen=_describe(device), devices=tuple(device.identity()))
    return TrialResult(seen=_copy(device) if request.trial == "copies" else _time(device))


def _describe(device: Device) -> str:
    """The answers of the device that decide how it is used."""
    return ", ".join(
        [
            f"collectives {device.backend or 'in host memory'}",
            f"step times by {device.step_times}",
            "several processes per device" if device.shared else "one process per device",
        ]
    )


def _use_network(config: Config, world: World, *, evaluate: bool) -> str:
    """Steps of a training, or one evaluation; then the loss must be a number and the processes must agree."""
    load = TrainingLoad(config, world)
    try:
        if evaluate:
            return _evaluate(load)
        load.device.reset_peak_memory()
        for _ in range(STEPS):
            load.step()
        loss, memory, compiled = float(load.loss), load.device.memory(), load.network.compilation
        if not math.isfinite(loss):
            raise RunFailed(f"the loss is {loss} after {STEPS} steps")
        seen = [f"loss {loss:.3f}", _compare_processes(load, world)]
        if config.machine.mode == "compile":
            seen.append(f"{plural(compiled.graphs, 'graph')} in {compiled.seconds:.0f} s")
        seen.append("peak memory unknown" if memory is None else f"peak memory {memory.peak_bytes / 2**20:.1f} MiB")
        return ", ".join(part for part in seen if part)
    finally:
        load.close()


def _evaluate(load: TrainingLoad) -> str:
    job = load.job
    assert job.evaluator is not None
    result = job.evaluator.result(job.evaluator.score(job.network, None, Observers(), lambda: None), averaged=False)
    figures = [f"{name} {value:.3g}" for name, value in result.figures.items() if value is not None]
    return ", ".join([f"{result.samples} images", *figures])


def _compare_processes(load: TrainingLoad, world: World) -> str:
    """Processes that exchanged their gradients have the same weights."""
    sums = world.gather(float(sum(p.detach().abs().sum().cpu() for p in load.job.model.parameters())))
    if len(set(sums)) > 1:
        raise RunFailed(f"the processes have different weights after {STEPS} steps: {', '.join(map(str, sums))}")
    return f"{world.size} processes with equal weights" if world.size > 1 else ""


def _copy(device: Device) -> str:
    """Bytes to the device and back, as the loader copies them."""
    host = torch.arange(_COPIED_BYTES, dtype=torch.int64).to(torch.uint8)
    there = device.upload(device.pinned(host), device.torch_device(0))
    device.uploads_done()
    if not torch.equal(there.cpu(), host):
        raise RunFailed(f"a copy of {_COPIED_BYTES:,} bytes came back changed")
    return "from page-locked memory" if device.pins_memory else "without page-locked memory"


def _time(device: Device) -> str:
    """Matrix products between two events of the device's queue."""
    if device.step_times != "device events":
        return f"none: step times are known by {device.step_times}"
    a = torch.ones(_SIZE, _SIZE, device=device.torch_device(0))
    start = device.record_event()
    for _ in range(_PRODUCTS):
        a = a @ a / _SIZE
    end = device.record_event()
    device.mark_step()
    device.synchronize()
    elapsed_s, value = device.elapsed_s(start, end), float(a[0, 0])
    if elapsed_s <= 0 or value != 1:
        raise RunFailed(f"{_PRODUCTS} products took {elapsed_s:g} s by the device's events, and gave {value:g}, not 1")
    return f"{_PRODUCTS} products of {_SIZE} x {_SIZE} took {1e3 * elapsed_s:.3g} ms"
