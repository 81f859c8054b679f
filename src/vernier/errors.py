"""The errors that are for people, and the exit codes they end in.

Whoever raises one says what was given, what would work, and where to set it. `cli.main` prints the message alone,
without a traceback, and so it does where the machine refused (a full disk, no permission). Every other exception is a bug
in Vernier and keeps its traceback.
"""

import difflib
import errno
from collections.abc import Iterable

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_STOPPED = 75
EXIT_INTERRUPTED = 130
_OF_THE_MACHINE = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE,
    errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG,
})  # fmt: skip


class ConfigError(ValueError):
    """Bad usage or configuration: exit code 2, nothing left behind."""


class NoSuchSplit(ConfigError):
    """Nothing of the split that was asked for is there: the set may have others, or be none at all."""


class RunFailed(RuntimeError):
    """What was asked for was tried and failed (diverged, data broken): exit code 1."""


def of_the_machine(error: OSError) -> str:
    """What the machine refused, in words; empty for an error that may be Vernier's own."""
    if error.errno not in _OF_THE_MACHINE:
        return ""
    return f"{error.strerror}: {error.filename}" if error.filename is not None else str(error.strerror)


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A closing sentence that names the nearest known names, or all of them when none is near."""
    names = list(known)
    near = difflib.get_close_matches(given, names, n=3, cutoff=0.5)
    if near:
        return "Did you mean " + " or ".join(near) + "?"
    return "Known: " + ", ".join(sorted(names)) + "." if names else ""
