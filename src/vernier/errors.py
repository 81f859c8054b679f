"""Errors for people, and exit codes.

A message says what was given, what would work, and where to set it. `cli.main` prints it without a traceback, and does
the same where the operating system refused (a full disk, no permission). Every other exception is a bug in Vernier and
keeps its traceback.
"""

import errno
from collections.abc import Iterable

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_STOPPED = 75
EXIT_INTERRUPTED = 130
_NAMES = "ENOSPC EDQUOT EROFS EACCES EPERM EIO EMFILE ENFILE ESTALE EISDIR ENOTDIR ENAMETOOLONG EFBIG EINTR"
_ENVIRONMENT_ERRNOS = frozenset(getattr(errno, name) for name in _NAMES.split())


class ConfigError(ValueError):
    """Bad usage or configuration: exit code 2, nothing left behind."""


class NoSuchSplit(ConfigError):
    """The requested split does not exist; the data set may have others."""


class TooLittleMemory(ConfigError):
    """What was asked for surely needs more memory than is free."""


class RunFailed(RuntimeError):
    """The command was carried out and failed (diverged, data broken): exit code 1."""


def environment_error(error: OSError) -> str:
    """What the operating system refused, in words; empty for an error that may be Vernier's own."""
    if error.errno not in _ENVIRONMENT_ERRNOS:
        return ""
    return f"{error.strerror}: {error.filename}" if error.filename is not None else str(error.strerror)


def advice(error: OSError) -> str:
    """What to do about it; empty where the reason says it all."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space there, or write to another disk (--out)."
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "Allow writing there, or choose another folder (--out)."
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "Allow more open files (ulimit -n)."
    return "Look at the state of that disk." if error.errno in (errno.EIO, errno.ESTALE) else ""


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """A closing sentence that names the nearest choices; when none is near all of them, or the first dozen."""
    import difflib  # here, because signals are caught only after this module is imported

    names = list(choices)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return "Did you mean " + " or ".join(near) + "?"
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"Known: {', '.join(sorted(names)[:12])}{more}." if names else ""
