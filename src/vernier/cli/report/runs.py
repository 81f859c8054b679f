"""`vernier runs` and `vernier runs clean`: the flags, the table, and what was freed.

The rows are `vernier.report.runs`', what can be removed is decided in `vernier.store.cleaning`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from vernier.cli.bench.options import parse_choices
from vernier.cli.flags import JsonFlag, QuietFlag, Switch, optional
from vernier.cli.output import print_json, print_rows, progress_bar, say, set_quiet, show
from vernier.config import parse_duration
from vernier.errors import EXIT_DONE, EXIT_FAILED, ConfigError, did_you_mean
from vernier.wording import plural, size_text

if TYPE_CHECKING:
    from vernier.report.runs import RunRow
    from vernier.store import RunDir
    from vernier.store.cleaning import Choice, Plan

Folders = Annotated[Positional[tuple[str, ...]], optional("[FOLDER...]")]
SortKey = Literal["age", "name", "size", "state", "result"]
DEFAULT_FOLDER = "runs"
_SORT_KEYS: dict[str, Callable[["RunRow"], tuple[object, ...]]] = {
    "age": lambda row: (-row.age_s,),
    "name": lambda row: (row.name,),
    "size": lambda row: (row.bytes,),
    "state": lambda row: (row.state,),
    "result": lambda row: (row.metric or "", row.result or 0.0),
}
_FORMS = {"top1": "{:.2f} %", "AP": "AP {:.3f}", "images_per_s": "{:,.0f} img/s"}
BY_DEFAULT = "leftovers,empty,smoke,checkpoints"
MOST_LINES = 30


def list_all(folders: Folders = (), /, *, sort: SortKey = "age", json: JsonFlag = False) -> int:
    """List runs: state, result, steps, size on disk, age, and what ran. Benchmarks, profiles and studies too.

    States: running, finished, stopped (by a signal, can be resumed), interrupted (says that it is running, but its
    process is gone; can be resumed), failed, crashed, damaged (a file of it cannot be read).

    Args:
        folders: Folders of runs, or single runs. Default: runs.
        sort: Order of the rows. The newest, largest or best run comes last, next to your prompt.

    Examples:
        vernier runs
        vernier runs --sort size
        vernier runs /data/runs other-runs --json
    """
    from vernier.report.runs import list_runs

    rows = list_runs(_existing(folders))
    rows.sort(key=_SORT_KEYS[sort])
    if json:
        print_json(rows)
        return EXIT_DONE
    if not rows:
        say(f"No runs in {', '.join(folders) or DEFAULT_FOLDER}/. vernier train makes one.")
        return EXIT_DONE
    several = len(folders) > 1
    print_rows(
        [_cells(row, several) for row in rows],
        False,
        droppable=("ran", "step", "age"),
        wrapped="run",
        right=("step", "size", "age"),
    )
    for row in rows:
        if row.state == "damaged":
            say(f"damaged: {row.path}: {row.problem}")
    say(_total(rows))
    return EXIT_DONE


def _existing(folders: Sequence[str]) -> list[Path]:
    """The folders as paths. Raises ConfigError for one that is not there; `runs` may be missing."""
    if not folders and not Path(DEFAULT_FOLDER).exists():
        return []
    paths = [Path(folder).expanduser() for folder in folders or (DEFAULT_FOLDER,)]
    for path in paths:
        if not path.is_dir():
            near = did_you_mean(str(path), COMMANDS) if "/" not in str(path) and not path.exists() else ""
            hint = f" {near.replace('Did you mean', 'Did you mean the action')}" if near.startswith("Did") else ""
            raise ConfigError(
                f"{path} {'is a file' if path.exists() else 'does not exist'}. Give a folder of runs.{hint}"
            )
    return paths


def _cells(row: "RunRow", several: bool) -> dict[str, str]:
    progress = "" if row.step is None else f"{row.step:,}"
    if row.steps is not None and row.steps != row.step:
        progress = f"{row.step or 0:,}/{row.steps:,}"
    result = "" if row.result is None else _FORMS[row.metric or ""].format(row.result)
    if row.kind == "study":
        result, progress = f"{progress} repeats", ""
    return {
        "run": str(row.path) if several else row.name,
        "state": row.state,
        "result": "smoke run" if row.smoke else result,
        "step": progress,
        "size": size_text(row.bytes),
        "age": _age(row.age_s),
        "ran": row.ran,
    }


def _age(seconds: float) -> str:
    for unit, length_s in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.0f} s"


def _total(rows: "Sequence[RunRow]") -> str:
    states = dict.fromkeys(row.state for row in rows)
    counts = ", ".join(f"{sum(row.state == state for row in rows)} {state}" for state in states)
    return f"{plural(len(rows), 'run')}, {size_text(sum(row.bytes for row in rows))}: {counts}"


# --------------------------------------------------------------------------------------------------------------- clean


def clean(
    folders: Folders = (),
    /,
    *,
    what: Annotated[str, arg(metavar="KIND,...")] = BY_DEFAULT,
    older_than: Annotated[str | None, optional("TIME")] = None,
    yes: Switch = False,
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Free disk space. Shows what would be removed; nothing is removed without --yes.

    A run in use is left alone, and so is one without a sound checkpoint, one that another run was started from, and
    every folder with a file that Vernier did not write. Interrupted in the middle, every run stays usable; the same
    command finishes the work.

    Args:
        folders: Folders of runs, or single runs. Default: runs.
        what: What to remove. leftovers: what killed processes were writing. empty: runs that never trained a step.
            smoke: runs of --smoke. checkpoints: of finished runs, all but the newest and the best. traces: trace files
            of profiles; their tables stay.
        older_than: Only in runs that ended longer ago than this, e.g. 12h, 7d.
        yes: Remove it.

    Examples:
        vernier runs clean
        vernier runs clean --yes
        vernier runs clean --what checkpoints,traces --older-than 7d --yes
    """
    set_quiet(quiet)
    from vernier.store.cleaning import KINDS, Choice

    kinds = frozenset(kind for kind in KINDS if kind in parse_choices("--what", what, KINDS))
    min_age_s = 0.0 if older_than is None else _duration(older_than)
    choice = Choice(kinds=kinds, min_age_s=min_age_s)
    plan = _clean(_existing(folders), choice, remove=yes)
    if json:
        items = {"removed" if yes else "removable": plan.removals, "left_alone": plan.left_alone}
        print_json({"dry_run": not yes, "bytes": plan.bytes, **items})
    else:
        _print_plan(plan, yes)
    return EXIT_FAILED if yes and any(item.reason.startswith("could not") for item in plan.left_alone) else EXIT_DONE


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ConfigError as error:
        raise ConfigError(f"--older-than: {error}") from None


def _clean(folders: list[Path], choice: "Choice", *, remove: bool) -> "Plan":
    """Plan, or remove, in all folders. After Ctrl-C or SIGTERM, what was removed so far is said."""
    from vernier.cli.launching import sigterm_as_interrupt
    from vernier.store.cleaning import Plan, clean_folder, clean_run, plan_folder, plan_run, starting_weights

    parents = [folder for folder in folders if not _is_run(folder)]
    runs = [run for folder in folders for run in _runs_in(folder)]
    neighbours = {run.path: run for folder in (*folders, *(f.parent for f in folders)) for run in _runs_in(folder)}
    choice = replace(choice, in_use=starting_weights(neighbours.values()))
    plans: list[Plan] = []
    try:
        with sigterm_as_interrupt(), progress_bar("clean") as progress:
            for folder in parents:
                plans.append((clean_folder if remove else plan_folder)(folder, choice))
            for number, run in enumerate(runs, start=1):
                plans.append((clean_run if remove else plan_run)(run, choice))
                progress(number, len(runs))
    except KeyboardInterrupt:
        if remove:
            say(f"freed {size_text(Plan.of(*plans).bytes)} before the interruption; the same command removes the rest")
        raise
    return Plan.of(*plans)


def _is_run(folder: Path) -> bool:
    from vernier.store import RunDir

    return RunDir.is_run(folder)


def _runs_in(folder: Path) -> "list[RunDir]":
    from vernier.store import RunDir, find_runs

    return [RunDir(folder)] if RunDir.is_run(folder) else find_runs(folder)


def _print_plan(plan: "Plan", done: bool) -> None:
    """The largest parts first, what was left alone and why, and the sum."""
    largest = sorted(plan.removals, key=lambda removal: -removal.bytes)
    for removal in largest[:MOST_LINES]:
        where = removal.run if removal.run is not None else removal.paths[0]
        parts = "" if where in removal.paths else f": {_names(removal.paths)}"
        show(f"{removal.kind:<12} {size_text(removal.bytes):>7}  {where}{parts}")
    if len(largest) > MOST_LINES:
        show(f"... and {len(largest) - MOST_LINES} more (--json has all)")
    for item in plan.left_alone[:MOST_LINES]:
        say(f"left alone: {item.path}: {item.reason}")
    if len(plan.left_alone) > MOST_LINES:
        say(f"left alone: {len(plan.left_alone) - MOST_LINES} more (--json has all)")
    kinds = dict.fromkeys(removal.kind for removal in largest)
    sums = {kind: sum(removal.bytes for removal in largest if removal.kind == kind) for kind in kinds}
    by_kind = f" ({', '.join(f'{kind} {size_text(size)}' for kind, size in sums.items())})" if len(sums) > 1 else ""
    if not largest:
        say("Nothing to remove.")
    elif done:
        show(f"freed {size_text(plan.bytes)}{by_kind}")
    else:
        show(f"{size_text(plan.bytes)} can be freed{by_kind}. Nothing was removed: add --yes to do it.")


def _names(paths: Sequence[Path]) -> str:
    names = ", ".join(path.name for path in paths[:3])
    return names if len(paths) <= 3 else f"{names} and {len(paths) - 3} more"


COMMANDS: dict[str, Callable[..., int]] = {"list": list_all, "clean": clean}
