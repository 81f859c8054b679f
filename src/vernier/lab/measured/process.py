"""What a measuring process does: a request in, a result out. `lab.launcher` starts it.

For `vernier tune` it measures whenever it is asked to (`LiveRequest`): some steps of `vernier train` or of evaluation
(`workloads`). In between it is stopped by the process that started it, so that it neither disturbs others nor loads
ahead.

What does not fit into memory, or what this machine refuses, is a result and not an error. The kernel is told to kill
this process first when memory runs out, so that a benchmark never takes other programs down. The loads are in
`workloads`; `study_repeat` and `profile_run` carry out the other requests.
"""

import contextlib
import itertools
import os
import resource
import statistics
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from vernier.clock import now_s, utc_stamp
from vernier.config import config_from_tree
from vernier.engine.processes.world import World
from vernier.errors import ConfigError, TooLittleMemory
from vernier.lab.bench.measuring import METHOD, Load, compute_figures, measure, warm_up
from vernier.lab.bench.progress import END, PhaseWatch
from vernier.lab.records.bench import (
    Arithmetic,
    Failure,
    LiveRequest,
    MeasuredResult,
    Measurement,
    MeasureRequest,
    Plan,
    ProfileRequest,
    ProfileResult,
    Ready,
    RepeatResult,
    Request,
    StepResult,
    StudyRequest,
)
from vernier.lab.records.telemetry import TelemetryRecord
from vernier.lab.statistics.quantiles import summarize_latency
from vernier.lab.telemetry.energy import energy_per_image
from vernier.lab.telemetry.noise import measure_noise
from vernier.lab.telemetry.sampler import Sampler
from vernier.measure.environment import collect_environment
from vernier.records.codec import encode
from vernier.store import write_json
from vernier.wording import plural

from .profile_run import profile_load
from .study_repeat import run_repeat
from .workloads import InferenceLoad, SingleStreamLoad, TrainingLoad, open_load

_SHORT_STEP_S = 0.2
"""Below this, a measurement begins with a step that does not count: caches and threads are those of another process."""
_POLL_S = 0.002
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "bad_alloc", "cannot allocate memory")


def guard_memory(limit_bytes: int | None, processes: int = 1) -> None:
    """Limit this process to its share of memory, and make it the first that the kernel kills."""
    # The file exists on Linux only.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    if limit_bytes:
        # RLIMIT_DATA counts private memory only; RLIMIT_AS would count the address space that drivers merely reserve.
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes // processes, hard))


def run_request(request: Request, world: World) -> MeasuredResult | RepeatResult | ProfileResult:
    """Carry out what is requested. A refusal of this machine or too little memory is a failure result."""
    try:
        match request:
            case StudyRequest():
                return run_repeat(request)
            case LiveRequest():
                _run_live(request, world)
                raise AssertionError("a live process ends with the one that started it")
            case ProfileRequest():
                return profile_load(request)
            case MeasureRequest():
                return _measure(request, world)
    # Before ConfigError, of which it is a kind: a batch that does not fit is a row of its own kind.
    except TooLittleMemory as error:
        return Failure(status="out-of-memory", why=error.message)
    except ConfigError as error:
        return Failure(status="refused", why=error.message)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return Failure(status="out-of-memory", why=" ".join(str(error).split())[:300])


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out. CPU allocators raise a plain RuntimeError, so its words are looked at."""
    kinds = MemoryError, torch.OutOfMemoryError
    return isinstance(error, kinds) or any(words in str(error).lower() for words in _OUT_OF_MEMORY)


def _measure(request: MeasureRequest, world: World) -> StepResult:
    config, sensors = config_from_tree(request.config), list[TelemetryRecord]()
    path = Path(request.run) if request.run else None
    # Before the sensors, which read those of its device.
    load = open_load(request.what, config, world, path=path, apart=request.apart)
    # The peak of building the model is not that of its steps.
    load.device.reset_peak_memory()
    progress = request.progress if world.first else None
    watch = PhaseWatch(request.started_s, progress, compiles=config.machine.mode != "eager", world=world)
    # With several processes the launcher is their parent: what they all use counts, not this process alone.
    root_pid = os.getppid() if world.size > 1 else None
    # All processes take part, also those that record nothing: it is a collective.
    uuids = world.gather(load.device.own_device(world.topology.local_rank).uuid)
    hz = config.machine.telemetry_hz if world.first else 0.0
    try:
        with Sampler(load.device.name, uuids, sensors.append, hz=hz, root_pid=root_pid) as sampler:
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
            ran=load.what_ran(in_memory=request.scenario == "single-stream"),
        )
    finally:
        load.close()


def _peak_memory(load: TrainingLoad | InferenceLoad, world: World) -> int | None:
    """The largest peak of any process on its device; None where the device does not report it."""
    memory = load.device.memory()
    peaks = world.gather(memory.peak_bytes if memory is not None else None)
    return max((p for p in peaks if p is not None), default=None)


def _measure_steps(
    load: TrainingLoad | InferenceLoad,
    request: MeasureRequest,
    sensors: Sequence[TelemetryRecord],
    world: World,
    watch: PhaseWatch,
) -> StepResult:
    steps: Load = load
    if isinstance(load, InferenceLoad) and request.scenario == "single-stream":
        steps = SingleStreamLoad(load)
    samples = measure(steps, request.plan, watch)
    figures = compute_figures(samples, images=load.images, devices=load.devices)
    if isinstance(steps, SingleStreamLoad):
        latency = summarize_latency(samples.step_s, of=f"query of {plural(load.images, 'image')}, one at a time")
        figures = replace(figures, latency_s=latency)
    span, gflop_per_image = (samples.began_s, samples.ended_s), load.flops_per_image() / 1e9
    return StepResult(
        method=METHOD,
        images_per_step=load.images,
        figures=figures,
        raw=samples,
        flops=Arithmetic(
            gflop_per_image=gflop_per_image,
            gflop_per_s_per_device=figures.images_per_s_total.value * gflop_per_image / load.devices,
        ),
        peak_memory_bytes=_peak_memory(load, world),
        **vars(energy_per_image(sensors, [span], load.images * len(samples.step_s))),
        noise=measure_noise(sensors, span),
    )


# -------------------------------------------------------------------------------------------- measuring when asked to


def _run_live(request: LiveRequest, world: World) -> None:
    """Measure when asked to: as many steps as take about `measure_s`. Raises ConfigError for what cannot run here."""
    config = config_from_tree(request.config)
    load = open_load(request.load, config, world)
    try:
        watch = PhaseWatch(compiles=config.machine.mode != "eager", world=world)
        warmup_s = warm_up(load, Plan(warmup_max_seconds=request.warmup_max_seconds), watch).step_s
        step_s = watch.agreed(statistics.median(warmup_s[1:] or warmup_s))
        steps = max(1, round(request.measure_s / step_s))
        images = load.images * steps
        if world.first:
            ready = Ready(images=images, seconds=steps * step_s, ran=load.what_ran())
            write_json(request.file("ready"), encode(ready), sync=False)
        for number in itertools.count():
            question = request.file(str(number))
            world.broadcast_from_first(partial(_wait_for, question))
            if step_s < _SHORT_STEP_S:
                load.step()
            began_s = now_s()
            for _ in range(steps):
                load.step()
            measured = Measurement(images=images, seconds=now_s() - began_s)
            if world.first:
                write_json(question.with_suffix(".json"), encode(measured), sync=False)
    finally:
        load.close()


def _wait_for(path: Path) -> None:
    while not path.exists():
        threading.Event().wait(_POLL_S)
