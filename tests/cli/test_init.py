"""The entry point: suggestions for misspelt names, --json everywhere, colours on terminals only."""

import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.conftest import Done, command
from tests.documented import parsed
from vernier.cli import _find_command, main
from vernier.requests.declaring import examples_of
from vernier.requests.registry import COMMANDS, INTERNAL, find

Vernier = Callable[..., Done]
COLOUR = re.compile(rb"\x1b\[[0-9;]*(3[0-9]|4[0-7]|9[0-7])[0-9;]*m")


@pytest.mark.parametrize(
    ("typed", "now"),
    [
        ("tune resnet50 --for infer", "Use vernier tune infer."),
        ("profile --infer --batch 8", "Use vernier profile infer."),
    ],
)
def test_a_flag_that_became_a_command_leads_to_it(typed: str, now: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed.split()) == 2
    assert now in capsys.readouterr().err


def test_british_spelling_is_understood() -> None:
    assert _find_command(["study", "analyse", "x.csv"]) == ("study analyze", ["x.csv"])
    assert _find_command(["study", "analyze", "x.csv"]) == ("study analyze", ["x.csv"])


def test_help_does_not_import_torch_or_a_command() -> None:
    code = (
        "import sys; from vernier.cli import main; main(['--help']); "
        "print([m for m in sys.modules if m in ('torch', 'vernier.cli.training', 'vernier.api.models')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], "Did you mean train?"),
        (["data", "mke"], "Did you mean make?"),
        (["completion", "tcsh"], "bash, zsh, fish"),
        (["train", "--lr", "-1"], "out of range"),
        (["exprt", "runs/x"], "Did you mean export or"),
        (["data", "prepare", "imagnet", "a", "b"], "Did you mean imagenet?"),
    ],
)
def test_what_is_misspelt_is_suggested(vernier_here: Vernier, arguments: list[str], words: str) -> None:
    done = vernier_here(*arguments)
    assert done.code == 2
    assert words in done.err
    assert done.out == ""


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in INTERNAL])
def test_every_help_ends_with_examples_that_parse_and_hides_what_is_empty(name: str, vernier_here: Vernier) -> None:
    cls = find(name)
    assert cls is not None
    examples = examples_of(cls)
    assert 2 <= len(examples) <= 4
    for example in examples:
        words = shlex.split(example, comments=True)
        assert words[0] == "vernier"
        assert example.startswith(f"vernier {name.removesuffix(' list').removesuffix(' train')}")
        parsed(tuple(words[1 : words.index(">") if ">" in words else None]))
    done = vernier_here(*name.split(), "--help")
    assert done.code == 0
    assert done.out.startswith(f"usage: vernier {name} ")
    assert done.out.endswith("\n".join(f"  {line}" for line in examples) + "\n")
    assert not any(noise in done.out for noise in ("(default: )", "(default: False)", "(default: None)"))


@pytest.mark.parametrize("words", [["tune", "--help"], ["bench", "help"], ["help", "runs"], ["study", "-h"]])
def test_a_group_lists_its_actions(words: list[str], vernier_here: Vernier) -> None:
    done = vernier_here(*words)
    assert done.code == 0
    assert "Actions" in done.out


def test_commands_have_the_names_that_people_type(vernier_here: Vernier) -> None:
    done = vernier_here("val", "no-such-run")
    assert done.code == 2
    assert "no-such-run" in done.err


def _on_a_terminal(*arguments: str, **environment: str) -> bytes:
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        command(*arguments),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm-256color", **environment},
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    child.wait(timeout=60)
    os.close(leader)
    return shown


def test_colours_are_for_terminals_and_no_color_is_honoured() -> None:
    asking = ("train", "--help")
    assert COLOUR.search(_on_a_terminal(*asking))
    plain = _on_a_terminal(*asking, NO_COLOR="1")
    assert b"--epochs" in plain
    assert not COLOUR.search(plain)
    piped = subprocess.run(command(*asking), capture_output=True)
    assert b"\x1b[" not in piped.stdout
    assert b"--epochs" in piped.stdout


def test_an_old_name_of_a_setting_is_an_error_with_the_new_name(vernier_here: Callable[..., Done]) -> None:
    done = vernier_here("train", "--set", "machine.buffers=first")
    assert done.code == 2
    assert "machine.batch_norm_statistics" in done.err
