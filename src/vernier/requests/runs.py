"""The request of `vernier runs`: listing runs."""

from typing import Literal

from .common import Json
from .declaring import argument, option, request
from .values import FilePath


@request("runs list")
class ListRuns(Json):
    """List runs: state, result, steps, size on disk, age, and what ran. Benchmarks, profiles and studies too.

    States: running, finished, stopped (by a signal, can be resumed), interrupted (recorded as running, but its process
    is gone; can be resumed), failed, crashed, damaged (one of its files cannot be read).

    Examples:
        vernier runs
        vernier runs --sort size
        vernier runs /data/runs other-runs --json
    """

    folders: tuple[FilePath, ...] = argument(
        (),
        "Folders of runs, or single runs.",
        default="runs",
        metavar="[FOLDER...]",
        repeats=True,
    )
    sort: Literal["age", "name", "size", "state", "result"] = option(
        "age", "Order of the rows. The newest, largest or best run comes last, next to your prompt."
    )
