"""Completion: what is offered, and that bash, zsh and fish (where they are installed) offer it."""

import io
import os
import pty
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tests.conftest import Done, command
from vernier import recipes
from vernier.cli import main
from vernier.cli.commands import GROUPS, SECTIONS, actions_of
from vernier.cli.completion import FILES, SCRIPTS, answers, print_answer, split_line
from vernier.requests.registry import COMMANDS, INTERNAL

Vernier = Callable[..., Done]

# ------------------------------------------------------------------------------------------------------------ answers


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("trai", "train"),
        ("re", "report recipes"),
        ("--v", "--version"),
        ("nonsense ", ""),
        ("train sh", "shapes-quick shapes-muon"),
        ("train mine", FILES),
        ("train --da", "--data --dataset"),
        ("train --data x --da", "--dataset"),
        ("train --set seed=1 --se", "--set --seed"),
        ("train --seed 1 --se", "--set"),
        ("train --data fash", "fashion-mnist"),
        ("train --data=fash", "--data=fashion-mnist"),
        ("train --data=./p", FILES),
        ("train --device cp", "cpu"),
        ("train --device ga", "gaudi"),
        ("train --smoke shapes-q", "shapes-quick"),
        ("train --device cpu shapes-q", "shapes-quick"),
        ("train --device=cpu shapes-q", "shapes-quick"),
        ("train shapes-quick cif", ""),
        ("bench train --precision fp32,b", "fp32,bf16"),
        ("train --set optim.mom", "optim.momentum="),
        ("train --set optim.nesterov=", "optim.nesterov=true optim.nesterov=false"),
        ("train --set optim.name=la", "optim.name=lamb optim.name=lars"),
        ("train --set optim.lr=", ""),
        ("train --set model.name=resnet8", "model.name=resnet8-small"),
        ("train --set=optim.mom", "--set=optim.momentum="),
        ("report ", FILES),
        ("runs clean --y", "--yes"),
        ("runs --sort s", "size state"),
        ("runs list --sort a", "age"),
        ("data prepare im", "imagenet"),
        ("data prepare folder --files 2 ", ""),
        ("completion b", "bash"),
        ("data prepare folder s o --no-re", "--no-restarts"),
        ("train --no-sm", ""),
        ("bench ar", ""),
    ],
)
def test_what_fits(line: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(answers(line.split(" "))) == words.split()


def test_without_a_word_everything_that_can_follow_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(answers([""])) == [name for names in SECTIONS.values() for name in names]
    assert set(recipes.BUILT_IN) < set(answers(["train", ""]))
    assert {"--data", "--set", "--smoke", "--help"} < set(answers(["train", "shapes-quick", ""]))
    assert list(answers(["train", "--data", ""]))[-1] == FILES, "data is often a folder"
    both = list(answers(["runs", ""]))
    assert both[:2] == ["list", "clean"]
    assert FILES in both, "what the default action takes"


def test_every_action_is_offered_with_its_first_sentence() -> None:
    for group in GROUPS:
        offered = answers([group, ""])
        assert list(offered)[: len(actions_of(group))] == actions_of(group)
        assert all(offered[action] for action in actions_of(group))
    assert not set(INTERNAL) & {f"bench {action}" for action in answers(["bench", ""])}


def test_every_argument_that_is_a_run_or_a_recipe_offers_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "20260101-a").mkdir(parents=True)
    for name in ("eval", "predict", "export", "report", "compare", "convert", "runs clean", "bench infer"):
        assert "runs/20260101-a" in answers([*name.split(), ""]), name
    for name in ("train", "bench train", "bench infer", "bench scaling", "tune train", "profile infer", "plan"):
        assert "shapes-quick" in answers([*name.split(), ""]), name
        assert "resnet50" in answers([*name.split(), ""]), name
    assert set(COMMANDS) > {"eval", "plan"}


def test_runs_are_the_folders_in_runs_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("20260101-a", "20260102-b", ".deleting-c", "20260103-\x1b]0;owned\x07", "20260104-a\nb"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs/notes.txt").touch()
    assert list(answers(["report", ""])) == ["runs/20260102-b", "runs/20260101-a"]
    assert list(answers(["report", "runs/20260101-a", "runs/20260102"])) == ["runs/20260102-b"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", [""]),
        ("vernier", ["vernier"]),
        ("vernier ", ["vernier", ""]),
        ("vernier train --data 'my pho", ["vernier", "train", "--data", "my pho"]),
        ('vernier train "my photos" ', ["vernier", "train", "my photos", ""]),
        (r"vernier my\ photos", ["vernier", "my photos"]),
    ],
)
def test_a_line_is_split_as_a_shell_does_it(line: str, words: list[str]) -> None:
    assert split_line(line) == words


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--line", "vernier train --set optim.mome", " =:"], "optim.momentum="),
        (["--line", "vernier train --set=optim.mome", " =:"], "optim.momentum="),
        (["--line", "vernier train --set optim.name=sg", " =:"], "sgd"),
        (["--line", "vernier train --set optim.name=sg", " "], "optim.name=sgd"),
        (["train", "--set", "optim.name=sg"], "optim.name=sgd"),
        (["--line", "vernier train --data=./p", " =:"], FILES),
    ],
)
def test_bash_gets_the_part_behind_the_last_break(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_answer(arguments) == 0
    assert [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()] == [word]


def test_a_line_that_is_empty_offers_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(["--line"])
    assert capsys.readouterr().out.startswith("train\t")


# ------------------------------------------------------------------------------------------------------------- shells


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs and files, `vernier` in bin/, and the scripts of all shells."""
    folder = tmp_path_factory.mktemp("shell")
    (folder / "bin").mkdir()
    program = folder / "bin" / "vernier"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m vernier "$@"\n')
    program.chmod(0o755)
    for name in ("runs/20261117-100000-shapes-quick", "runs/20261117-110000-mine", "my photos", "photos"):
        (folder / name).mkdir(parents=True)
    (folder / "mine.toml").touch()
    for shell, name in (("bash", "vernier.bash"), ("zsh", "_vernier"), ("fish", "vernier.fish")):
        with redirect_stdout(io.StringIO()) as script:
            assert main(["completion", shell]) == 0
        (folder / name).write_text(script.getvalue())
    return folder


def _shell(name: str, tmp: Path) -> tuple[str, dict[str, str]]:
    """A shell of this machine, or skip; with `vernier` on its PATH."""
    shell = shutil.which(name)
    if shell is None:
        pytest.skip(f"{name} is not installed")
    return shell, {**os.environ, "PATH": f"{tmp / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp), "TERM": "dumb"}


@pytest.fixture
def bash(workplace: Path) -> Callable[[str], set[str]]:
    """What bash offers at the end of a line, which is broken into words as readline breaks it."""
    shell, environment = _shell("bash", workplace)
    script = (
        'source vernier.bash; COMP_LINE=$1; COMP_POINT=${#1}; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        '_vernier; printf "%s\\n" "${COMPREPLY[@]}"'
    )

    def ask(line: str) -> set[str]:
        words = [part for part in re.split(r"([=:])|\s+", line) if part is not None]
        words = [w for w in words[:-1] if w] + ([""] if words[-1] in "=:" and words[-1] else [words[-1]])
        done = subprocess.run(
            [shell, "-c", script, "bash", line, *words],
            cwd=workplace,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return {word for word in done.stdout.splitlines() if word}

    return ask


def test_bash_completes_commands_actions_flags_and_values(bash: Callable[[str], set[str]]) -> None:
    assert bash("vernier ex") == {"export"}
    assert bash("vernier data ") == {"make", "prepare", "verify", "inspect", "get"}
    assert bash("vernier export --fo") == {"--format"}
    assert bash("vernier export --format torch") == {"torchvision", "torch-export"}
    assert bash("vernier export --format=torch") == {"torchvision", "torch-export"}, "bash breaks words at ="
    assert bash("vernier train --no-tens") == {"--no-tensorboard"}


def test_bash_completes_recipes_networks_settings_data_and_runs(bash: Callable[[str], set[str]]) -> None:
    assert bash("vernier train shapes") == {"shapes-quick", "shapes-muon"}
    assert bash("bin/vernier recipes nvidia-resnet50-90e-4") == {"nvidia-resnet50-90e-4096"}
    assert bash("vernier models resnet50") == {"resnet50", "resnet50-v1"}
    assert bash("vernier train --model resnet8") == {"resnet8-small"}
    assert bash("vernier train --set optim.mom") == {"optim.momentum="}
    assert {"sgd", "lars"} <= bash("vernier train --set optim.name=")
    assert bash("vernier train --data fash") == {"fashion-mnist"}
    runs = {"runs/20261117-100000-shapes-quick", "runs/20261117-110000-mine"}
    assert bash("vernier eval ") == bash("vernier report runs/2026") == runs
    assert bash("vernier train mine") == {"mine.toml"}, "files where no name fits"
    assert bash("vernier train --data ph") == {"photos"}


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


def test_bash_types_what_tab_completes(workplace: Path) -> None:
    """In a real terminal, with bash's line editor."""
    shell, environment = _shell("bash", workplace)
    with Terminal([shell, "--norc", "--noprofile", "-i"], workplace, environment) as terminal:
        terminal.type("PS1='$ '; source vernier.bash; echo read''y\n", "ready")
        terminal.type("vernier train --set optim.mome\t", "optim.momentum=")
        terminal.type("0.9 \t", "0.9 ")
        terminal.clear_line()
        terminal.type("vernier recipes cif\t", "cifar10 ")
        terminal.clear_line()
        terminal.type("vernier train --data my\t", r"my\ photos/")


def test_zsh_types_what_tab_completes(workplace: Path) -> None:
    shell, environment = _shell("zsh", workplace)
    environment["PS1"] = "$ "
    with Terminal([shell, "-f", "-i"], workplace, environment) as terminal:
        terminal.type(f"fpath=({workplace} $fpath); autoload -U compinit && compinit -u -D && echo read''y\n", "ready")
        terminal.type("unsetopt auto_menu; echo agai''n\n", "again")
        terminal.type("vernier recipes cif\t", "cifar10 ")
        terminal.clear_line()
        terminal.type("vernier train --set optim.mome\t", "optim.momentum=")
        terminal.clear_line()
        terminal.type("vernier eval \t", "runs/20261117-1")
        terminal.clear_line()
        terminal.type("vernier train --data my\t", r"my\ photos/")
        terminal.clear_line()
        terminal.type("vernier ex\t", "export ")


def test_fish_completes_recipes_settings_and_runs(workplace: Path) -> None:
    shell, environment = _shell("fish", workplace)

    def ask(line: str) -> set[str]:
        script = f"source vernier.fish; complete -C '{line}'"
        done = subprocess.run(
            [shell, "--no-config", "-c", script], cwd=workplace, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return {answer.partition("\t")[0] for answer in done.stdout.splitlines()}

    assert ask("vernier ex") == {"export"}
    assert ask("vernier recipes cif") == {"cifar10"}
    assert ask("vernier train --set optim.mome") == {"optim.momentum="}
    assert ask("vernier eval ") == {"runs/20261117-100000-shapes-quick", "runs/20261117-110000-mine"}
    assert ask("vernier train --data ph") == {"photos/"}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_every_shell_gets_a_script_that_asks_vernier(vernier_here: Vernier, shell: str) -> None:
    done = vernier_here("completion", shell)
    assert done.code == 0
    assert "__complete" in done.out
    assert "COMMAND" not in done.out
    assert "@files" in done.out


def test_an_answer_imports_nothing_heavy(workplace: Path) -> None:
    _, environment = _shell("bash", workplace)
    words = ["__complete", "train", "shap"]
    done = subprocess.run(
        command(*words), env={**environment, "PYTHONPROFILEIMPORTTIME": "1"}, capture_output=True, text=True
    )
    assert done.stdout == "shapes-quick\tresnet8-small on shapes\nshapes-muon\tresnet8-small on shapes\n"
    imported = set(re.findall(r"\| +(\S+)$", done.stderr, re.MULTILINE))
    assert not imported & {
        "torch",
        "numpy",
        "rich",
        "vernier.api.models",
        "vernier.cli.training",
        "vernier.engine.build",
    }
