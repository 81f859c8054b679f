"""`check`: whether a run of a recipe, with the user's code in it, repeats and resumes bit for bit."""

import tempfile
from pathlib import Path

from safetensors.numpy import load_file

from vernier.api.functions import function
from vernier.api.session import Session
from vernier.api.starting import unchanged_torch
from vernier.api.training import as_run, train_request
from vernier.api.wording import PythonWords
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.lab.requests.checking import Check
from vernier.records.events import StepEvent
from vernier.references import given
from vernier.requests.training import Train
from vernier.store import RunDir
from vernier.wording import plural

STEPS = 4
_SETTINGS = (
    f"checkpoint.every_steps={STEPS // 2}",
    f"checkpoint.keep_last={STEPS}",
    "limits.log_every_steps=1",
    "limits.max_eval_steps=1",
)
_SHOWN = 3


@frozen
class Repeatability:
    """What differs between equal runs, and between a run and one with a restart; empty if nothing does."""

    steps: int
    repeated: tuple[str, ...]
    resumed: tuple[str, ...]

    @property
    def exact(self) -> bool:
        return not (self.repeated or self.resumed)


def check_request(request: Check, session: Session) -> Repeatability:
    """Train three times and compare. Raises what training raises."""
    if request.resume is not None or request.max_steps is not None:
        raise ConfigError(f"A check chooses the steps itself. Omit {given('resume')} and {given('max_steps')}.")
    settings = (*request.settings, *_SETTINGS)
    # As for Python: processes that are started give the run's folder back instead of printing it.
    quiet = Session(PythonWords(Train), quiet=True)

    def trained(out: str, steps: int, resume: str = "never") -> Path:
        session.say(f"{STEPS} steps, {out}")
        options = {name: getattr(request, name) for name in Train.__dataclass_fields__}
        options |= {"settings": settings, "out": str(Path(folder) / out), "max_steps": steps, "resume": resume}
        options |= {"checkpoints": True, "quiet": True, "tensorboard": False, "track": (), "observers": ()}
        return as_run(train_request(Train(**options), quiet)).path

    with tempfile.TemporaryDirectory(prefix="vernier-check-") as folder, unchanged_torch():
        first, second = trained("once", STEPS), trained("again", STEPS)
        # The same as a whole run up to the restart: a checkpoint of two steps, and a new job that loads it.
        half = trained("with a restart", STEPS // 2)
        resumed = trained("with a restart", STEPS, str(half))
        return Repeatability(steps=STEPS, repeated=_differences(first, second), resumed=_differences(first, resumed))


def _differences(one: Path, other: Path) -> tuple[str, ...]:
    """What differs, in words: the first loss, then tensors by file of the last checkpoint."""
    losses = [[e.loss for e in RunDir.open(run).history() if isinstance(e, StepEvent)] for run in (one, other)]
    differing = [
        f"loss of step {n}: {a!r} and {b!r}" for n, (a, b) in enumerate(zip(*losses, strict=False), 1) if a != b
    ][:1]
    last = [RunDir.open(run).checkpoints.committed()[-1].path for run in (one, other)]
    for file in sorted(last[0].glob("*.safetensors")):
        a, b = load_file(file), load_file(last[1] / file.name)
        names = [n for n in sorted({*a, *b}) if n not in a or n not in b or a[n].tobytes() != b[n].tobytes()]
        if names:
            more = f" and {plural(len(names) - _SHOWN, 'more tensor')}" if len(names) > _SHOWN else ""
            differing.append(f"{file.stem}: {', '.join(names[:_SHOWN])}{more}")
    return tuple(differing)


check = function(Check, check_request, "check")
