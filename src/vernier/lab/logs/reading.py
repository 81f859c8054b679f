"""Opens the log of any run: run directories, bench results, and logs of other tools in any format that plugs in.

Vernier's own runs are read by `own`, other formats by what `formats` finds. This module describes files that nothing
reads.
"""

import glob
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError
from vernier.lab.reading.csv_tables import decode_text
from vernier.plugins import describe_failures
from vernier.report.page.collect import read_json_or_none
from vernier.store import RunDir, find_runs, parse_json

from .formats import GROUP, formats, reader_of
from .model import RunLog, without_impossible
from .own import bench_rounds, join_rounds, read_configurations, read_run


def open_side(paths: Sequence[str]) -> list[RunLog]:
    """All runs of one side of a comparison: paths, patterns or folders of runs; FILE#NAME for a configuration."""
    runs: list[RunLog] = []
    for part in paths:
        name, _, configuration = part.partition("#")
        # The shell expands neither ~ nor wildcards inside quotes or after a flag with `=`.
        pattern = str(Path(name).expanduser())
        matches = sorted(glob.glob(pattern)) or [pattern]  # noqa: PTH207  an absolute pattern is not a Path.glob
        for match in matches:
            runs += open_logs(Path(match), configuration or None)
    if not runs:
        raise ConfigError(f"{', '.join(paths)!r} names no run.")
    return runs


def open_logs(path: Path, configuration: str | None = None) -> list[RunLog]:
    """The run, or runs, of a log or directory."""
    if not path.exists():
        raise ConfigError(f"{path} does not exist.")
    if path.is_dir():
        return _open_runs(find_runs(path), configuration) or _open_folder(path, configuration)
    if configuration is not None and not is_bench_result(read_json_or_none(path)):
        raise ConfigError(
            f"{path} is not a benchmark, so it has no configuration {configuration!r}. Leave out #{configuration}."
        )
    text = read_text(path)
    if text.lstrip().startswith("{"):
        return _open_json(path, text, configuration)
    reader = reader_of(text)
    if reader is None:
        raise ConfigError(f"{path} {describe_content(text)} It is not the log of a run. Give {_readable()}")
    return [without_impossible(reader(path, text))]


def _readable() -> str:
    """What can be opened, as the end of a sentence."""
    *most, last = ["a run directory", "a bench.json", *(each.reads for each in formats().values() if each.reads)]
    return f"{', '.join(most)} or {last}.{describe_failures(GROUP)}"


def _open_json(path: Path, text: str, configuration: str | None) -> list[RunLog]:
    try:
        tree = parse_json(text)
    except ValueError as error:
        raise ConfigError(f"{path} is not complete JSON: {error}.") from None
    if is_bench_result(tree):
        return bench_rounds(path, configuration)
    # Vernier's own result comes first: its keys could be part of another format.
    if (reader := reader_of(text, one_document=True)) is not None:
        return [without_impossible(reader(path, text))]
    keys = ", ".join(list(tree)[:5])
    raise ConfigError(f"{path} is JSON with the keys {keys or '(none)'}, not the log of a run. Give {_readable()}")


def open_to_convert(name: str) -> dict[str, RunLog]:
    """The logs of RUN, FILE or FILE#NAME to be converted, by configuration; the name of a single one is empty.

    Rounds of a benchmark are one log, whose epochs they are. Raises ConfigError where several runs are named.
    """
    text, _, configuration = name.partition("#")
    path = Path(text).expanduser()
    if path.exists() and not configuration:
        files = _bench_files(path) if path.is_dir() else [path] if is_bench_result(read_json_or_none(path)) else []
        if len(files) == 1 and len(rounds := read_configurations(files[0])) > 1:
            return _join_each(files[0], rounds)
    logs = open_logs(path, configuration or None)
    # The rounds of a benchmark share a path and are one result; several paths are several runs.
    paths = list(dict.fromkeys(log.path for log in logs))
    if len(paths) > 1:
        shown = ", ".join(map(str, paths[:3])) + (", ..." if len(paths) > 3 else "")
        raise ConfigError(f"{name} holds {len(paths)} runs. Give one of them: {shown}")
    return {"": join_rounds(logs) if logs[0].format == "bench" else logs[0]}


def _join_each(path: Path, rounds: dict[str, list[RunLog]]) -> dict[str, RunLog]:
    """The configurations of a benchmark that have step times; others (failed, or single queries) are named in a
    note."""
    logs = {configuration: join_rounds(runs) for configuration, runs in rounds.items() if runs}
    if not logs:
        raise ConfigError(f"No configuration of {path} has step times: they failed, or measured single queries.")
    if without := [configuration for configuration, runs in rounds.items() if not runs]:
        first = next(iter(logs))
        note = f"without step times, and left out: {', '.join(without)}"
        logs[first] = replace(logs[first], notes=(*logs[first].notes, note))
    return logs


def _open_runs(runs: Sequence[RunDir], configuration: str | None) -> list[RunLog]:
    """The runs of a folder without its smoke runs, whose figures mean nothing; those are counted in a note."""
    # A smoke run has a few steps on purpose: pooled with real ones it would distort every mean.
    results = [run for run in runs if not run.is_smoke]
    if runs and not results:
        raise ConfigError(
            f"{runs[-1].path.parent} holds smoke runs only, whose figures mean nothing. "
            f"Name one to use it all the same: {runs[-1].path}"
        )
    logs = [log for run in results for log in _open_folder(run.path, configuration)]
    if logs and len(results) < len(runs):
        note = f"smoke runs left out: {len(runs) - len(results)}"
        logs[0] = replace(logs[0], notes=(*logs[0].notes, note))
    return logs


def read_text(path: Path) -> str:
    try:
        return decode_text(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}.") from None


def _bench_files(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.glob("*.json")) if is_bench_result(read_json_or_none(p))]


def _open_folder(path: Path, configuration: str | None) -> list[RunLog]:
    return [run for p in _bench_files(path) for run in bench_rounds(p, configuration)] or [read_run(RunDir.open(path))]


def is_bench_result(tree: Any) -> bool:
    """Whether this is the content of a bench.json."""
    return isinstance(tree, dict) and isinstance(tree.get("rounds"), list)


# ------------------------------------------------------------------------------------------------ what cannot be opened


def describe_content(text: str) -> str:
    """What a text that no reader knows looks like, as the rest of a sentence with its full stop."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "is empty."
    # Decoding replaces what is not UTF-8, so binary files show by their zeros and replacement characters.
    if "\0" in text[:1000] or sum(c == "\ufffd" for c in text[:1000]) > 20:
        return "is not text."
    for each in formats().values():
        if each.about and each.recognizes and each.recognizes(text):
            return each.about
    if "Traceback (most recent call last)" in text:
        return "has no measurements that are known here, but a Python error."
    # One line of a minified file can be megabytes long.
    shown = lines[0] if len(lines[0]) <= 60 else f"{lines[0][:57]}..."
    return f"is text that no reader here knows; its first line is {shown!r}."
