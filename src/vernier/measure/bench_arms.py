"""Several loads beside one another: each repeat in a fresh process, all arms once a round, in a new random order each round.

So whatever else the machine does meets them all, and what differs from process to process is in the figures. An arm may run
another version of Vernier: a git reference checked out beside this one.
"""

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from vernier.errors import ConfigError, RunFailed
from vernier.measure.clock import now_s

ARM_TIMEOUT_S = 24 * 3600.0
MEMORY_SHARE = 0.9


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


def run_in_process(arm: Arm) -> dict[str, Any]:
    """One arm in a process of its own; a process that is killed is a result too."""
    with tempfile.TemporaryDirectory(prefix="vernier-bench-") as scratch:
        spec, answer = Path(scratch) / "spec", Path(scratch) / "answer"
        spec.write_text(json.dumps(arm.spec), encoding="utf-8")
        began_s = now_s()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "vernier", "bench", "arm", str(spec), str(answer)], capture_output=True, text=True,
            env={**_environment(arm.source), **arm.variables}, timeout=ARM_TIMEOUT_S,
        )  # fmt: skip
        if answer.exists():
            result: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
            return {**result, "process_s": now_s() - began_s}
    if done.returncode == -9:
        return {"status": "out-of-memory", "why": "the process was killed, as the kernel does when memory runs out"}
    if arm.source is not None and "invalid choice" in done.stderr.lower() + done.stdout.lower():
        raise ConfigError(
            f"The version in {arm.labels.get('side')} is too old: it has no `vernier bench arm` to measure."
        )
    words = (done.stderr.strip() or done.stdout.strip()).splitlines()
    raise RunFailed(
        f"The arm {arm.name} failed with exit code {done.returncode}: {' '.join(words[-3:]) or 'no message'}"
    )


def _environment(source: Path | None) -> dict[str, str]:
    """The child's variables: the same code as here, or the one of another version."""
    here = str(Path(__file__).resolve().parents[2]) if source is None else str(source)
    path = [
        here,
        *(p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and source is None and p != here),
    ]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def memory_limit(device: str) -> int | None:
    """Bytes an arm may take so that the machine survives it; accelerators have their own memory and say so themselves."""
    return int(psutil.virtual_memory().available * MEMORY_SHARE) if device in ("cpu", "auto") else None


# ------------------------------------------------------------------------------------------------- other versions


@contextlib.contextmanager
def version(reference: str) -> Iterator[tuple[Path, str]]:
    """The source folder of a git reference of Vernier's own repository, and its commit; gone afterwards."""
    root = Path(__file__).resolve().parents[3]
    commit = _git(root, "rev-parse", "--verify", "--quiet", f"{reference}^{{commit}}")
    if commit is None:
        raise ConfigError(
            f"--against {reference} is neither a run directory nor a git reference of {root}. "
            "Give a branch, a tag, a commit or a bench run."
        )
    with tempfile.TemporaryDirectory(prefix="vernier-version-") as scratch:
        tree = Path(scratch) / "tree"
        if _git(root, "worktree", "add", "--detach", str(tree), commit) is None:
            raise RunFailed(f"git could not check out {reference} ({commit[:12]}) beside this version.")
        try:
            yield tree / "src", commit
        finally:
            _git(root, "worktree", "remove", "--force", str(tree))


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
