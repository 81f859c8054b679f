"""Vernier's version as it is shown and recorded: a release as `0.3.0`, a development version with its commit.

Two results of `0.4.0.dev0` can come from different code, so the version alone does not identify it. Everything that
shows or records a version calls `describe_version`; the number itself is `vernier.__version__`.
"""

from functools import cache

from vernier import __version__

from .folders import REPOSITORY

_MODIFIED = "-dirty"
"""What git appends to the commit if tracked files differ from it."""


def describe_version() -> str:
    """Returns `0.3.0` for a release, `0.4.0.dev0 (5258558)` or `0.4.0.dev0 (5258558, modified)` for a git checkout of a
    development version, and `0.4.0.dev0` if there is no checkout. Git runs only for development versions."""
    commit = source_commit() if ".dev" in __version__ else None
    if commit is None:
        return __version__
    modified = ", modified" if commit.endswith(_MODIFIED) else ""
    return f"{__version__} ({commit.removesuffix(_MODIFIED)}{modified})"


@cache
def source_commit() -> str | None:
    """Returns the abbreviated commit of Vernier's own source, ending in `-dirty` if files were modified; None if it
    does not run from a git checkout."""
    if not (REPOSITORY / ".git").exists():
        return None
    import subprocess  # slower to import than everything else here, and a release shows its version without it

    try:
        # A tag in place of the commit would make the text depend on which tags were fetched.
        command = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty", "--exclude=*"]
        described = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return described.stdout.strip() or None
