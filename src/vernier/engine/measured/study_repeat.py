"""One repeat of a variability study in this process: pinned to its device, every iteration timed, then kernels and sensors.

An iteration is the whole of it: copy, forward, backward and optimiser step, until the device is done. Inputs are the same
in every iteration and every repeat. Kernels are profiled in further iterations, so that profiling is in no figure.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from vernier.clock import now_s, utc_stamp
from vernier.config import Config, from_dict
from vernier.cores import allowed_cores
from vernier.devices import resolve
from vernier.engine.measured.workloads import TrainingLoad
from vernier.measure.bench.measuring import Load
from vernier.measure.machine.kernels import CopyLoad, MatrixLoad
from vernier.measure.profile.steps import StepProfiler
from vernier.measure.profile.summary import StepRange
from vernier.measure.statistics.throughput import warmup_steps
from vernier.measure.study.files import CsvRow, read_csv
from vernier.measure.telemetry.noise import describe_noise, measure_noise
from vernier.measure.telemetry.sampler import RecordList, Sampler
from vernier.records.codec import encode
from vernier.records.telemetry import Sample
from vernier.store import write_json

SGEMM_SIZE = {"cpu": 1024}
PACE_AFTER, PACE_AFTER_S = 3, 10.0
SGEMM_DEFAULT = 25536  # as in the SC22 study


def run_repeat(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure what `spec` says: seconds of every iteration, sensors meanwhile, kernels afterwards."""
    if spec["cores"]:
        os.sched_setaffinity(0, spec["cores"])
    load, synchronize, kind = load_of(spec)
    started, sensors = utc_stamp(), RecordList()
    try:
        with Sampler(kind, sensors):
            pace = Path(spec["pace"]) if spec.get("pace") else None
            seconds, window = _timed(load, spec["iterations"], spec["slowdown"], pace)
        kernels = _kernels(load, spec["kernel_iterations"], synchronize)
    finally:
        if isinstance(load, TrainingLoad):
            load.close()
    noise = measure_noise(sensors.records, window)
    simulated = [f"simulated: slowed {spec['slowdown']:g} times"] if spec["slowdown"] != 1 else []
    return {
        "time": started, "seconds": seconds, "train_time_s": sum(seconds), "kernels": kernels,
        "warmup": min(max(1, warmup_steps(seconds)), len(seconds) - 1), "notes": [*simulated, *describe_noise(noise)],
        "telemetry": _rows(sensors.samples, kind, window),
    }  # fmt: skip


def load_of(spec: dict[str, Any]) -> tuple[Load, Any, str]:
    """The workload on its device."""
    if spec["workload"] in ("sgemm", "bandwidth"):
        device = resolve(spec["device"])
        torch.set_num_threads(len(allowed_cores()))
        device.prepare()
        place = device.torch_device(0)
        if spec["workload"] == "bandwidth":
            return CopyLoad(place, device.synchronize), device.synchronize, device.name
        size = SGEMM_SIZE.get(device.name, SGEMM_DEFAULT)
        return MatrixLoad(place, device.synchronize, size=size), device.synchronize, device.name
    load = TrainingLoad(from_dict(Config, spec["config"]))
    return load, load.device.synchronize, load.device.name


def _timed(
    load: Load, iterations: int, slowdown: float, pace: Path | None = None
) -> tuple[list[float], tuple[float, float]]:
    """Every iteration's seconds; a virtual device waits on, busily, until it is as slow as it should be.

    `pace` is a file that is told the seconds of an iteration as soon as they can be guessed, between two iterations.
    """
    seconds, began_s = list[float](), now_s()
    last_s = began_s
    for _ in range(iterations):
        load.step()
        if slowdown > 1:
            until_s = last_s + (now_s() - last_s) * slowdown
            while now_s() < until_s:
                pass
        at_s = now_s()
        seconds.append(at_s - last_s)
        last_s = at_s
        if pace is not None and (len(seconds) == PACE_AFTER or last_s - began_s > PACE_AFTER_S):
            write_json(pace, {"seconds_per_iteration": min(seconds)})
            pace, last_s = None, now_s()
    return seconds, (began_s, last_s)


def _kernels(load: Load, iterations: int, synchronize: Any) -> list[CsvRow]:
    """The kernel table of some further iterations."""
    if iterations < 1:
        return []
    with TemporaryDirectory(prefix="vernier-kernels-") as scratch:
        profiler = StepProfiler(StepRange(1, iterations), Path(scratch), synchronize)
        for step in range(1, iterations + 1):
            profiler.begin(step)
            load.step()
            profiler.end(step)
        return list(read_csv(next(Path(scratch).glob("kernels.*.csv"))))


def _rows(samples: list[Sample], kind: str, window: tuple[float, float]) -> list[dict[str, Any]]:
    """Samples of the device in use while it was measured; seconds from the first iteration's start."""
    hidden = ("device_kind", "device", "session", "t_s", "throttle")
    return [
        {"t_s": s.t_s - window[0], **{k: v for k, v in encode(s).items() if k not in hidden}}
        for s in samples
        if s.device_kind == kind and window[0] <= s.t_s <= window[1]
    ]
