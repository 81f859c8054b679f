"""What a shell offers when TAB is pressed: `vernier __complete`, which the scripts of `vernier completion` call.

It answers from a table of commands, flags and names that `cli.info.completion` makes from the commands themselves and
keeps in the cache, so that an answer takes a tenth of a second: nothing else of Vernier is imported. The table belongs
to the source files it was made from; after any change of them it is made again.
"""

import json
import os
import shlex
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from . import __version__
from .folders import PACKAGE_PARENT, cache_home

COMMAND = "__complete"
"""As `vernier.__main__` knows it, which imports this module only then."""
FILES = "@files"
"""In an answer: the shell adds names of files."""
RUNS_FOLDER = "runs"
Table = dict[str, Any]
"""`stamp`, `commands` (name: `about`, and `actions` or `flags` and `arguments`), `default_actions`, `names` (kind of
value: name: about) and `choices` (setting: its values). A value is described by its kinds of names, `choices`, whether
it is a `list` with commas, and whether `files` fit."""


def table_file() -> Path:
    """Where the table of this installation is kept."""
    return cache_home() / f"completion-{zlib.crc32(os.fsencode(PACKAGE_PARENT)):08x}.json"


def source_stamp() -> str:
    """Which source files the table belongs to: the version, their number, size and newest change."""
    count = size = newest = 0
    folders = [str(PACKAGE_PARENT / "vernier")]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    folders.append(entry.path)
                elif entry.name.endswith(".py"):
                    info = entry.stat()
                    count, size, newest = count + 1, size + info.st_size, max(newest, info.st_mtime_ns)
    return f"{__version__} {count} {size} {newest}"


def read_table() -> Table | None:
    """The table in the cache; None where there is none, or it belongs to other source files."""
    try:
        table = json.loads(table_file().read_text(encoding="utf-8"))
        return table if isinstance(table, dict) and table.get("stamp") == source_stamp() else None
    except (OSError, ValueError):
        return None


def print_answer(arguments: list[str], table: Table) -> None:
    """Print what fits, one word per line with a tab and what it is about.

    The arguments are the words of the command line without its program, the one at the cursor last; or `--line`, the
    line up to the cursor, and the characters at which the shell breaks words (bash).
    """
    breaks = ""
    if arguments[:1] == ["--line"]:
        line, breaks = (*arguments[1:], "", "")[:2]
        words = split_line(line)[1:]
    else:
        words = arguments
    current = words[-1] if words else ""
    cut = max((current.rfind(character) + 1 for character in breaks if character in "=:"), default=0)
    for word, about in answers(words or [""], table):
        sys.stdout.write(f"{word if word == FILES else word[cut:]}\t{about}\n")


def split_line(line: str) -> list[str]:
    """The words of a line, the one at its end last, also if it is empty or its quote is still open."""
    for closing in ("", '"', "'"):
        try:
            words = shlex.split(line + closing)
            return [*words, ""] if not line or (line[-1].isspace() and not closing) else words
        except ValueError:
            continue
    return [*line.split(" ")]


def answers(words: list[str], table: Table) -> list[tuple[str, str]]:
    """The words that fit at the end of a command line, with what they are about."""
    *before, current = words
    commands = table["commands"]
    if not before:
        extra = {"--help": "show all commands", "--version": "show the version"} if current.startswith("-") else {}
        return _fitting({name: entry["about"] for name, entry in commands.items()} | extra, current)
    if before[0] not in commands:
        return []
    name, *rest = before
    entry = commands[name]
    if "actions" not in entry:
        return list(_of_command(entry, rest, current, table))
    actions, default = entry["actions"], table["default_actions"].get(name)
    if rest and rest[0] in actions:
        return list(_of_command(actions[rest[0]], rest[1:], current, table))
    offered = [] if rest else _fitting({action: about["about"] for action, about in actions.items()}, current)
    return offered + (list(_of_command(actions[default], rest, current, table)) if default else [])


def _of_command(entry: Table, before: list[str], current: str, table: Table) -> Iterator[tuple[str, str]]:
    flags, given = entry["flags"], before[-1] if before else ""
    flag, equals, _ = current.partition("=")
    if given in flags and flags[given]["value"]:
        yield from _values(flags[given]["value"], current, table)
    elif equals and flag in flags and flags[flag]["value"]:
        for word, about in _values(flags[flag]["value"], current[len(flag) + 1 :], table):
            yield (word, about) if word == FILES else (f"{flag}={word}", about)
    elif current.startswith("-"):
        open_flags = {name: f["about"] for name, f in flags.items() if f["repeatable"] or name not in before}
        yield from _fitting(open_flags, current)
    else:
        arguments, number = entry["arguments"], _count_arguments(before, flags)
        if arguments and (number < len(arguments) or arguments[-1]["repeatable"]):
            yield from _values(arguments[min(number, len(arguments) - 1)], current, table)
        elif not current:
            yield from _fitting({name: f["about"] for name, f in flags.items()}, "--")


def _count_arguments(words: Iterable[str], flags: Table) -> int:
    """How many of the words are neither flags nor values of flags."""
    count, is_value = 0, False
    for word in words:
        is_flag = word.startswith("-") and not is_value
        count += not is_flag and not is_value
        is_value = is_flag and bool(flags.get(word, {}).get("value"))
    return count


def _values(value: Table, current: str, table: Table) -> Iterator[tuple[str, str]]:
    """What a value can be. Files are offered where no name fits, as a folder is full of others; data is often one."""
    done = current[: current.rfind(",") + 1] if value["list"] else ""
    names = dict.fromkeys(value["choices"], "")
    for kind in value["kinds"]:
        names |= _settings(current, table) if kind == "setting" else _names(kind, table)
    fitting = _fitting({done + name: about for name, about in names.items()}, current)
    yield from fitting
    if value["files"] and (not fitting or (not current and "data" in value["kinds"])):
        yield FILES, ""


def _names(kind: str, table: Table) -> dict[str, str]:
    return dict.fromkeys(_runs(), "") if kind == "run" else table["names"][kind]


def _settings(current: str, table: Table) -> dict[str, str]:
    """Settings with their equals sign, or the values of one that has been typed."""
    name, equals, _ = current.partition("=")
    if not equals:
        return {f"{setting}=": about for setting, about in table["names"]["setting"].items()}
    kinds = {"model.name": "network", "data.source": "data"}
    values = table["names"][kinds[name]] if name in kinds else dict.fromkeys(table["choices"].get(name, ()), "")
    return {f"{name}={value}": about for value, about in values.items()}


def _runs() -> list[str]:
    """The folders in runs/, newest first; names that could steer a terminal are left out."""
    try:
        with os.scandir(RUNS_FOLDER) as entries:
            names = [e.name for e in entries if e.is_dir() and e.name.isprintable() and not e.name.startswith(".")]
    except OSError:
        return []
    return [f"{RUNS_FOLDER}/{name}" for name in sorted(names, reverse=True)]


def _fitting(names: dict[str, str], current: str) -> list[tuple[str, str]]:
    return [(name, about) for name, about in names.items() if name.startswith(current)]
