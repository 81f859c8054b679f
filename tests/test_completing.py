"""Answers to a shell, from a small table."""

from pathlib import Path
from typing import Any

import pytest

from vernier.completing import FILES, answers, print_answer, source_stamp, split_line


def _value(*kinds: str, choices: tuple[str, ...] = (), files: bool = False, **more: bool) -> dict[str, Any]:
    return {"kinds": kinds, "choices": choices, "files": files, "list": False, "repeatable": False, **more}


def _flag(value: dict[str, Any] | None, *, repeatable: bool = False) -> dict[str, Any]:
    return {"about": "a flag", "value": value, "repeatable": repeatable}


SORTS = ("age", "size")
TABLE: dict[str, Any] = {
    "commands": {
        "train": {
            "about": "Train.",
            "arguments": [_value("recipe", files=True)],
            "flags": {
                "--data": _flag(_value("data", files=True)),
                "--device": _flag(_value(choices=("auto", "cpu"))),
                "--precision": _flag(_value(choices=("fp32", "bf16"), list=True)),
                "--set": _flag(_value("setting"), repeatable=True),
                "--smoke": _flag(None),
            },
        },
        "report": {"about": "Report.", "arguments": [_value("run", files=True, repeatable=True)], "flags": {}},
        "runs": {
            "about": "List.",
            "actions": {
                "list": {
                    "about": "List.",
                    "arguments": [],
                    "flags": {"--sort": _flag(_value(choices=("age", "size")))},
                },
                "clean": {"about": "Clean.", "arguments": [], "flags": {"--yes": _flag(None)}},
            },
        },
    },
    "default_actions": {"runs": "list"},
    "names": {
        "recipe": {"shapes-quick": "small", "cifar10": "larger"},
        "data": {"shapes": "", "cifar10": ""},
        "network": {"resnet50": "", "resnet18": ""},
        "setting": {"optim.lr": "rate", "optim.name": "", "model.name": "", "seed": ""},
    },
    "choices": {"optim.name": ["sgd", "lars"]},
}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tr", "train"),
        ("r", "report runs"),
        ("--v", "--version"),
        ("nonsense ", ""),
        ("train sh", "shapes-quick"),
        ("train ", "shapes-quick cifar10"),
        ("train mine", FILES),
        ("train shapes-quick ", "--data --device --precision --set --smoke"),
        ("train --d", "--data --device"),
        ("train --data x --d", "--device"),
        ("train --set seed=1 --se", "--set"),
        ("train --data ", f"shapes cifar10 {FILES}"),
        ("train --data sh", "shapes"),
        ("train --data=sh", "--data=shapes"),
        ("train --data=./p", FILES),
        ("train --device c", "cpu"),
        ("train --smoke sh", "shapes-quick"),
        ("train --device cpu sh", "shapes-quick"),
        ("train --device=cpu sh", "shapes-quick"),
        ("train --precision fp32,b", "fp32,bf16"),
        ("train --set opt", "optim.lr= optim.name="),
        ("train --set optim.name=", "optim.name=sgd optim.name=lars"),
        ("train --set optim.name=l", "optim.name=lars"),
        ("train --set optim.lr=", ""),
        ("train --set model.name=resnet5", "model.name=resnet50"),
        ("train --set=optim.n", "--set=optim.name="),
        ("report ", FILES),
        ("runs ", "list clean --sort"),
        ("runs --sort s", "size"),
        ("runs clean --", "--yes"),
        ("runs list --sort a", "age"),
    ],
)
def test_what_fits(line: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [word for word, _ in answers(line.split(" "), TABLE)] == words.split()


def test_runs_are_the_folders_in_runs_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("20260101-a", "20260102-b", ".deleting-c", "20260103-\x1b]0;owned\x07", "20260104-a\nb"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs/notes.txt").touch()
    assert [w for w, _ in answers(["report", ""], TABLE)] == ["runs/20260102-b", "runs/20260101-a"]
    assert [w for w, _ in answers(["report", "runs/20260101-a", "runs/20260102"], TABLE)] == ["runs/20260102-b"]


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


def test_bash_gets_the_part_behind_the_last_break(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(["--line", "vernier train --set optim.n", " =:"], TABLE)
    print_answer(["--line", "vernier train --set=optim.n", " =:"], TABLE)
    print_answer(["--line", "vernier train --set optim.name=s", " =:"], TABLE)
    print_answer(["--line", "vernier train --set optim.name=s", " "], TABLE)
    print_answer(["train", "--set", "optim.name=s"], TABLE)
    print_answer(["--line"], TABLE)
    lines = [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["optim.name=", "optim.name=", "sgd", "optim.name=sgd", "optim.name=sgd", "train", "report", "runs"]


def test_the_stamp_changes_with_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "vernier/cli/a.py"
    module.parent.mkdir(parents=True)
    module.write_text("x = 1\n")
    monkeypatch.setattr("vernier.completing.PACKAGE_PARENT", tmp_path)
    first = source_stamp()
    assert source_stamp() == first
    module.write_text("x = 10\n")
    assert source_stamp() != first
