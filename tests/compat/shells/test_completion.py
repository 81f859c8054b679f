"""Completion: what the scripts know, and that bash, zsh and fish (where they are installed) offer it."""

import io
import os
import pty
import re
import select
import shutil
import subprocess
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from vernier import recipes
from vernier.cli import main
from vernier.cli.parser import parse
from vernier.compat.shells.completion import Completion, Row, _rows
from vernier.errors import ConfigError
from vernier.models import describe
from vernier.requests.registry import GROUPS, INTERNAL, SECTIONS, actions_of

SCRIPTS = {"bash": "vernier.bash", "zsh": "_vernier", "fish": "vernier.fish"}


def _write_scripts(folder: Path) -> None:
    for shell, name in SCRIPTS.items():
        with redirect_stdout(io.StringIO()) as script:
            assert main(["completion", shell]) == 0
        (folder / name).write_text(script.getvalue())


# --------------------------------------------------------------------------------------------------------------- table


@pytest.fixture(scope="module")
def table() -> dict[tuple[str, ...], list[str]]:
    return dict(_rows())


def test_every_command_and_action_is_offered(table: dict[tuple[str, ...], list[str]]) -> None:
    assert table[" ",] == [name for names in SECTIONS.values() for name in names]
    for group in GROUPS:
        offered = table[f"{group} ",]
        assert offered[: len(actions_of(group))] == actions_of(group)
        assert not set(INTERNAL) & {f"{group} {action}" for action in offered}
        assert (f"{group} {offered[0]} ",) in table


def test_flags_and_values_are_offered(table: dict[tuple[str, ...], list[str]]) -> None:
    assert {"--data", "--dataset", "--set", "--smoke", "--no-tensorboard", "--help"} < set(table["-train ", ""])
    assert "--no-smoke" not in table["-train ", ""], "the opposite of a switch that is off"
    assert table["-data ", ""] == ["--help"], "an action is missing"
    assert "--sort" in table["-runs ", ""], "flags of the action that is used without one"
    assert "gaudi" in table["train ", "--device "]
    assert ("train ", "--data ") not in table, "files"
    assert set(table["completion ",]) == set(SCRIPTS)


def test_every_argument_that_is_a_recipe_offers_names(table: dict[tuple[str, ...], list[str]]) -> None:
    models = [model.name for model in describe()]
    for name in ("train", "bench train", "bench infer", "bench scaling", "tune train", "profile infer", "plan"):
        assert table[f"{name} ",] == [*recipes.names(), *models], name
    assert table["train ", "--model "] == models
    assert table["eval ",] == table["report ",] == [], "runs are files"


def test_a_shell_has_to_be_one_that_there_is_a_script_for() -> None:
    assert parse(Completion, ["zsh"], "completion")[0].shell == "zsh"
    with pytest.raises(ConfigError) as refused:
        parse(Completion, ["tcsh"], "completion")
    assert refused.value.given == {"shell": "tcsh"}


# -------------------------------------------------------------------------------------------------------------- shells


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files and the scripts of all shells, and no `vernier` that they could call."""
    folder = tmp_path_factory.mktemp("shell")
    (folder / "my photos").mkdir()
    (folder / "mine.toml").touch()
    _write_scripts(folder)
    return folder


def _shell(name: str, folder: Path) -> tuple[str, dict[str, str]]:
    """A shell of this machine, or skip."""
    shell = shutil.which(name)
    if shell is None:
        pytest.skip(f"{name} is not installed")
    return shell, {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TERM": "dumb", "LC_ALL": "C.UTF-8"}


def _bash(folder: Path, line: str) -> set[str]:
    """What bash offers at the end of a line, which is broken into words as readline breaks it."""
    shell, environment = _shell("bash", folder)
    words = [word for word in re.split(r"(=)|\s+", line) if word is not None]
    words = [word for word in words[:-1] if word] + ([words[-1]] if words[-1] or words[-2:-1] != ["="] else [])
    current = "" if words[-1] == "=" else words[-1]
    script = (
        'source ./vernier.bash; current=$1; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        '_vernier_words vernier "$current"; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return _lines([shell, "-c", script, "bash", current, *words], folder, environment)


def _fish(folder: Path, line: str) -> set[str]:
    shell, environment = _shell("fish", folder)
    script = f"source ./vernier.fish; complete -C '{line}'"
    answers = _lines([shell, "--no-config", "-c", script], folder, environment)
    return {answer.partition("\t")[0] for answer in answers}


def _lines(words: list[str], folder: Path, environment: dict[str, str]) -> set[str]:
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return {line for line in done.stdout.splitlines() if line}


@pytest.mark.parametrize("ask", [_bash, _fish])
def test_commands_flags_and_values_are_completed(ask: Callable[[Path, str], set[str]], workplace: Path) -> None:
    assert ask(workplace, "vernier ex") == {"export"}
    assert ask(workplace, "vernier --v") == {"--version"}
    assert ask(workplace, "vernier data ") == {"make", "prepare", "verify", "inspect", "get"}
    assert ask(workplace, "vernier train --no-tens") == {"--no-tensorboard"}
    assert ask(workplace, "vernier export my-run --fo") == {"--format"}
    assert ask(workplace, "vernier export --format torch") == {"torchvision"}
    assert ask(workplace, "vernier runs --sort s") == {"size", "state"}
    assert ask(workplace, "vernier train shapes") == {"shapes-quick", "shapes-muon"}
    assert ask(workplace, "vernier recipes nvidia-resnet50-90e-4") == {"nvidia-resnet50-90e-4096"}
    assert ask(workplace, "vernier train --smoke --model resnet8") == {"resnet8-small"}


def test_bash_breaks_words_at_an_equals_sign(workplace: Path) -> None:
    assert _bash(workplace, "vernier export --format=torch") == {"torchvision"}
    assert _bash(workplace, "vernier runs list --sort=") == _bash(workplace, "vernier runs list --sort ")


def test_special_characters_are_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of recipes come from packages of others."""
    names = ["odd's $(touch owned)", "odd\\;`touch owned`", "odd\ntouch owned"]
    rows: list[Row] = [(("train ",), names)]
    monkeypatch.setattr("vernier.compat.shells.completion._rows", lambda: rows)
    _write_scripts(tmp_path)
    line_break = r"odd\ntouch owned"
    assert _fish(tmp_path, "vernier train od") == {*names[:2], line_break}
    offered = _bash(tmp_path, "vernier train od")
    shell, environment = _shell("bash", tmp_path)
    typed = _lines([shell, "-c", f"printf '%s\\n' {' '.join(offered)}"], tmp_path, environment)
    assert typed == {*names[:2], line_break}
    assert not (tmp_path / "owned").exists()


class Terminal:
    """An interactive shell in a terminal of its own, and its keyboard."""

    def __init__(self, words: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._keys, side = pty.openpty()
        self._process = subprocess.Popen(words, stdin=side, stdout=side, stderr=side, cwd=folder, env=environment)
        os.close(side)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._keys)

    def type(self, text: str, until: str) -> None:
        """Press these keys, and wait until the terminal shows a text; fails after a minute of silence."""
        os.write(self._keys, text.encode())
        seen = ""
        while until not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]", "", seen):
            assert select.select([self._keys], [], [], 60)[0], f"{until!r} is not in {seen!r}"
            seen += os.read(self._keys, 4096).decode(errors="replace")

    def clear_line(self) -> None:
        os.write(self._keys, b"\x15")


def _type_lines(terminal: Terminal) -> None:
    """Lines that every shell completes alike: a command, a flag, its value, a recipe and a folder with a space."""
    terminal.type("vernier ex\t", "export ")
    terminal.type("--form\t", "--format ")
    terminal.type("torchv\t", "torchvision ")
    terminal.clear_line()
    terminal.type("vernier recipes cif\t", "cifar10 ")
    terminal.clear_line()
    terminal.type("vernier train --data my\t", r"my\ photos/")


def test_bash_types_what_tab_completes(workplace: Path) -> None:
    """In a real terminal, with bash's line editor."""
    shell, environment = _shell("bash", workplace)
    with Terminal([shell, "--norc", "--noprofile", "-i"], workplace, environment) as terminal:
        terminal.type("PS1='$ '; source ./vernier.bash; echo read''y\n", "ready")
        _type_lines(terminal)


def test_zsh_types_what_tab_completes(workplace: Path) -> None:
    shell, environment = _shell("zsh", workplace)
    environment["PS1"] = "$ "
    with Terminal([shell, "-f", "-i"], workplace, environment) as terminal:
        terminal.type(f"fpath=({workplace} $fpath); autoload -U compinit && compinit -u -D && echo read''y\n", "ready")
        terminal.type("unsetopt auto_menu; echo agai''n\n", "again")
        _type_lines(terminal)


def test_fish_offers_files_where_no_word_fits(workplace: Path) -> None:
    assert _fish(workplace, "vernier train mi") == {"mine.toml"}
    assert _fish(workplace, "vernier eval my") == {"my photos/"}
    assert "mine.toml" in _fish(workplace, "vernier train --data ")
