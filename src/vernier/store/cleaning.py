"""What of a run can be removed to free disk space, and removing it so that a kill leaves every run usable.

    leftovers    what killed processes were writing or removing, and folders of runs that never got a configuration
    empty        runs that never trained a step
    smoke        runs of `--smoke`
    checkpoints  of finished runs: all but the newest sound one and the best
    traces       of profiles: the trace files; kernel tables and summaries stay

Nothing is removed from a run that a process holds, from one without a sound checkpoint, or where a file lies that
Vernier did not write. A folder first gets a hidden name in one step, so a kill leaves it whole or out of sight.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from vernier.clock import parse_stamp_s, wall_s
from vernier.errors import ConfigError, environment_error
from vernier.frozen import frozen
from vernier.records.codec import DamagedRecord
from vernier.records.events import EvalEvent, StepEvent
from vernier.records.run import RunStatus

from .checkpoints import STEP_DIR
from .durable import DELETING, remove_folder
from .run_dir import RunDir

Kind = Literal["leftovers", "empty", "smoke", "checkpoints", "traces"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SETTLED_S = 3600.0
"""A run whose end was never recorded is removed as a whole only when nothing in it has changed for this long: between
making or choosing a run and locking it, a starting process reads its data."""
_STAMPED = re.compile(r"^\d{8}-\d{6}-.")  # as `RunDir.create` names runs: date, time, name
# A new file that runs write must be added here: one that is not listed is taken for a person's, and keeps the run.
_OWN_FILES = re.compile(
    r"config\.json|environment\.json|run\.json|run\.lock|bench\.json|bench\.md|report\.html"
    r"|train_images\.json|held_out\.json|finetuning\.json"
    r"|(events|telemetry)(\.rank\d+)?\.jsonl|checkpoints|predictions|tensorboard|traces|logs|\..*\.tmp-\d+"
)
_OWN_CHECKPOINT_FILES = re.compile(rf"{STEP_DIR.pattern.strip('^$')}|latest|best|\..*")


@frozen
class Choice:
    """What a person wants to remove. `in_use` are files that other runs were started from: `starting_weights`."""

    kinds: frozenset[Kind]
    min_age_s: float = 0.0
    in_use: frozenset[Path] = frozenset()


@frozen
class _Removal:
    """Files and folders of one kind that go together. `run` is None where they belong to none."""

    kind: Kind
    run: Path | None
    paths: tuple[Path, ...]
    bytes: int
    """Disk space that is freed."""


@frozen
class _LeftAlone:
    """A run, or a part of one, that stays although it is of a chosen kind, and why."""

    path: Path
    reason: str


@frozen
class Plan:
    """What goes, and what stays for a reason that a person may want to know."""

    removals: tuple[_Removal, ...] = ()
    left_alone: tuple[_LeftAlone, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(removal.bytes for removal in self.removals)

    @classmethod
    def of(cls, *plans: "Plan") -> "Plan":
        """Several plans as one."""
        removals = tuple(removal for plan in plans for removal in plan.removals)
        return cls(removals=removals, left_alone=tuple(item for plan in plans for item in plan.left_alone))

    @classmethod
    def keeping(cls, path: Path, reason: str) -> "Plan":
        return cls(left_alone=(_LeftAlone(path=path, reason=reason),))

    @classmethod
    def removing(cls, kind: Kind, run: RunDir | None, paths: Sequence[Path]) -> "Plan":
        removal = _Removal(
            kind=kind, run=None if run is None else run.path, paths=tuple(paths), bytes=_freed_bytes(paths)
        )
        return cls(removals=(removal,)) if paths else cls()


def incomplete_runs(folder: Path) -> list[Path]:
    """Folders with a name of a run and without a configuration: their process was killed while it made them."""
    return [
        path
        for path in sorted(folder.iterdir())
        if _STAMPED.match(path.name) and path.is_dir() and not path.is_symlink() and _has_only_empty_folders(path)
    ]


def _has_only_empty_folders(path: Path) -> bool:
    # `RunDir.create` makes an empty checkpoints/ before the configuration is written.
    return all(p.is_dir() and not p.is_symlink() and not any(p.iterdir()) for p in path.iterdir())


def starting_weights(runs: Iterable[RunDir]) -> frozenset[Path]:
    """Files that runs were started from: a checkpoint with one of them stays, so that the run can be repeated."""
    files = set()
    for run in runs:
        try:
            model = run.read_config()["recipe"]["model"]
            names = [model.get(key) for key in ("weights", "backbone_weights", "checkpoint")]
        except (ConfigError, KeyError, TypeError, AttributeError):
            # A damaged run must not keep others from being cleaned.
            continue
        files |= {Path(name).expanduser().resolve() for name in names if name and isinstance(name, str)}
    return frozenset(files)


# ------------------------------------------------------------------------------------------------------------ planning


def _plan(run: RunDir, choice: Choice, *, settled: bool, hashes: bool) -> Plan:
    """`hashes`: the checkpoint that stays is read and compared with its manifest."""
    try:
        run.read_config()
        status = run.recorded_status()
    # Only of run.json: a run that was killed before it wrote its first status, which is unknown.
    except FileNotFoundError:
        status = RunStatus()
    except (OSError, ConfigError, DamagedRecord) as error:
        return Plan.keeping(run.path, f"damaged: {error}")
    if choice.min_age_s and wall_s() - changed_s(run, status) < choice.min_age_s:
        return Plan()
    if whole := _kind_of_whole_run(run, status, choice.kinds):
        if reason := _why_not_whole(run, status, choice.in_use, settled=settled):
            return Plan.keeping(run.path, reason)
        return Plan.removing(whole, run, [run.path])
    parts = []
    if "leftovers" in choice.kinds:
        parts.append(Plan.removing("leftovers", run, run.leftovers()))
    if "checkpoints" in choice.kinds and status.status == "finished":
        parts.append(_plan_checkpoints(run, choice.in_use, hashes))
    if "traces" in choice.kinds:
        parts.append(Plan.removing("traces", run, run.trace_files()))
    return Plan.of(*parts)


def changed_s(run: RunDir, status: RunStatus) -> float:
    """When a run last said how it is, or else when its files changed: seconds since 1970."""
    return parse_stamp_s(status.updated) or newest_change_s(run.path)


def _is_settled(path: Path) -> bool:
    return wall_s() - newest_change_s(path) > SETTLED_S


def _kind_of_whole_run(run: RunDir, status: RunStatus, kinds: frozenset[Kind]) -> Kind | None:
    """By which of the chosen kinds a run can go as a whole."""
    if "smoke" in kinds and run.is_smoke:
        return "smoke"
    return "empty" if "empty" in kinds and _never_trained(run, status) else None


def _never_trained(run: RunDir, status: RunStatus) -> bool:
    # run.json has no summary while a run trains: after a kill, only checkpoints and events show that it did.
    if run.is_bench or run.profiles() or run.checkpoints.committed() or status.status == "finished":
        return False
    if status.summary is not None and status.summary.step:
        return False
    return run.newest_event(StepEvent) is None and run.newest_event(EvalEvent) is None


def _why_not_whole(run: RunDir, status: RunStatus, in_use: frozenset[Path], *, settled: bool) -> str:
    """Why a run stays although it could go as a whole; empty where it can."""
    if run.path.is_symlink():
        return "a link to another folder"
    if status.status in ("running", "unknown") and not settled:
        return f"its end is not recorded, and it changed in the last {SETTLED_S / 60:.0f} minutes"
    if any(run.path.resolve() in file.parents for file in in_use):
        return "another run was started from its weights"
    files = [p.name for p in run.path.iterdir() if not _OWN_FILES.fullmatch(p.name)]
    if run.checkpoints.folder.is_dir():
        files += [p.name for p in run.checkpoints.folder.iterdir() if not _OWN_CHECKPOINT_FILES.fullmatch(p.name)]
    return f"holds files that Vernier did not write: {', '.join(sorted(files)[:3])}" if files else ""


def _plan_checkpoints(run: RunDir, in_use: frozenset[Path], hashes: bool) -> Plan:
    """Every checkpoint before the newest sound one, but for the best one and those that other runs need."""
    committed, best = run.checkpoints.committed(), run.checkpoints.best()
    if len(committed) < 2:
        return Plan()
    # Not simply the last one: a damaged checkpoint must not stand for the one that stays.
    newest = next((c for c in reversed(committed) if not c.problems(hashes=hashes)), None)
    if newest is None:
        return Plan.keeping(run.path, "none of its checkpoints is sound")
    old = [c for c in committed if c.step < newest.step and c != best and not c.path.is_symlink()]
    used = [c.path for c in old if any(c.path.resolve() in (file, *file.parents) for file in in_use)]
    return Plan.of(
        Plan.removing("checkpoints", run, [c.path for c in old if c.path not in used]),
        *(Plan.keeping(path, "another run was started from its weights") for path in used),
    )


# ------------------------------------------------------------------------------------------------------------ removing


def clean_folder(folder: Path, choice: Choice, *, remove: bool = True) -> Plan:
    """Remove what can go directly in a folder of runs, beside the runs themselves; what was removed, and what stays.

    Without `remove`: what would be removed.
    """
    if "leftovers" not in choice.kinds:
        return Plan()
    hidden = [path for path in sorted(folder.glob(f"{DELETING}*")) if path.is_dir() and not path.is_symlink()]
    paths = hidden + [path for path in incomplete_runs(folder) if _is_settled(path)]
    plan = Plan.of(*(Plan.removing("leftovers", None, [path]) for path in paths))
    return Plan.of(*map(_remove, plan.removals)) if remove else plan


def clean_run(run: RunDir, choice: Choice, *, remove: bool = True) -> Plan:
    """Remove what can go in a run, planned again while the run is held; what was removed, and what stays and why.

    Without `remove` nothing is changed, and of checkpoints only names and sizes are compared.
    """
    if run.is_locked():
        return Plan.keeping(run.path, "in use by a process")
    settled = _is_settled(run.path)  # before this process writes its name into the lock
    plan = _plan(run, choice, settled=settled, hashes=False)
    # Without the lock, because taking it writes a file into a run that has nothing to remove.
    if not (remove and plan.removals):
        return plan
    try:
        with run.locked():
            # Again: the run may have changed since. Now with hashes, because what is removed cannot be brought back.
            plan = _plan(run, choice, settled=settled, hashes=True)
            results = [_remove(removal, run) for removal in plan.removals]
    except ConfigError:
        return Plan.keeping(run.path, "in use by a process")
    except OSError as error:
        return Plan.keeping(run.path, environment_error(error) or str(error))
    return Plan.of(*results, Plan(left_alone=plan.left_alone))


def _remove(removal: _Removal, run: RunDir | None = None) -> Plan:
    reason = "could not be removed"
    try:
        if removal.kind == "leftovers" and run is not None:
            # Removes them, and restores a checkpoint that was about to be replaced when its process was killed.
            run.tidy()
        else:
            for path in removal.paths:
                path.unlink() if removal.kind == "traces" else remove_folder(path)
    except OSError as error:
        reason += f": {environment_error(error) or error}"
    # `remove_folder` renames, then ignores what it cannot delete: the rest is under the old name or the hidden one.
    hidden = [path.with_name(f"{DELETING}{path.name}") for path in removal.paths]
    rest = [path for path in (*removal.paths, *hidden) if path.exists()]
    freed = replace(removal, bytes=max(0, removal.bytes - sum(map(used_bytes, rest))))
    return Plan(removals=(freed,), left_alone=tuple(_LeftAlone(path=path, reason=reason) for path in rest))


_BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the file system."""


def used_bytes(path: Path) -> int:
    """Bytes on disk of a file or of everything in a folder; a file with several names counts once."""
    files = {(info.st_dev, info.st_ino): _size(info) for info in _walk(path)}
    return sum(files.values())


def _freed_bytes(paths: Iterable[Path]) -> int:
    """Bytes on disk that removing all of these frees: files that have another name elsewhere stay."""
    files: dict[tuple[int, int], tuple[int, int]] = {}
    for info in (info for path in paths for info in _walk(path)):
        key = info.st_dev, info.st_ino
        links_left, size = files.get(key, (info.st_nlink, _size(info)))
        files[key] = (links_left - 1, size)
    return sum(size for links_left, size in files.values() if links_left <= 0)


def newest_change_s(path: Path) -> float:
    """When a file of the folder, or the folder itself, was changed last: seconds since 1970, 0 where it is gone."""
    return max((info.st_mtime for info in _walk(path, folders=True)), default=0.0)


def _size(info: os.stat_result) -> int:
    # Not st_size: what is freed is what the file takes, with holes and rounded up to blocks.
    return info.st_blocks * _BLOCK_BYTES


def _walk(path: Path, *, folders: bool = False) -> Iterator[os.stat_result]:
    """Everything below a path, without following links; what cannot be looked at is left out."""
    waiting: list[str | os.DirEntry[str]] = [os.fspath(path)]
    while waiting:
        entry = waiting.pop()
        try:
            info = entry.stat(follow_symlinks=False) if isinstance(entry, os.DirEntry) else os.lstat(entry)
            if stat.S_ISDIR(info.st_mode):
                with os.scandir(entry) as children:
                    waiting += children
                if not folders:
                    continue
        except OSError:
            continue
        yield info
