"""What works on each device, from having tried it: every trial in a process of its own, with a time limit.

So a driver that crashes or hangs is a line of the result and not the end of `vernier doctor --devices`. What is tried
inside the process is up to `lab.measured.trial`.
"""

import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from vernier.clock import now_s
from vernier.config import Augment, Config, Data, Limits, Machine, Model, Recipe, Schedule, to_dict
from vernier.devices import kinds
from vernier.devices.base import PRECISIONS
from vernier.errors import EXIT_USAGE
from vernier.frozen import frozen
from vernier.lab.worker import Worker
from vernier.optim.kinds.sgd import Sgd
from vernier.records.bench import ArmFailure, TrialRequest, TrialResult
from vernier.records.codec import decode
from vernier.records.environment import DeviceInfo

LIMIT_S = 120.0
COMPILE_LIMIT_S = 300.0
ANSWER_LIMIT_S = 60.0
ABSENT = "cannot be used on this machine"
"""Words of `devices.resolve` about a kind of device that is not here."""
_MESSAGE_LENGTH = 400

TRIED = Config(
    recipe=Recipe(
        name="doctor",
        global_batch=8,
        model=Model(name="resnet8-small", width=16),
        data=Data(source="synthetic", image_px=32, eval_px=32, eval_short_side_px=32),
        augment=Augment(crop="none"),
        optim=Sgd(lr=0.01),
        schedule=Schedule(epochs=1.0),
    ),
    machine=Machine(eval_batch=8, workers=1, telemetry_hz=0.0),
    limits=Limits(max_eval_steps=1),
)
"""A training of two steps of eight random images."""

Outcome = Literal["works", "refused", "failed", "untried"]


@frozen
class Trial:
    """One thing that was tried. `note`: what was seen, or why it was refused or failed; `seconds` with start-up."""

    name: str
    outcome: Outcome
    seconds: float
    note: str


@frozen
class TriedDevice:
    """A device and its trials. `info` is None where the device could not say what it is."""

    device: str
    info: DeviceInfo | None
    about: str
    trials: tuple[Trial, ...]


@frozen
class _Attempt:
    """A trial to come: its request, the variables and the time limit of its process."""

    name: str
    request: TrialRequest
    variables: dict[str, str]
    limit_s: float = LIMIT_S


OnTrial = Callable[[str], None]
"""Called with what is being tried now."""


def try_devices(names: tuple[str, ...], on_trial: OnTrial = lambda _: None) -> Iterator[TriedDevice]:
    """Try every device of these kinds that is here: the first of each kind in every way, the others with one training.

    A kind that is not here is left out; one that cannot say so without a crash is shown.
    """
    for name in names:
        on_trial(f"{name}: identity")
        identity, answer = _run(_attempt("identity", name, "identity"))
        if identity.outcome == "refused" and ABSENT in identity.note:
            continue
        if answer is None:
            yield TriedDevice(device=name, info=None, about="", trials=(identity,))
            continue
        device = kinds()[name]()
        for position, info in enumerate(answer.devices):
            variables = device.environment_for(info) if len(answer.devices) > 1 else {}
            attempts = _attempts(name, variables, first=position == 0)
            trials = tuple(_try_in_turn(f"{name} {info.index}", attempts, on_trial))
            yield TriedDevice(device=name, info=info, about=answer.seen, trials=trials)


def _try_in_turn(device: str, attempts: list[_Attempt], on_trial: OnTrial) -> Iterator[Trial]:
    """Try one after another; a device that no longer answers after a failure is not kept waiting for."""
    for position, attempt in enumerate(attempts):
        on_trial(f"{device}: {attempt.name}")
        trial = _run(attempt)[0]
        yield trial
        left = attempts[position + 1 :]
        if trial.outcome == "failed" and left and not _answers(attempt):
            note = f"the device no longer answers since {attempt.name!r}"
            yield from (Trial(name=later.name, outcome="untried", seconds=0.0, note=note) for later in left)
            return


def _answers(attempt: _Attempt) -> bool:
    """Whether the device of an attempt still copies some bytes."""
    request = replace(attempt.request, trial="copies")
    return _run(replace(attempt, request=request, limit_s=ANSWER_LIMIT_S))[0].outcome == "works"


def _attempts(name: str, variables: dict[str, str], *, first: bool) -> list[_Attempt]:
    fp32 = _attempt("train fp32", name, "train", variables)
    if not first:
        return [fp32]
    return [
        fp32,
        *(_attempt(f"train {p}", name, "train", variables, precision=p) for p in PRECISIONS if p != "fp32"),
        _attempt("evaluate", name, "evaluate", variables),
        replace(_attempt("compile", name, "train", variables, mode="compile"), limit_s=COMPILE_LIMIT_S),
        _attempt("two processes", name, "train", procs=2),
        _attempt("copies", name, "copies", variables),
        _attempt("events", name, "events", variables),
    ]


def _attempt(
    name: str,
    device: str,
    trial: Literal["identity", "train", "evaluate", "copies", "events"],
    variables: dict[str, str] | None = None,
    **machine: object,
) -> _Attempt:
    config = replace(TRIED, machine=replace(TRIED.machine, device=device, **machine))  # type: ignore[arg-type]
    return _Attempt(name=name, request=TrialRequest(trial=trial, config=to_dict(config)), variables=variables or {})


# ------------------------------------------------------------------------------------------------------------ processes


def _run(attempt: _Attempt) -> tuple[Trial, TrialResult | None]:
    """What happened in the process, and its answer if it gave one."""
    began_s = now_s()

    def trial(outcome: Outcome, note: str) -> Trial:
        return Trial(name=attempt.name, outcome=outcome, seconds=now_s() - began_s, note=note[:_MESSAGE_LENGTH])

    with tempfile.TemporaryDirectory(prefix="vernier-doctor-") as folder:
        worker = Worker(attempt.request, Path(folder), attempt.variables)
        try:
            done = worker.ends_within(attempt.limit_s)
        finally:
            worker.end(grace_s=0.0)  # also what it started
        tree, code, message = worker.answer(), worker.code, worker.last_lines(1).removeprefix("vernier: ")
    if tree is not None and tree.get("status") == "ok":
        answer = decode(TrialResult, tree)
        return trial("works", answer.seen), answer
    if tree is not None:
        failure = decode(ArmFailure, tree)
        return trial("refused" if failure.status == "refused" else "failed", failure.why), None
    if not done or code is None:
        return trial("failed", f"not done after {attempt.limit_s:.0f} s, and ended"), None
    if code < 0:
        return trial("failed", f"crashed with {signal.Signals(-code).name}: {message}"), None
    return trial("refused" if code == EXIT_USAGE else "failed", message), None
