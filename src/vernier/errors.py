"""Errors for people, and exit codes.

An error carries what was given, what would work and the reason: its message holds references to options and settings
(`vernier.references`), which the edge words as flags or keyword arguments. `cli.main` prints it without a traceback,
and does the same if the operating system refused something (a full disk, no permission). Every other exception is a bug
in Vernier and keeps its traceback.
"""

from __future__ import annotations

import errno

TYPE_CHECKING = False  # without `typing`, which takes longer to import than everything else before signals are caught
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Self

    from .references import Reference

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_STOPPED = 75
EXIT_INTERRUPTED = 130
_NAMES = "ENOSPC EDQUOT EROFS EACCES EPERM EIO EMFILE ENFILE ESTALE EISDIR ENOTDIR ENAMETOOLONG EFBIG EINTR"
_ENVIRONMENT_ERRNOS = frozenset(getattr(errno, name) for name in _NAMES.split())


class Refusal(Exception):
    """An error meant for people. `str` of it is its message as the edge words it; without an edge, as settings."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message
        """With references in it, not worded yet."""
        self.word: Callable[[str], str] | None = None
        """How the edge words a text; None: as settings."""

    def __str__(self) -> str:
        from .references import plain  # here, because signals are caught only after this module is imported

        return (self.word or plain)(self.message)

    def _references(self) -> list[Reference]:
        from .references import references

        return references(self.message)

    @property
    def given(self) -> dict[str, Any]:
        """What was given and cannot be: options or settings by name, with their value (None: the name alone)."""
        references = [each for each in self._references() if each.role == "given"]
        return {each.name: each.value for each in sorted(references, key=lambda each: each.has_value)}

    @property
    def works(self) -> list[tuple[str, Any]]:
        """What would work instead: options, settings or commands with a value, or with the placeholder for one."""
        return [(each.name, each.slot or each.value) for each in self._references() if each.role != "given"]

    def within(self, location: object) -> Self:
        """The same error with the file or other place it was found in; its settings are then keys of that file."""
        from .references import plain

        return type(self)(f"{location}: {plain(self.message)}")


class ConfigError(Refusal, ValueError):
    """Bad usage or configuration: exit code 2, nothing left behind."""


class NoSuchSplit(ConfigError):
    """The requested split does not exist; the data set may have others."""


class TooLittleMemory(ConfigError):
    """What was asked for surely needs more memory than is free."""


class RunFailed(Refusal, RuntimeError):
    """The command was carried out and failed (diverged, data broken): exit code 1."""


def environment_error(error: OSError) -> str:
    """What the operating system refused, in words; empty for an error that may be Vernier's own."""
    if error.errno not in _ENVIRONMENT_ERRNOS:
        return ""
    return f"{error.strerror}: {error.filename}" if error.filename is not None else str(error.strerror)


def advice(error: OSError) -> str:
    """What to do about it; empty if the reason is enough."""
    from .references import use  # here, because signals are caught only after this module is imported

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"Free some space there, or write to another disk: {use('out', slot='DIR')}."
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"Allow writing there, or choose another folder: {use('out', slot='DIR')}."
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
