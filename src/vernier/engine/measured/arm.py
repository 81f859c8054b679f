"""One arm of a benchmark in this process: what was asked for as plain values, what was found as plain values.

An arm that does not fit into memory, or that this machine refuses, is a result and not an error. The process is told to the
kernel as the first to be killed when memory runs out, so that a benchmark never takes anybody else down.
"""

import contextlib
import os
import resource
from pathlib import Path
from typing import Any

import torch

from vernier.clock import now_s, utc_stamp
from vernier.config import Config, from_dict
from vernier.engine.measured.study_repeat import run_repeat
from vernier.engine.measured.workloads import HeldLoad, InferenceLoad, TrainingLoad
from vernier.engine.processes.world import World
from vernier.errors import ConfigError
from vernier.measure.bench.measuring import METHOD, Load, Plan, alone, figures, measure, raw, warm_up
from vernier.measure.bench.serving import METHOD as SERVING_METHOD
from vernier.measure.bench.serving import latency_figures, poisson_arrivals, serve
from vernier.measure.machine.environment import collect_environment
from vernier.measure.machine.kernels import measure_matmul
from vernier.measure.telemetry.energy import energy_per_image
from vernier.measure.telemetry.noise import measure_noise
from vernier.measure.telemetry.sampler import RecordList, Sampler
from vernier.records.codec import encode

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "bad_alloc", "cannot allocate memory")


def guard_memory(limit_bytes: int | None, processes: int = 1) -> None:
    """Keep this process from taking the machine down: it is the first to be killed, and takes no more than its share."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    if limit_bytes:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes // processes, hard))


def run_arm(spec: dict[str, Any], world: World | None = None) -> dict[str, Any]:
    """Measure what `spec` describes. Always returns; `status` is ok, out-of-memory or refused."""
    try:
        found = run_repeat(spec) if spec["what"] == "study" else _measured(spec, world)
        return {"status": "ok", "time": utc_stamp(), **found}
    except ConfigError as error:
        return {"status": "refused", "why": _as_here(str(error))}
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        return {"status": "out-of-memory", "why": " ".join(str(error).split())[:300]}


def _as_here(words: str) -> str:
    """The flags of `vernier train` that an answer names, as benchmarks have them."""
    return words.replace("--allow-slow", "--set machine.allow_slow=true").replace("--precision ", "--precisions ")


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says so; CPU allocators and libraries below them say it in words only."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(words in str(error).lower() for words in _OUT_OF_MEMORY)


def _measured(spec: dict[str, Any], world: World | None) -> dict[str, Any]:
    config, plan = from_dict(Config, spec["config"]), Plan(**spec["plan"])
    sensors = RecordList()
    run = Path(spec["run"]) if spec.get("run") else None
    training = spec["what"] == "train"
    load = TrainingLoad(config, world, apart=spec.get("apart", False)) if training else InferenceLoad(config, run)
    load.device.reset_peak_memory()
    root_pid = os.getppid() if world is not None and world.size > 1 else None
    try:
        with Sampler(load.device.name, sensors, hz=config.machine.telemetry_hz, root_pid=root_pid) as sampler:
            if spec.get("scenario") == "server":
                assert isinstance(load, InferenceLoad)
                found = _served(load, plan, spec, sensors)
            else:
                held = spec.get("scenario") == "single-stream" and isinstance(load, InferenceLoad)
                stepping = HeldLoad(load) if held and isinstance(load, InferenceLoad) else load
                found = _stepped(stepping, plan, sensors, held, world)
        return {
            **found,
            **_arithmetic(load, config, found),
            "execution": config.machine.mode,
            "compilation": encode((load.job.network if isinstance(load, TrainingLoad) else load.network).compilation),
            "devices": load.devices,
            "peak_memory_bytes": _peak(load, world),
            "environment": encode(
                collect_environment(load.device.identity(), load.device.name, load.threads, sampler.setup)
            ),
        }
    finally:
        load.close()


def _peak(load: TrainingLoad | InferenceLoad, world: World | None) -> int | None:
    """The most that any process held on its device; None where the device cannot say."""
    memory = load.device.memory()
    mine = memory.peak_bytes if memory is not None else None
    known = [p for p in (world.gather(mine) if world is not None else [mine]) if p is not None]
    return max(known, default=None)


def _stepped(load: Load, plan: Plan, sensors: RecordList, single_stream: bool, world: World | None) -> dict[str, Any]:
    found = measure(
        load,
        plan,
        alone if world is None or world.size == 1 else lambda value: world.broadcast_from_first(lambda: value),
    )
    seen = figures(found, images=load.images, devices=load.devices)
    if single_stream:
        seen["latency_s"] = latency_figures(found.step_s, of=f"query of {load.images} image(s), one at a time")
    images = load.images * len(found.step_s)
    return {
        "method": METHOD, "images_per_step": load.images, "figures": seen, "raw": raw(found),
        **_surroundings(sensors, (found.began_s, found.ended_s), images),
    }  # fmt: skip


def _surroundings(sensors: RecordList, window: tuple[float, float], images: int) -> dict[str, Any]:
    """Energy of the measured window, and what disturbed it."""
    energy = energy_per_image(sensors.records, [window], images)
    return {"energy": encode(energy), "noise": encode(measure_noise(sensors.records, window))}


def _served(load: InferenceLoad, plan: Plan, spec: dict[str, Any], sensors: RecordList) -> dict[str, Any]:
    """Queries of one image at random moments, at a share of what the load can do, or at a given rate."""
    alone = HeldLoad(load)
    warmup = warm_up(alone, plan.warmup_max_seconds)
    capacity = load.images / (sorted(warmup.step_s)[len(warmup.step_s) // 2])
    rate = spec.get("rate_per_s") or capacity * spec["load_share"]
    planned = poisson_arrivals(rate, plan.max_seconds, spec.get("seed", 0))
    if not planned:
        raise ConfigError(
            f"At {rate:.3g} queries a second none arrives within {plan.max_seconds:g} s. Give a longer time."
        )
    run = load.held(load.images)
    began_s = now_s()
    served = serve(run, planned, max_batch=load.images)
    latency = latency_figures(served.latency_s, of="query of 1 image, from its planned arrival")
    return {
        "method": SERVING_METHOD,
        "images_per_step": load.images,
        "figures": {
            "latency_s": latency, "queries": len(planned), "offered_per_s": rate, "capacity_per_s": capacity,
            "served_per_s": len(planned) / served.wall_s, "mean_batch": sum(served.batches) / len(served.batches),
            "kept_up": served.wall_s < plan.max_seconds + max(1.0, 5 / rate),
        },
        "raw": {"latency_s": served.latency_s, "batches": served.batches, "planned_s": planned, "warmup_s": warmup.step_s},
        **_surroundings(sensors, (began_s, now_s()), len(planned)),
    }  # fmt: skip


def _arithmetic(load: TrainingLoad | InferenceLoad, config: Config, found: dict[str, Any]) -> dict[str, Any]:
    """Model arithmetic a second, beside what this device does in large matrix products right now."""
    rate = found["figures"].get("images_per_s_total")
    if rate is None:
        return {}
    each = load.flops_per_image()
    matmul = measure_matmul(load.place, load.device.synchronize, config.machine.precision)
    reached = rate["value"] * each / 1e9 / load.devices
    return {
        "flops": {
            "gflop_per_image": each / 1e9, "gflop_per_s_per_device": reached, "matmul": encode(matmul),
            "share_of_matmul": reached / matmul.gflop_per_s,
        }
    }  # fmt: skip
