"""A profile of a recipe's training or inference as a run of its own, without checkpoints."""

from pathlib import Path
from typing import Any

from vernier.config import Config, override, to_dict
from vernier.engine.measured.workloads import InferenceLoad, TrainingLoad
from vernier.engine.observe import Telemetry
from vernier.errors import RunFailed
from vernier.measure.machine.environment import collect_environment
from vernier.measure.profile.steps import StepProfiler
from vernier.measure.profile.summary import Range
from vernier.records.codec import encode
from vernier.store import RunDir

STEPS_AFTER = 10


def profile_load(config: Config, wanted: Range, *, infer: bool, out: Path) -> tuple[RunDir, dict[str, Any]]:
    """Steps up to the end of the range and some more; what the profile says, and the run that holds it."""
    load = InferenceLoad(config) if infer else TrainingLoad(config)
    try:
        name = f"profile-{'infer' if infer else 'train'}-{config.recipe.name}"
        run = RunDir.create(out, name)
        with run.locked():
            run.write_config(to_dict(override(config, "name", name)))
            telemetry = Telemetry(run, load.device.name, config.machine.telemetry_hz)
            environment = collect_environment(load.device.identity(), load.device.name, load.threads, telemetry.setup)
            run.write_environment(encode(environment))
            run.write_status("running")
            with telemetry:
                found = _profiled(load, wanted, run)
            run.write_status("finished", summary=found)
        return run, found
    finally:
        load.close()


def _profiled(load: InferenceLoad | TrainingLoad, wanted: Range, run: RunDir) -> dict[str, Any]:
    profiler = StepProfiler(wanted, run.traces(), load.device.synchronize)
    load.phase = profiler.phase
    for step in range(1, wanted.last + STEPS_AFTER + 1):
        profiler.begin(step)
        load.step()
        profiler.end(step)
    found = profiler.close()
    if found is None:
        raise RunFailed(f"The profile of steps {wanted.first} to {wanted.last} was cut short.")
    return found
