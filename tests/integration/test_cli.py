"""The command line as a person meets it."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done, command, only_run
from vernier import recipes


def test_help_does_not_import_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "vernier", "--help"], capture_output=True, text=True, check=True
    )
    assert "train" in done.stdout
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not {m for m in modules if m.split(".")[0] in ("torch", "numpy", "PIL", "psutil", "safetensors")}


def test_alone_it_says_what_to_type(vernier_here: Callable[..., Done]) -> None:
    done = vernier_here()
    assert done.code == 0
    assert "vernier train" in done.out
    assert "vernier doctor" in done.out
    assert vernier_here("--version").out.startswith("vernier ")


def test_train_eval_and_repeat(tiny: list[str], vernier: Callable[..., Done], tmp_path: Path) -> None:
    trained = vernier("train", *tiny, "--epochs", "1", "--json")
    assert trained.code == 0, trained.err
    result = trained.json()
    assert {"top1", "top5", "loss"} <= set(result["result"])
    assert "16 = 1 process x 16 images x 1 accumulation step" in trained.err
    run = only_run(tmp_path / "runs")
    evaluated = vernier("eval", str(run), "--json").json()
    assert evaluated["top1"] == result["result"]["top1"]
    again = vernier("train", "--config", str(run / "config.json"), "--out", str(tmp_path / "again"), "--json")
    assert again.code == 0, again.err
    assert again.json()["result"] == result["result"]


def test_a_recipe_can_be_shown_edited_and_used(
    tiny: list[str], vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    shown = vernier_here("recipes", "show", "shapes-quick")
    mine = tmp_path / "mine.toml"
    mine.write_text(shown.out.replace('name = "shapes-quick"', 'name = "mine"'))
    done = vernier_here("train", str(mine), *tiny, "--max-steps", "2", "--max-eval-steps", "1")
    assert done.code == 0, done.err
    assert "-mine-" in only_run(tmp_path / "runs").name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "no recipe or network 'nonsense'"),
        (["shapes-quik"], "Did you mean shapes-quick"),
        (["missing.toml"], "missing.toml"),
        (["--set", "optim.lrr=1"], "Did you mean optim.lr?"),
        (["--set", "optim.lr=fast"], "must be a number"),
        (["--lr", "-1"], "above 0"),
        (["--set", "machine.accumulation=3"], "does not divide"),
        (["--set", "model.num_classes=4"], "the data has 10 classes"),
        (["--data", "/no/such/place"], "does not exist"),
        (["--model", "resnet51"], "resnet50"),
        (["--device", "cuda"], "cannot be used on this machine"),
        (["--precision", "tf32"], "--precision fp32"),
        (["--global-batch", "400"], "more than the"),
        (["--resume", "/no/run"], "not a run directory"),
        (["--out", "/proc/nope"], "--out"),
        (["--epoch", "3"], "--epochs"),
        (["--device", "gpux"], "Did you mean xpu or hpu or cpu?"),
        (["--seed", "many"], "--seed"),
    ],
)
def test_wrong_input_exits_2_with_one_message_and_leaves_nothing(
    tiny: list[str], vernier_here: Callable[..., Done], tmp_path: Path, arguments: list[str], message: str
) -> None:
    recipe, rest = (arguments[:1], arguments[1:]) if not arguments[0].startswith("-") else ([], arguments)
    done = vernier_here("train", *recipe, *tiny, *rest)
    assert done.code == 2, done.err
    assert message in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "runs").exists()
    assert done.out == ""


def test_diverging_exits_1(tiny: list[str], vernier_here: Callable[..., Done]) -> None:
    done = vernier_here("train", *tiny, "--lr", "1e30", "--epochs", "3", "--set", "schedule.warmup_epochs=0")
    assert done.code == 1, done.err
    assert "Try a lower optim.lr" in done.err
    assert "Traceback" not in done.err


def test_a_broken_image_exits_1_and_is_named(
    tiny: list[str], shapes: Path, vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(shapes), str(copy)], check=True)
    for victim in sorted((copy / "train").rglob("*.jpg"))[:4]:  # three are allowed
        victim.write_bytes(victim.read_bytes()[:40])
    done = vernier_here("train", *tiny, "--data", str(copy), "--epochs", "1")
    assert done.code == 1, done.err
    assert victim.name in done.err


@pytest.mark.parametrize("name", [["recipes"], ["models"], ["doctor"]])
def test_lists_are_tables_or_json(vernier_here: Callable[..., Done], name: list[str]) -> None:
    assert vernier_here(*name).code == 0
    assert json.loads(vernier_here(*name, "--json").out)


def test_the_lists_name_what_there_is(vernier_here: Callable[..., Done]) -> None:
    listed = vernier_here("recipes").out
    assert all(name in listed for name in recipes.names())
    assert "25.6 M" in vernier_here("models").out
    assert "25,557,032" in vernier_here("models", "resnet50").out
    assert vernier_here("recipes", "show", "nope").code == 2


def test_eval_of_what_is_no_run_is_a_clear_error(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    for path, message in ((tmp_path, "not a run directory"), (tmp_path / "none", "does not exist")):
        done = vernier_here("eval", str(path))
        assert done.code == 2
        assert message in done.err


def test_on_a_terminal_there_is_a_bar_and_piped_there_is_no_colour(tiny: list[str], tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "150"}
    child = subprocess.Popen(
        command("train", *tiny, "--epochs", "3"), stdout=subprocess.PIPE, stderr=follower, env=environment
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    assert child.wait(timeout=60) == 0
    assert b"img/s" in shown
    assert b"data wait" in shown
    assert b"\x1b[" in shown
    assert child.stdout is not None
    summary = child.stdout.read()
    assert b"\x1b[" not in summary
    assert b"top-1" in summary


def test_data_make(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    done = vernier_here(
        "data", "make", "shapes", "--out", str(tmp_path / "set"), "--train", "20", "--val", "10", "--size-px", "32"
    )
    assert done.code == 0, done.err
    assert len(list((tmp_path / "set" / "train").rglob("*.jpg"))) == 20
    assert (tmp_path / "set" / "annotations" / "instances_val.json").exists()
    wrong = vernier_here("data", "make", "shapes", "--train", "-3")
    assert wrong.code == 2
    assert "Traceback" not in wrong.err
