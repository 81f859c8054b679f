"""Requests of `vernier runs`: listing runs and freeing the disk space they take."""

from typing import Literal

from .common import Json, Quiet
from .declaring import Request, argument, option, request, shared
from .values import Duration, FilePath

CleanKind = Literal["leftovers", "empty", "smoke", "checkpoints", "traces"]


@shared
class _InFolders(Request):
    """Commands about all runs in some folders."""

    folders: tuple[FilePath, ...] = argument(
        (),
        "Folders of runs, or single runs.",
        default="runs",
        metavar="[FOLDER...]",
        repeats=True,
    )


@request("runs list")
class ListRuns(Json, _InFolders):
    """List runs: state, result, steps, size on disk, age, and what ran. Benchmarks, profiles and studies too.

    States: running, finished, stopped (by a signal, can be resumed), interrupted (recorded as running, but its process
    is gone; can be resumed), failed, crashed, damaged (one of its files cannot be read).

    Examples:
        vernier runs
        vernier runs --sort size
        vernier runs /data/runs other-runs --json
    """

    sort: Literal["age", "name", "size", "state", "result"] = option(
        "age", "Order of the rows. The newest, largest or best run comes last, next to your prompt."
    )


@request("runs clean")
class CleanRuns(Json, Quiet, _InFolders):
    """Free disk space: show what would be removed, and remove it only if that is confirmed.

    A run in use is kept, and so is one without a sound checkpoint, one that another run was started from, and every
    folder with a file that Vernier did not write. If it is interrupted, every run stays usable; the same command
    finishes the work.

    Examples:
        vernier runs clean
        vernier runs clean --yes
        vernier runs clean --what checkpoints,traces --older-than 7d --yes
    """

    what: tuple[CleanKind, ...] = option(
        ("leftovers", "empty", "smoke", "checkpoints"),
        "What to remove. leftovers: unfinished files of killed processes. empty: runs that never trained a step. "
        "smoke: dry runs. checkpoints: of finished runs, all but the newest and the best. traces: trace "
        "files of profiles; their tables are kept.",
        metavar="KIND,...",
    )
    older_than: Duration | None = option(None, "Only in runs that ended longer ago than this, such as 12h or 7d.")
    yes: bool = option(False, "Remove it.")
