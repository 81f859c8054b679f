"""A profile of a recipe's training or inference as a run of its own, without checkpoints."""

from collections.abc import Callable
from pathlib import Path

from vernier.config import Config, override, to_dict
from vernier.engine.observe import Telemetry
from vernier.errors import RunFailed
from vernier.lab.bench.combinations import at_final_size
from vernier.lab.profile.steps import StepProfiler
from vernier.measure.environment import collect_environment
from vernier.measure.profiles import StepRange
from vernier.records.codec import encode
from vernier.records.profile import ProfileSummary
from vernier.records.telemetry import decode_telemetry
from vernier.store import RunDir

from .workloads import InferenceLoad, TrainingLoad

STEPS_AFTER = 10
OnStep = Callable[[int, int], None]
"""Called after every step with its number and that of the last one."""


def profile_load(
    config: Config, steps: StepRange, *, infer: bool, out: Path, on_step: OnStep = lambda *_: None
) -> tuple[RunDir, ProfileSummary]:
    """Run the steps up to the end of the range and ten more; the run directory and the profile."""
    config, _ = at_final_size(config)
    load = InferenceLoad(config) if infer else TrainingLoad(config)
    try:
        name = f"profile-{'infer' if infer else 'train'}-{config.recipe.name}"
        run = RunDir.create(out, name)
        with run.locked():
            run.write_config(to_dict(override(config, "name", name)))
            telemetry = Telemetry(run, load.device.name, [load.device.own_device(0).uuid], config.machine.telemetry_hz)
            environment = collect_environment(load.device.identity(), load.device.name, load.threads, telemetry.setup)
            run.write_environment(encode(environment))
            run.write_status("running")
            with telemetry:
                profiler = _profile_steps(load, steps, run, on_step)
            summary = profiler.close(load.what_ran(), lambda: decode_telemetry(run.read_telemetry()))
            if summary is None:
                raise RunFailed(f"The profile of steps {steps.first} to {steps.last} ended before its last step.")
            run.write_status("finished", summary=encode(summary))
        return run, summary
    finally:
        load.close()


def _profile_steps(load: InferenceLoad | TrainingLoad, steps: StepRange, run: RunDir, on_step: OnStep) -> StepProfiler:
    profiler = StepProfiler(steps, run.traces(), load.device.synchronize)
    load.phase = profiler.phase
    last = steps.last + STEPS_AFTER
    for step in range(1, last + 1):
        profiler.begin(step)
        load.step()
        profiler.end(step)
        on_step(step, last)
    return profiler
