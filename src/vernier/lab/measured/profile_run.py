"""A profile of a recipe's training or inference as a run of its own, without checkpoints."""

import shutil

from vernier.api.starting import sigterm_as_interrupt
from vernier.config import config_from_tree, override, to_dict
from vernier.engine.observe import Telemetry
from vernier.lab.bench.configurations import at_final_size
from vernier.lab.bench.progress import PhaseWatch
from vernier.lab.profile.steps import StepProfiler
from vernier.lab.records.bench import ProfileRequest, ProfileResult
from vernier.measure.environment import collect_environment
from vernier.measure.profiles import StepRange
from vernier.records.codec import encode
from vernier.store import RunDir

from .workloads import InferenceLoad, TrainingLoad


def profile_load(request: ProfileRequest) -> ProfileResult:
    """Run the steps up to the end of the range and those after it; the run directory and the profile."""
    config, _ = at_final_size(config_from_tree(request.config))
    load = InferenceLoad(config) if request.load == "infer" else TrainingLoad(config)
    try:
        name = f"profile-{request.load}-{config.recipe.name}"
        run = RunDir.create(request.out, name)
        try:
            # The launcher ends this process by SIGTERM, and nothing must stay behind.
            with run.locked(), sigterm_as_interrupt():
                run.write_config(to_dict(override(config, "name", name)))
                telemetry = Telemetry(
                    run, load.device.name, [load.device.own_device(0).uuid], config.machine.telemetry_hz
                )
                environment = collect_environment(
                    load.device.identity(), load.device.name, load.threads, telemetry.setup
                )
                run.write_environment(encode(environment))
                run.write_status("running")
                with telemetry:
                    profiler = _profile_steps(load, request, run)
                summary = profiler.close(load.what_ran(), run.read_telemetry)
                assert summary is not None, "the load takes steps beyond the last one of the range"
                run.write_status("finished", summary=encode(summary))
        except BaseException:
            # Ctrl-C, too: a profile without its figures is of no use.
            shutil.rmtree(run.path)
            raise
        return ProfileResult(run=run.path, summary=summary)
    finally:
        load.close()


def _profile_steps(load: InferenceLoad | TrainingLoad, request: ProfileRequest, run: RunDir) -> StepProfiler:
    watch = PhaseWatch(request.started_s, request.progress)
    profiler = StepProfiler(StepRange(request.first, request.last), run.traces(), load.device.synchronize)
    load.phase = profiler.phase
    watch.enter("profiling")
    for step in range(1, request.steps + 1):
        profiler.begin(step)
        load.step()
        profiler.end(step)
        watch.show([0.0] * step, load.images)
    return profiler
