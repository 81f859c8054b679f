"""Several loads beside one another: each repeat in a fresh process, all arms once a round, in a new random order each round.

So whatever else the machine does meets them all, and what differs from process to process is in the figures. An arm may run
another version of Vernier: see `bench_versions`.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from vernier.clock import now_s
from vernier.errors import RunFailed
from vernier.folders import PACKAGE_PARENT

ARM_TIMEOUT_S = 24 * 3600.0
MEMORY_SHARE = 0.9
_LOOK_S, _END_S = 1.0, 20.0


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One load to measure: `labels` tell it from the others, `spec` is what its process is asked, `source` whose code runs.

    `variables` are set for its process.
    """

    name: str
    labels: dict[str, Any]
    spec: dict[str, Any]
    source: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)


@dataclass
class Round:
    """One result of one arm. `order` is its place among all that were run."""

    arm: str
    round: int
    order: int
    result: dict[str, Any] = field(default_factory=dict)


Tell = Callable[[list[Round], int], None]


def run_arms(arms: Sequence[Arm], *, repeats: int, seed: int, tell: Tell) -> list[Round]:
    """Every arm `repeats` times; `tell` hears of each result as it comes, so that nothing is lost on the way."""
    done: list[Round] = []
    dice, total, failed = random.Random(seed), repeats * len(arms), dict[str, dict[str, Any]]()
    for number in range(repeats):
        for arm in dice.sample(list(arms), len(arms)):
            result = failed.get(arm.name) or _hopeless(arm, arms, failed) or run_in_process(arm)
            if result["status"] != "ok":
                failed[arm.name] = result
            done.append(Round(arm.name, number, len(done), result))
            tell(done, total)
    return done


def _hopeless(arm: Arm, arms: Sequence[Arm], failed: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """What a smaller batch of the same arm has already failed at for want of memory."""

    def others(a: Arm) -> dict[str, Any]:
        return {k: v for k, v in a.labels.items() if k != "batch"}

    for other in arms:
        smaller = other.labels.get("batch", 0) < arm.labels.get("batch", 0)
        full = failed.get(other.name, {}).get("status") == "out-of-memory"
        if smaller and full and others(other) == others(arm):
            return {"status": "out-of-memory", "why": f"not tried: batch {other.labels['batch']} did not fit either"}
    return None


def run_in_process(arm: Arm, heard: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
    """One arm in a process of its own; a process that is killed is a result too. `heard` gets what it says on the way, once."""
    with tempfile.TemporaryDirectory(prefix="vernier-bench-") as scratch:
        spec, answer, pace = (Path(scratch) / name for name in ("spec", "answer", "pace"))
        asked = arm.spec if heard is None else {**arm.spec, "pace": str(pace)}
        spec.write_text(json.dumps(asked), encoding="utf-8")
        began_s = now_s()
        command = [sys.executable, "-P", "-m", "vernier", "bench", "arm", str(spec), str(answer)]
        code, words = _run(command, {**environment_of(arm.source), **arm.variables}, heard, pace)
        if answer.exists():
            result: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
            return {**result, "process_s": now_s() - began_s}
    if code == -signal.SIGKILL:
        return {"status": "out-of-memory", "why": "the process was killed, as the kernel does when memory runs out"}
    raise RunFailed(f"The arm {arm.name} failed with exit code {code}: {' '.join(words[-3:]) or 'no message'}")


def _run(
    command: list[str], variables: dict[str, str], heard: Callable[[dict[str, Any]], None] | None, pace: Path
) -> tuple[int, list[str]]:
    """The exit code and what was said. Whatever ends this process's wait ends the other one too."""
    until_s = now_s() + ARM_TIMEOUT_S
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables) as process:
        try:
            while True:
                said = _said_within(process, _LOOK_S if heard else until_s - now_s())
                if heard and pace.exists():
                    heard(json.loads(pace.read_text(encoding="utf-8")))
                    heard = None
                if said is not None:
                    return process.returncode, said
                if now_s() >= until_s:
                    raise RunFailed(f"An arm was not done after {ARM_TIMEOUT_S / 3600:g} hours.")
        except BaseException:
            _end(process)
            raise


def _said_within(process: "subprocess.Popen[str]", seconds: float) -> list[str] | None:
    """Lines of a process that ended: its errors, or else its output; None when it has not."""
    try:
        out, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    return (errors.strip() or out.strip()).splitlines()


def _end(process: "subprocess.Popen[str]") -> None:
    """Ask a process to end, so that it can end those it started; insist after a while."""
    process.terminate()
    try:
        process.wait(timeout=_END_S)
    except subprocess.TimeoutExpired:
        process.kill()


def environment_of(source: Path | None) -> dict[str, str]:
    """The child's variables: the same code as here, or the one of another version."""
    here = str(PACKAGE_PARENT) if source is None else str(source)
    path = [
        here,
        *(p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and source is None and p != here),
    ]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def memory_limit(device: str) -> int | None:
    """Bytes an arm may take so that the machine survives it; accelerators have their own memory and say so themselves."""
    return int(psutil.virtual_memory().available * MEMORY_SHARE) if device in ("cpu", "auto") else None
