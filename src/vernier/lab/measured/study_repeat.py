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
from vernier.lab.audit.fingerprints import combine, fingerprint
from vernier.lab.audit.guard import AuditGuard
from vernier.lab.bench.measuring import Load
from vernier.lab.bench.progress import MEASURING
from vernier.lab.machine.kernels import CopyLoad, MatrixLoad
from vernier.lab.profile.steps import StepProfiler
from vernier.lab.reading.csv_tables import read_csv
from vernier.lab.records.bench import EXACT, Cell, ExactResult, MeasuringProgress, RepeatResult, StudyRequest
from vernier.lab.records.telemetry import Sample, TelemetryRecord
from vernier.lab.telemetry.noise import measure_noise
from vernier.lab.telemetry.sampler import Sampler
from vernier.lab.telemetry.sensors import describe_unknown_devices
from vernier.measure.environment import read_versions
from vernier.measure.profiles import StepRange
from vernier.measure.throughput import warmup_steps
from vernier.records.codec import encode
from vernier.records.environment import DeviceInfo
from vernier.store import write_json
from vernier.wording import plural

from .workloads import TrainingLoad

_ROUNDS = 20
_SGEMM_SIZE = {"cpu": 1024}
_SGEMM_DEFAULT = 25536  # as in the SC22 study
PACE_AFTER, PACE_AFTER_S = 3, 10.0


def run_repeat(request: StudyRequest) -> RepeatResult:
    """Seconds of every iteration, sensors meanwhile, kernels afterwards."""
    # Before anything starts threads: they inherit the cores of the thread that starts them.
    if request.cores:
        run_on_cores(request.cores)
    load, device = _build_load(request)
    started, records = utc_stamp(), list[TelemetryRecord]()
    try:
        # Checked by its UUID, as a number means another device in every container.
        own = check_device(request, device)
        with Sampler(device.name, [own.uuid], records.append, cores=request.cores) as sampler:
            seconds, span = _time_iterations(load, request.iterations, request.slowdown, request.progress)
        # After the timed iterations: the profiler slows every kernel down.
        exact = _exact_result(load, request) if request.workload == EXACT else None
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
            *measure_noise(records, span).sentences(),
            *describe_unknown_devices(sampler.setup.missing),
        ),
        telemetry=_telemetry_rows(records, device.name, span),
        kernels=kernels,
        exact=exact,
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


def _build_load(request: StudyRequest) -> tuple[Load, Device]:
    """What is repeated, and the device it runs on."""
    if request.workload not in ("sgemm", "bandwidth"):
        training = TrainingLoad(config_from_tree(request.config))
        return training, training.device
    device = resolve(request.device)
    # PyTorch counted the cores before this process was pinned to some of them.
    torch.set_num_threads(len(allowed_cores()))
    device.prepare()
    torch_device = device.torch_device(0)
    if request.workload == "bandwidth":
        return CopyLoad(torch_device, device.synchronize), device
    size = _SGEMM_SIZE.get(device.name, _SGEMM_DEFAULT)
    return MatrixLoad(torch_device, device.synchronize, size=size), device


def _time_iterations(
    load: Load, iterations: int, slowdown: float, progress: Path | None = None
) -> tuple[list[float], tuple[float, float]]:
    """Seconds of every iteration; a simulated device keeps the processor busy until it is as slow as it should be.

    `progress` is a file that gets the first estimate of the seconds per iteration, once, between two iterations.
    """
    seconds, began_s = list[float](), now_s()
    last_s = began_s
    for _ in range(iterations):
        load.step()
        if slowdown > 1:
            until_s = last_s + (now_s() - last_s) * slowdown
            # Busy, not asleep: a device that is slow in fact is as busy as a normal one.
            while now_s() < until_s:
                pass
        at_s = now_s()
        seconds.append(at_s - last_s)
        last_s = at_s
        if progress is not None and (len(seconds) == PACE_AFTER or last_s - began_s > PACE_AFTER_S):
            now = MeasuringProgress(phase=MEASURING, steps=len(seconds), fastest_s=min(seconds))
            write_json(progress, encode(now), sync=False)
            # Writing the file is in no iteration.
            progress, last_s = None, now_s()
    return seconds, (began_s, last_s)


def _exact_result(load: Load, request: StudyRequest) -> ExactResult:
    """The fingerprints that training took, and those of the end."""
    assert isinstance(load, TrainingLoad)
    guard = load.job.step.guard
    assert isinstance(guard, AuditGuard)
    guard.fingerprints.take_state(request.iterations, always=True)
    taken = guard.fingerprints.pop()
    kernels = [_kernels(load.torch_device) for _ in range(_ROUNDS)]
    cpu, threads = torch.backends.cpu.get_cpu_capability(), plural(load.threads, "thread")
    return ExactResult(
        library=f"torch {read_versions()['torch']}, {cpu}, {threads}",
        fingerprints=(
            *(f"step {e.step} {e.gradients or ''}{e.weights}{e.statistics}{e.optimizer}" for e in taken),
            *(f"{name} {combine(each[name] for each in kernels):016x}" for name in kernels[0]),
        ),
    )


def _kernels(device: torch.device) -> dict[str, int]:
    """Fingerprints of kernels in other precisions and sizes than those of the steps: a fault may be in one unit."""
    random, results = torch.Generator().manual_seed(0), dict[str, int]()
    for precision in (torch.float32, torch.bfloat16):
        for size in (257, 512):  # 257 is no multiple of any vector
            a = torch.randn(size, size, generator=random).to(device, precision)
            done = {
                "matrix product": a @ a,
                "convolution": torch.conv1d(a[None], torch.stack([a] * 3, 2)),
                "sum": a.sum(0),
            }
            results |= {f"{name}, {precision}, {size}": fingerprint(tensor) for name, tensor in done.items()}
    return results


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


def _telemetry_rows(
    records: list[TelemetryRecord], kind: str, span: tuple[float, float]
) -> tuple[dict[str, Cell], ...]:
    """Samples of the device in use while it was measured; seconds from the start of the first iteration."""
    samples = (r for r in records if isinstance(r, Sample) and r.device_kind == kind)
    return tuple({"t_s": s.t_s - span[0], **s.row()} for s in samples if span[0] <= s.t_s <= span[1])
