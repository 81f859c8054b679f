"""Profiles: what `vernier profile` and the functions `profile_train` and `profile_infer` leave, as an object.

The profile is taken by `lab.measured.profile_run`, in a process of its own like everything that is measured: its memory
and its kernels are those of the steps alone.
"""

import os
from pathlib import Path

from vernier.api.functions import function
from vernier.api.session import Session
from vernier.api.starting import change, sigterm_as_interrupt
from vernier.config import Work, override, to_dict
from vernier.errors import ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.lab.launcher import run
from vernier.lab.records.bench import Failure, ProfileRequest, ProfileResult
from vernier.lab.report.progress import Display
from vernier.lab.requests.profiling import Profiled, ProfileInfer, ProfileTrain
from vernier.measure.profiles import StepRange
from vernier.records.profile import ProfileSummary

from .benchmarks import measured_settings, starting_recipe, with_batch


@frozen
class Profile:
    """A profile of some steps. `path` is its run directory, with traces/; `summary` the record of it."""

    path: Path
    summary: ProfileSummary
    notes: tuple[str, ...] = ()
    """What was chosen because it was not given."""

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __str__(self) -> str:
        return "\n".join(self.summary.lines())


def profile_steps(request: Profiled, session: Session) -> Profile:
    """Profile steps in a run of their own. Raises ConfigError."""
    work: Work = "infer" if isinstance(request, ProfileInfer) else "train"
    # A number alone is a count, as `--steps` is in training; the first steps are slower.
    count = int(request.range) if request.range.isdecimal() else 0
    steps = StepRange(11, 10 + count) if count else StepRange.parse(request.range, "range")
    start = starting_recipe(request)
    config, notes = with_batch(change(start, request, work, measured_settings(request, start)), work)
    measured = ProfileRequest(
        load=work,
        first=steps.first,
        last=steps.last,
        out=Path(request.out),
        # A profile is of one process, also of a run that had several.
        config=to_dict(override(config, "machine.procs", 1)),
    )
    session.say(f"{measured.steps} steps, of which {steps.first} to {steps.last} are profiled")
    with Display(session) as display, sigterm_as_interrupt():
        ended = run(
            measured, on_progress=lambda now: display.show(f"profile    {now.phase}, step {now.steps}") if now else None
        )
    result = ended.result(ProfileResult, "the profile")
    if isinstance(result, Failure):
        raise (ConfigError if result.status == "refused" else RunFailed)(result.why)
    return Profile(path=result.run, summary=result.summary, notes=tuple(session.word(note) for note in notes))


profile_train = function(ProfileTrain, profile_steps, "profile_train")
profile_infer = function(ProfileInfer, profile_steps, "profile_infer")
