"""Golden files of the command line: the help of every command, and what it prints for every kind of wrong value.

`make pages` writes them again; a change of a text is then reviewed as a difference. Other tests check errors by their
data, so that a text can be improved without touching them.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from vernier.cli.help import command_help, help_text
from vernier.cli.parser import parse
from vernier.errors import ConfigError
from vernier.requests.declaring import Option, Request, examples_of, options_of
from vernier.requests.registry import COMMANDS, GROUPS, INTERNAL, find

FOLDER = Path(__file__).parent / "commands"
WRONG = {"int": "1.5", "float": "fast", "choice": "no-such", "duration": "10", "time limit": "10", "fraction": "0.1"}
"""A value that options of this kind do not take."""


def files() -> dict[Path, str]:
    """Every golden file: its path and its text, at 100 columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        texts = {FOLDER / "vernier.txt": help_text()}
        texts |= {FOLDER / f"{group}.txt": help_text(group) for group in GROUPS}
        for command in COMMANDS:
            cls = find(command)
            assert cls is not None
            if command not in INTERNAL:
                texts[FOLDER / f"{command.replace(' ', '-')}.txt"] = "\n".join([*_page(command, cls), ""])
    return texts


def write() -> None:
    """Write every golden file again, and remove those of commands that are gone."""
    texts = files()
    FOLDER.mkdir(exist_ok=True)
    for path in {*FOLDER.iterdir()} - {*texts}:
        path.unlink()
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")


def _page(command: str, cls: type[Request]) -> Iterator[str]:
    yield command_help(cls, f"vernier {command}", everything=True)
    everyday = [option.flag for option in options_of(cls) if not option.advanced]
    yield f"everyday: {' '.join(everyday)}"
    yield ""
    for words in wrong_lines(cls):
        yield f"$ vernier {command} {shlex.join(words)}".rstrip()
        yield refusal(cls, words, command)


def refusal(cls: type[Request], words: list[str], command: str) -> str:
    """What is printed for a command line that is wrong."""
    try:
        parse(cls, words, f"vernier {command}")
    except ConfigError as error:
        return str(error)
    return "(accepted)"


def wrong_lines(cls: type[Request]) -> Iterator[list[str]]:
    """Command lines that are wrong in one way each: no arguments, an unknown flag, and every option with a value that
    it does not take or that is out of range."""
    needed = _needed(cls)
    if needed:
        yield []
    yield [*needed, "--no-such-flag"]
    for option in options_of(cls):
        if option.edge == "python" or option.positional or option.form.count > 1:
            continue
        flag = "--set" if option.name == "settings" else option.flag
        if option.switch:
            continue
        if option.form.kind in WRONG:
            yield [*needed, flag, WRONG[option.form.kind]]
        yield from ([*needed, flag, text] for text in _out_of_range(option))


def _out_of_range(option: Option) -> Iterator[str]:
    declared, units = option, {"duration": "s", "fraction": "%"}
    factor = 100 if option.form.kind == "fraction" else 1
    unit = units.get(option.form.kind, "")
    if declared.low is not None and (declared.low > 0 or not unit):
        yield f"{factor * (declared.low - 1):g}{unit}" if declared.low < 1 or not unit else f"0{unit}"
    if declared.above is not None:
        yield f"{factor * declared.above:g}{unit}"
    if declared.high is not None and not (unit == "%" and declared.high >= 1):
        yield f"{factor * (declared.high + 1):.12g}{unit}"


def _needed(cls: type[Request]) -> list[str]:
    """The words of the first example that give what is required."""
    examples = examples_of(cls)
    if not any(option.required for option in options_of(cls)) or not examples:
        return []
    words = shlex.split(examples[0], comments=True)[1 + len(cls.command.split()) :]
    return words[: words.index(">")] if ">" in words else words
