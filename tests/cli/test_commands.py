"""The list of commands, and names that moved."""

import subprocess
import sys

import pytest

from vernier.cli import find_command
from vernier.cli.commands import OTHER_NAMES, SECTIONS, about, actions_of, with_new_name


@pytest.mark.parametrize(
    ("typed", "now"),
    [
        ("plan resnet50 --submit slurm --machine m.toml", "submit --to slurm resnet50 --machine m.toml"),
        ("plan resnet50 --submit=ssh", "submit --to ssh resnet50"),
        ("tune resnet50 --for infer", "tune infer resnet50"),
        ("tune --for=train", "tune train"),
        ("profile --infer --batch 8", "profile infer --batch 8"),
    ],
)
def test_a_command_that_moved_works_under_its_old_name_with_a_note(typed: str, now: str) -> None:
    words, note = with_new_name(typed.split())
    assert words == now.split()
    assert "0.5" in note


def test_other_commands_stay_as_they_are() -> None:
    assert with_new_name(["train", "--for", "x"]) == (["train", "--for", "x"], "")


def test_british_spelling_is_understood() -> None:
    assert find_command(["study", "analyse", "x.csv"]) == ("study analyze", ["x.csv"])
    assert find_command(["study", "analyze", "x.csv"]) == ("study analyze", ["x.csv"])


def test_help_lists_every_command_once_with_one_line() -> None:
    names = [name for section in SECTIONS.values() for name in section]
    assert len(names) == len(set(names))
    assert all(about(name).endswith((".", "?")) for name in names)
    assert {name.split()[0] for name in OTHER_NAMES.values()} <= set(names)
    assert "arm" not in actions_of("bench")


def test_help_does_not_import_torch_or_a_command() -> None:
    code = (
        "import sys; from vernier.cli import main; main(['--help']); "
        "print([m for m in sys.modules if m in ('torch', 'vernier.cli.training', 'vernier.api.models')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
