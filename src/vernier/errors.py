"""The errors that are for people, and the exit codes they end in.

Whoever raises one says what was given, what would work, and where to set it. `cli.main` prints the message alone,
without a traceback; every other exception is a bug in Vernier and keeps its traceback.
"""

import difflib
from collections.abc import Iterable

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_STOPPED = 75


class ConfigError(ValueError):
    """Bad usage or configuration: exit code 2, nothing left behind."""


class RunFailed(RuntimeError):
    """What was asked for was tried and failed (diverged, data broken): exit code 1."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A closing sentence that names the nearest known names, or all of them when none is near."""
    names = list(known)
    near = difflib.get_close_matches(given, names, n=3, cutoff=0.5)
    if near:
        return "Did you mean " + " or ".join(near) + "?"
    return "Known: " + ", ".join(sorted(names)) + "." if names else ""
