"""Another version of Vernier for a benchmark to run: checked out beside this one, and asked what it knows before anything is measured.

A version knows fewer settings, or other ones, than this. What it does not know is left out where it is at its default here, and
refused where it was asked for.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vernier.config import Config, to_dict
from vernier.errors import ConfigError, RunFailed
from vernier.folders import REPOSITORY
from vernier.measure.bench.arms import environment_of
from vernier.measure.machine.environment import source_commit

_ASK = "import json, sys, vernier.engine.measured.arm as _, vernier.config as c; json.dump(c.to_dict(c.Config()), sys.stdout)"


@dataclass(frozen=True, kw_only=True)
class Version:
    """`source` is what goes on Python's path; `settings` are all it knows, at its own defaults."""

    source: Path
    commit: str
    settings: dict[str, Any]


@contextlib.contextmanager
def version(reference: str) -> Iterator[Version]:
    """A git reference of Vernier's own repository; its files are gone afterwards."""
    root = REPOSITORY
    commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}")
    if not reference or commit is None:
        raise ConfigError(
            f"--against {reference!r} is neither a run directory nor a git reference of {root}. "
            "Give a branch, a tag, a commit or a bench run."
        )
    with tempfile.TemporaryDirectory(prefix="vernier-version-") as scratch:
        tree = Path(scratch) / "tree"
        if _git(root, "worktree", "add", "--detach", str(tree), commit) is None:
            raise RunFailed(f"git could not check out {reference} ({commit[:12]}) beside this version.")
        try:
            yield Version(source=tree / "src", commit=commit, settings=_settings(tree / "src", reference))
        finally:
            _git(root, "worktree", "remove", "--force", str(tree))


def _settings(source: Path, reference: str) -> dict[str, Any]:
    """What that version can be told. Raises ConfigError where it cannot be measured."""
    there = (source / "vernier").is_dir()
    done = there and subprocess.run(
        [sys.executable, "-P", "-c", _ASK], capture_output=True, text=True, env=environment_of(source)
    )
    if not done or done.returncode:
        words = done.stderr.strip().splitlines() if done else ["it has no src/vernier"]
        raise ConfigError(
            f"--against {reference}: that version cannot be measured. It is older than `vernier bench arm`, or does not run "
            f"here: {words[-1] if words else 'no message'}."
        )
    known: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return known


def fitted(config: dict[str, Any], known: dict[str, Any], reference: str) -> tuple[dict[str, Any], list[str]]:
    """`config` without what another version does not know, and the names left out.

    Raises ConfigError when one of them is not at its default: that version would measure something else.
    """
    left_out: list[str] = []

    def kept(mine: dict[str, Any], theirs: dict[str, Any], default: dict[str, Any], path: str) -> dict[str, Any]:
        found = {}
        for name, value in mine.items():
            where = f"{path}{name}"
            if name not in theirs:
                if value != default.get(name):
                    raise ConfigError(
                        f"--against {reference}: that version has no setting {where}, which is {value!r} here. "
                        "Measure without it, or against a later version."
                    )
                left_out.append(where)
            elif isinstance(value, dict) and isinstance(theirs[name], dict):
                found[name] = kept(value, theirs[name], default.get(name, {}), f"{where}.")
            else:
                found[name] = value
        return found

    return kept(config, known, to_dict(Config()), ""), left_out


def here() -> str:
    """Which version this is, for people."""
    commit = source_commit()
    if commit is None:
        return "here: a version that is in no git repository"
    changed = commit.endswith("-dirty")
    return f"here: commit {commit.removesuffix('-dirty')}{', with changes that are not committed' if changed else ''}"


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
