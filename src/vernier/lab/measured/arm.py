"""One arm of a benchmark, measured in this process: a request in, a result out.

An arm that does not fit into memory, or that this machine refuses, is a result and not an error. The kernel is told to
kill this process first when memory runs out, so that a benchmark never takes other programs down. The loads are in
`workloads`, repeats of a study in `study_repeat`; `lab.bench.arms` starts the processes.
"""

import contextlib
import os
import resource
from dataclasses import replace
from pathlib import Path

import torch

from vernier.clock import now_s, utc_stamp
from vernier.config import config_from_tree
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.errors import ConfigError, TooLittleMemory
from vernier.lab.bench.measuring import METHOD, Load, compute_figures, measure, relate_to_matmul, warm_up
from vernier.lab.bench.progress import END, MEASURING, WARM_UP, PhaseWatch
from vernier.lab.bench.serving import METHOD as SERVING_METHOD
from vernier.lab.bench.serving import poisson_arrivals, serve, summarize_latency
from vernier.lab.machine.kernels import measure_matmul
from vernier.lab.telemetry.sampler import RecordList, Sampler
from vernier.measure.energy import energy_per_image
from vernier.measure.environment import collect_environment
from vernier.measure.noise import measure_noise
from vernier.records.bench import (
    Arithmetic,
    ArmFailure,
    ArmRequest,
    ArmResult,
    MatmulSpeed,
    Ready,
    RepeatResult,
    ServingFigures,
    ServingResult,
    ServingSamples,
    StepResult,
    StudyRequest,
    TrialRequest,
    TrialResult,
    TurnsRequest,
)
from vernier.references import use
from vernier.wording import plural

from .study_repeat import run_repeat
from .trial import run_trial
from .turns import run_turns
from .workloads import InferenceLoad, SingleStreamLoad, TrainingLoad

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "bad_alloc", "cannot allocate memory")


def guard_memory(limit_bytes: int | None, processes: int = 1) -> None:
    """Limit this process to its share of memory, and make it the first that the kernel kills."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    if limit_bytes:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes // processes, hard))


def run_request(
    request: ArmRequest | StudyRequest | TrialRequest | TurnsRequest, world: World | None = None
) -> ArmResult | RepeatResult | TrialResult | Ready:
    """Measure what is requested. A refusal of this machine or too little memory is a failure result."""
    try:
        if isinstance(request, StudyRequest):
            return run_repeat(request)
        if isinstance(request, TrialRequest):
            return run_trial(request, world or World(Topology()))
        if isinstance(request, TurnsRequest):
            return run_turns(request, world or World(Topology()))
        return _measure(request, world or World(Topology()))
    except TooLittleMemory as error:
        return ArmFailure(status="out-of-memory", why=error.message)
    except ConfigError as error:
        return ArmFailure(status="refused", why=error.message)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return ArmFailure(status="out-of-memory", why=" ".join(str(error).split())[:300])


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out. CPU allocators raise a plain RuntimeError, so its words are looked at."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(words in str(error).lower() for words in _OUT_OF_MEMORY)


def _measure(request: ArmRequest, world: World) -> StepResult | ServingResult:
    config, sensors = config_from_tree(request.config), RecordList()
    load: TrainingLoad | InferenceLoad = (
        TrainingLoad(config, world, apart=request.apart)
        if request.what == "train"
        else InferenceLoad(config, Path(request.run) if request.run else None)
    )
    load.device.reset_peak_memory()
    watch = PhaseWatch(
        request.started_s, request.progress if world.first else None, compiles=config.machine.mode != "eager"
    )
    root_pid = os.getppid() if world.size > 1 else None
    uuids = world.gather(load.device.own_device(world.topology.local_rank).uuid)
    hz = config.machine.telemetry_hz if world.first else 0.0
    try:
        with Sampler(load.device.name, uuids, sensors, hz=hz, root_pid=root_pid) as sampler:
            result: StepResult | ServingResult
            if isinstance(load, InferenceLoad) and request.scenario == "server":
                result = _measure_serving(load, request, sensors, watch)
                result = replace(result, peak_memory_bytes=_peak_memory(load, world))
            else:
                result = _measure_steps(load, request, sensors, world, watch)
        watch.enter(END)
        return replace(
            result,
            time=utc_stamp(),
            execution=config.machine.mode,
            compilation=load.network.compilation,
            devices=load.devices,
            environment=collect_environment(load.device.identity(), load.device.name, load.threads, sampler.setup),
            spent_s=watch.spent_s,
            engine=load.engine if isinstance(load, InferenceLoad) else None,
            ran=load.what_ran(in_memory=request.scenario in ("single-stream", "server")),
        )
    finally:
        load.close()


def _peak_memory(load: TrainingLoad | InferenceLoad, world: World) -> int | None:
    """The largest peak of any process on its device; None where the device does not report it."""
    memory = load.device.memory()
    peaks = world.gather(memory.peak_bytes if memory is not None else None)
    return max((p for p in peaks if p is not None), default=None)


class _Probe:
    """Matrix products right before and right after measuring; their memory is in no peak of the load."""

    def __init__(self, load: TrainingLoad | InferenceLoad, precision: str, world: World) -> None:
        self._load, self._precision, self._world = load, precision, world
        self._speeds: list[MatmulSpeed] = []
        self.peak_memory_bytes: int | None = None

    def __call__(self) -> None:
        device = self._load.device
        peaks = (self.peak_memory_bytes, _peak_memory(self._load, self._world))
        self.peak_memory_bytes = max((peak for peak in peaks if peak is not None), default=None)
        size = self._speeds[0].size if self._speeds else 0
        self._speeds.append(measure_matmul(self._load.torch_device, device.synchronize, self._precision, size=size))
        device.reset_peak_memory()

    def relate(self, images_per_s: float) -> Arithmetic:
        """The load's arithmetic at this rate, beside the mean of both."""
        before, after = self._speeds
        gflop_per_image = self._load.flops_per_image() / 1e9
        matmul = replace(
            before,
            gflop_per_s=(before.gflop_per_s + after.gflop_per_s) / 2,
            n=before.n + after.n,
            before=before.gflop_per_s,
            after=after.gflop_per_s,
        )
        return relate_to_matmul(gflop_per_image, images_per_s * gflop_per_image / self._load.devices, matmul)


def _measure_steps(
    load: TrainingLoad | InferenceLoad, request: ArmRequest, sensors: RecordList, world: World, watch: PhaseWatch
) -> StepResult:
    steps: Load = load
    if isinstance(load, InferenceLoad) and request.scenario == "single-stream":
        steps = SingleStreamLoad(load)
    probe = _Probe(load, config_from_tree(request.config).machine.precision, world)
    samples = measure(steps, request.plan, lambda value: world.broadcast_from_first(lambda: value), watch, probe)
    figures = compute_figures(samples, images=load.images, devices=load.devices)
    if isinstance(steps, SingleStreamLoad):
        latency = summarize_latency(samples.step_s, of=f"query of {plural(load.images, 'image')}, one at a time")
        figures = replace(figures, latency_s=latency)
    span = (samples.began_s, samples.ended_s)
    return StepResult(
        method=METHOD,
        images_per_step=load.images,
        figures=figures,
        raw=samples,
        flops=probe.relate(figures.images_per_s_total.value),
        peak_memory_bytes=probe.peak_memory_bytes,
        **vars(energy_per_image(sensors.records, [span], load.images * len(samples.step_s))),
        noise=measure_noise(sensors.records, span),
    )


def _measure_serving(load: InferenceLoad, request: ArmRequest, sensors: RecordList, watch: PhaseWatch) -> ServingResult:
    """Queries of one image at random times, at a share of what the load can do, or at a given rate."""
    plan = request.plan
    watch.enter(WARM_UP)
    warmup = warm_up(SingleStreamLoad(load), plan, watch=watch)
    capacity = load.images / (sorted(warmup.step_s)[len(warmup.step_s) // 2])
    rate = request.rate_per_s or capacity * (request.load_share or 1.0)
    planned = poisson_arrivals(rate, plan.max_seconds, request.seed)
    if not planned:
        raise ConfigError(
            f"At {rate:.3g} queries per second none arrives within {plan.max_seconds:g} s. Raise {use('max_time')}."
        )
    run = load.reuse_batch()
    watch.enter(MEASURING)
    began_s = now_s()
    served = serve(run, planned, max_batch=load.images)
    span = (began_s, now_s())
    figures = ServingFigures(
        latency_s=summarize_latency(served.latency_s, of="query of 1 image, from its planned arrival"),
        queries=len(planned),
        offered_per_s=rate,
        capacity_per_s=capacity,
        served_per_s=len(planned) / served.wall_s,
        mean_batch=sum(served.batches) / len(served.batches),
        kept_up=served.wall_s < plan.max_seconds + max(1.0, 5 / rate),
    )
    raw = ServingSamples(
        latency_s=tuple(served.latency_s),
        batches=tuple(served.batches),
        planned_s=tuple(planned),
        warmup_s=warmup.step_s,
    )
    return ServingResult(
        method=SERVING_METHOD,
        images_per_step=load.images,
        figures=figures,
        raw=raw,
        **vars(energy_per_image(sensors.records, [span], len(planned))),
        noise=measure_noise(sensors.records, span),
    )
