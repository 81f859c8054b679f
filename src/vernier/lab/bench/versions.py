"""Another version of Vernier, checked out beside this one, and asked for its settings before anything is measured.

A version may have fewer or other settings than this one. A setting it does not have is left out where it is at its
default here, and refused where it is not.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from vernier.config import Config, to_dict
from vernier.config.migrations import RENAMED_SETTINGS
from vernier.errors import ConfigError, RunFailed
from vernier.folders import REPOSITORY
from vernier.frozen import frozen
from vernier.lab.worker import environment
from vernier.records.bench import ConfigTree
from vernier.references import given
from vernier.version import source_commit

_OLD_NAMES = {new: old for old, new in RENAMED_SETTINGS.items()}
_PRINT_SETTINGS = """
import importlib, importlib.util, json, sys
# The newest layout first: each version has one of these.
homes = ("vernier.lab", "vernier.lab.measured.arm"), ("vernier.engine.measured", "vernier.engine.measured.arm")
found = (module for package, module in homes if importlib.util.find_spec(package))
importlib.import_module(next(found, "vernier.engine.bench"))
import vernier.config as config
json.dump(config.to_dict(config.Config()), sys.stdout)
"""


@frozen
class Version:
    """`source` goes on Python's path; `settings` are all it has, at its own defaults."""

    source: Path
    commit: str
    settings: ConfigTree


@contextlib.contextmanager
def checked_out(reference: str) -> Iterator[Version]:
    """The version of a git reference of Vernier's own repository; its files are removed afterwards."""
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}")
    if not reference or commit is None:
        raise ConfigError(
            f"{given('against', reference)} is neither a run directory nor a git reference of {REPOSITORY}. "
            "Give a branch, a tag, a commit or a bench run."
        )
    with tempfile.TemporaryDirectory(prefix="vernier-version-") as scratch:
        tree = Path(scratch) / "tree"
        if _git("worktree", "add", "--detach", str(tree), commit) is None:
            raise RunFailed(f"git could not check out {reference} ({commit[:12]}) beside this version.")
        try:
            yield Version(source=tree / "src", commit=commit, settings=_settings(tree / "src", reference))
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _settings(source: Path, reference: str) -> ConfigTree:
    """All settings of that version. Raises ConfigError where it cannot be measured."""
    problem = "it has no src/vernier"
    if (source / "vernier").is_dir():
        command = [sys.executable, "-P", "-c", _PRINT_SETTINGS]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(source))
        if done.returncode == 0:
            settings: ConfigTree = json.loads(done.stdout.splitlines()[-1])
            return settings
        problem = (done.stderr.strip().splitlines() or ["no message"])[-1]
    raise ConfigError(
        f"{given('against', reference)}: that version cannot be measured. It is older than `vernier bench arm`, or "
        f"does not run here: {problem}."
    )


def fit_config(config: ConfigTree, settings: ConfigTree, reference: str) -> tuple[ConfigTree, list[str]]:
    """`config` with only the `settings` that another version has, and the names left out.

    Raises ConfigError when one of them is not at its default: that version would measure something else.
    """
    left_out: list[str] = []

    def fit(own: ConfigTree, other: ConfigTree, default: ConfigTree, path: str) -> ConfigTree:
        fitted = {}
        for name, value in own.items():
            full_name = f"{path}{name}"
            old_name = _OLD_NAMES.get(full_name, "").rpartition(".")[2]
            if name not in other and old_name in other:
                fitted[old_name] = value
            # A version prints the settings of its default optimizer; it refuses those of another one itself.
            elif name not in other and (path != "recipe.optim." or own["name"] == other["name"]):
                if value != default.get(name):
                    raise ConfigError(
                        f"{given('against', reference)}: that version has no setting {full_name}, which is {value!r} "
                        "here. Measure without it, or against a later version."
                    )
                left_out.append(full_name)
            elif isinstance(value, dict) and isinstance(other[name], dict):
                fitted[name] = fit(value, other[name], default.get(name, {}), f"{full_name}.")
            else:
                fitted[name] = value
        return fitted

    return fit(config, settings, to_dict(Config()), ""), left_out


def describe_this_version() -> str:
    """The commit of this version, for people."""
    commit = source_commit()
    if commit is None:
        return "here: a version that is in no git repository"
    changed = commit.endswith("-dirty")
    return f"here: commit {commit.removesuffix('-dirty')}{', with uncommitted changes' if changed else ''}"


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(REPOSITORY), *arguments], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
