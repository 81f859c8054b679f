"""The subjects of a page: which paths hold what, which runs are read in full, and what each is called.

Kinds of subjects, which plug in, recognize paths and read files. Of many runs all but the newest are read briefly:
their results, not their curves.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError
from vernier.plugins import describe_failures
from vernier.store import DamagedFile, RunDir, find_runs, read_json
from vernier.wording import plural

from .identity import unique_names
from .subjects import GROUP, Kind, Subject, kinds

MANY_RUNS, FULL_RUNS = 12, 8
"""Of more runs than the first number, so many of the newest are shown with their curves, and the others in a table."""


def collect(paths: Sequence[Path], page_folder: Path | None = None) -> list[Subject]:
    """The subjects of all paths, in order; folders of runs are opened, without their smoke runs.

    Links are relative to `page_folder`. Raises ConfigError where there is nothing.
    """
    # One run that is given twice, such as by name and in its folder, is one subject.
    sources = list({path.resolve(): (kind, path) for each in paths for kind, path in _open(each)}.values())
    if not sources:
        if smoke := smoke_runs(paths):
            raise ConfigError(
                f"Nothing to report on: only {plural(len(smoke), 'smoke run')}, whose figures mean nothing. "
                f"Name one to see it: {smoke[-1]}"
            )
        raise ConfigError(f"Nothing to report on. Give run directories, studies or logs.{describe_failures(GROUP)}")
    # The name of a run directory begins with its time, so this order is by age.
    runs = sorted((path for _, path in sources if RunDir.is_run(path)), key=lambda path: path.name)
    briefly = set(runs[:-FULL_RUNS]) if len(runs) > MANY_RUNS else set[Path]()
    subjects = [subject for kind, path in sources for subject in kind.read(path, path in briefly)]
    # After all subjects are read: a name is made of what differs between them.
    names = unique_names(subjects)
    colours = count()
    return [
        replace(s, name=name, colour=None if s.brief else next(colours), page_folder=page_folder)
        for s, name in zip(subjects, names, strict=True)
    ]


def smoke_runs(paths: Sequence[Path]) -> list[Path]:
    """The smoke runs in folders of runs, which `collect` leaves out; those that are named themselves are shown."""
    return [run.path for path in paths for run in find_runs(path) if run.is_smoke]


def _open(path: Path) -> list[tuple[Kind, Path]]:
    """The path with the kind that reads it; of a folder of runs, those runs. They are read when all are known."""
    if not path.exists():
        raise ConfigError(f"{path} does not exist. Give a run directory, a study, a log, or a folder of runs.")
    tree = read_json_or_none(path)
    kind = next((kind for kind in kinds() if kind.recognizes(path, tree)), None)
    if kind is not None:
        return [(kind, path)]
    return [source for run in find_runs(path) if not run.is_smoke for source in _open(run.path)]


def read_json_or_none(path: Path) -> Any:
    """The content of a .json file; None for another file and one that cannot be read."""
    try:
        return read_json(path) if path.suffix == ".json" else None
    except (OSError, DamagedFile):
        return None
