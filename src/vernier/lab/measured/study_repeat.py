"""One repeat of a device study in this process: bound to its device, every iteration timed, then kernels and sensors.

An iteration is everything from the copy to the optimiser step, until the device is done. Inputs are the same in every
iteration and every repeat. Kernels are profiled in further iterations, so no figure includes profiling.
`lab.study.run` decides which repeats are measured.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from vernier.clock import now_s, utc_stamp
from vernier.config import config_from_tree
from vernier.cores import allowed_cores, run_on_cores
from vernier.devices import Device, resolve
from vernier.errors import ConfigError
from vernier.lab.bench.measuring import Load
from vernier.lab.machine.kernels import CopyLoad, MatrixLoad
from vernier.lab.profile.steps import StepProfiler
from vernier.lab.telemetry.sampler import RecordList, Sampler
from vernier.lab.telemetry.sensors import describe_unknown_devices
from vernier.measure.noise import describe_noise, measure_noise
from vernier.measure.profiles import StepRange
from vernier.measure.throughput import warmup_steps
from vernier.records.bench import Cell, RepeatResult, StudyRequest
from vernier.records.environment import DeviceInfo
from vernier.records.telemetry import Sample
from vernier.store import write_json
from vernier.store.csv_tables import read_csv

from .workloads import TrainingLoad

SGEMM_SIZE = {"cpu": 1024}
SGEMM_DEFAULT = 25536  # as in the SC22 study
PACE_AFTER, PACE_AFTER_S = 3, 10.0


def run_repeat(request: StudyRequest) -> RepeatResult:
    """Seconds of every iteration, sensors meanwhile, kernels afterwards."""
    if request.cores:
        run_on_cores(request.cores)
    load, device = build_load(request)
    started, sensors = utc_stamp(), RecordList()
    try:
        own = check_device(request, device)
        with Sampler(device.name, [own.uuid], sensors, cores=request.cores) as sampler:
            seconds, span = _time_iterations(load, request.iterations, request.slowdown, request.pace)
        kernels = _profile_kernels(load, device, request.kernel_iterations)
    finally:
        if isinstance(load, TrainingLoad):
            load.close()
    simulated = [f"simulated: slowed {request.slowdown:g} times"] if request.slowdown != 1 else []
    return RepeatResult(
        time=started,
        seconds=tuple(seconds),
        train_time_s=sum(seconds),
        warmup=min(max(1, warmup_steps(seconds)), len(seconds) - 1),
        notes=(
            *simulated,
            *describe_noise(measure_noise(sensors.records, span)),
            *describe_unknown_devices(sampler.setup.missing),
        ),
        telemetry=_telemetry_rows(sensors.samples, device.name, span),
        kernels=kernels,
    )


def check_device(request: StudyRequest, device: Device) -> DeviceInfo:
    """The device this process computes on. Raises ConfigError where it is not the one to be measured."""
    own = device.own_device(0)
    if request.uuid is not None and own.uuid != request.uuid:
        raise ConfigError(
            f"This process was to measure {device.name} device {request.uuid}, but computes on "
            f"{own.uuid or 'one that it cannot name'}. Nothing was measured: a launcher, a container or a shell "
            "start-up file may change which devices are visible."
        )
    return own


def build_load(request: StudyRequest) -> tuple[Load, Device]:
    """What is repeated, and the device it runs on."""
    if request.workload not in ("sgemm", "bandwidth"):
        training = TrainingLoad(config_from_tree(request.config))
        return training, training.device
    device = resolve(request.device)
    torch.set_num_threads(len(allowed_cores()))
    device.prepare()
    torch_device = device.torch_device(0)
    if request.workload == "bandwidth":
        return CopyLoad(torch_device, device.synchronize), device
    size = SGEMM_SIZE.get(device.name, SGEMM_DEFAULT)
    return MatrixLoad(torch_device, device.synchronize, size=size), device


def _time_iterations(
    load: Load, iterations: int, slowdown: float, pace: Path | None = None
) -> tuple[list[float], tuple[float, float]]:
    """Seconds of every iteration; a simulated device keeps the processor busy until it is as slow as it should be.

    `pace` is a file that gets a first estimate of the seconds per iteration, between two iterations.
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


def _profile_kernels(load: Load, device: Device, iterations: int) -> tuple[dict[str, Cell], ...]:
    """The kernel table of some further iterations."""
    if iterations < 1:
        return ()
    with TemporaryDirectory(prefix="vernier-kernels-") as scratch:
        profiler = StepProfiler(StepRange(1, iterations), Path(scratch), device.synchronize)
        for step in range(1, iterations + 1):
            profiler.begin(step)
            load.step()
            profiler.end(step)
        return tuple(dict(row) for row in read_csv(next(Path(scratch).glob("kernels.*.csv"))))


def _telemetry_rows(samples: list[Sample], kind: str, span: tuple[float, float]) -> tuple[dict[str, Cell], ...]:
    """Samples of the device in use while it was measured; seconds from the start of the first iteration."""
    return tuple(
        {"t_s": s.t_s - span[0], **s.row()} for s in samples if s.device_kind == kind and span[0] <= s.t_s <= span[1]
    )
