"""Profiles: what `vernier profile` and the functions `profile_train` and `profile_infer` leave, as an object.

The profile is `lab.measured.profile_run`'s.
"""

import os
from pathlib import Path

from vernier.api.functions import function
from vernier.api.session import Session
from vernier.api.starting import change, load_torch, silence_profiler, unchanged_torch
from vernier.config import Work
from vernier.frozen import frozen
from vernier.lab.requests.profiling import Profiled, ProfileInfer, ProfileTrain
from vernier.measure.profiles import StepRange, describe_profile
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
        return "\n".join(describe_profile(self.summary))


def profile_steps(request: Profiled, session: Session) -> Profile:
    """Profile steps in a run of their own. Raises ConfigError."""
    silence_profiler()
    work: Work = "infer" if isinstance(request, ProfileInfer) else "train"
    steps = StepRange.parse(request.range, "range")
    start = starting_recipe(request)
    config, notes = with_batch(change(start, request, work, measured_settings(request, start)), work)
    load_torch(quiet=session.quiet)
    from vernier.lab.measured.profile_run import STEPS_AFTER, profile_load

    session.say(f"{steps.last + STEPS_AFTER} steps, of which {steps.first} to {steps.last} are profiled")
    with unchanged_torch(), session.bar("profile") as progress:
        run, summary = profile_load(config, steps, infer=work == "infer", out=Path(request.out), on_step=progress)
    return Profile(path=run.path, summary=summary, notes=tuple(session.word(note) for note in notes))


profile_train = function(ProfileTrain, profile_steps, "profile_train")
profile_infer = function(ProfileInfer, profile_steps, "profile_infer")
