"""What people typed, and what they wanted to be told: one voice, the flag that was typed, and a way out."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done

Runner = Callable[..., Done]


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("train --epochs ten", "--epochs takes a number, not 'ten'."),
        ("train --device gpux", "Did you mean xpu or hpu or cpu?"),
        ("train --device cuda:0", "--device cuda. Which ones of this kind are used is set by CUDA_VISIBLE_DEVICES"),
        ("train --mode script", "Choose from eager, compile, trace."),
        ("train --batchsize 64", "Did you mean --global-batch?"),
        ("train --batches 64 --procs 2", "Use --global-batch N for all together"),
        ("train --set lr=0.1", "Did you mean optim.lr?"),
        ("train --set optim.lrr=0.1", "Did you mean optim.lr?"),
        ("train --set optim.lr = 0.1", "Write --set without spaces around the equals sign: --set optim.lr=0.1."),
        ("train --lr -1", "--lr -1 is out of range: it must be above 0."),
        ("train --config /no/such", "--config /no/such: there is no such file."),
        ("train --weights /no/such.pth", "--weights /no/such.pth does not exist."),
        ("train nvidia-resnet50-90e --data imagenet", "vernier data prepare imagenet ILSVRC2012_img_train.tar"),
        ("train cifar10", "vernier data get cifar10, which needs a network connection"),
        ("bench train --global-batch 4", "Use --batch N, of each device. vernier bench train --help"),
        ("bench infer --precision-target", "--precision-target needs a value"),
        ("bench infer --zzz 3", "vernier bench infer --help lists the flags."),
        ("predict", "vernier predict"),
        ("convert runs/x", "vernier convert needs --to raport|dllogger|mllog|study|tensorboard and --out PATH"),
        ("--epochs 3", "vernier needs its command before --epochs."),
    ],
)
def test_a_wrong_command_line_is_answered_with_what_works(
    typed: str, answer: str, vernier_here: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong values were answered in boxes with Python's types, 'None' among the choices, and no way out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path / "home"))
    done = vernier_here(*typed.split())
    assert done.code == 2
    assert done.err.startswith("vernier: ")
    assert answer in done.err
    assert not any(sign in done.err for sign in ("│", "None", "<class", "recipe."))
    assert done.out == ""


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("help", "usage: vernier [-h]"),
        ("help train", "usage: vernier train"),
        ("help bench infer", "usage: vernier bench infer"),
        ("version", "vernier 0."),
        ("bench help", "usage: vernier bench [-h]"),
        ("recipes shapes-quick", 'name = "shapes-quick"'),
        ("models resnet50", "25,557,032"),
    ],
)
def test_what_people_try_first_works(typed: str, answer: str, vernier_here: Runner) -> None:
    """`vernier help`, `vernier version`, `recipes NAME` and `models NAME` were errors."""
    done = vernier_here(*typed.split())
    assert done.code == 0, done.err
    assert answer in done.out


@pytest.mark.parametrize("flag", ["--batch", "--batch-size", "--batches", "--device-batch"])
def test_every_name_of_the_batch_is_understood(flag: str, vernier_here: Runner) -> None:
    """The batch had five names, and none of them was --batch-size."""
    for typed in ("train", "bench train", "bench infer", "profile", "plan", "study run", "bench scaling --procs 1"):
        done = vernier_here(*typed.split(), flag, "many")
        assert done.code == 2
        assert re.match(f"vernier: {flag} takes .*'many'", done.err), typed


@pytest.mark.parametrize("flag", ["--learning-rate", "--gpus", "--nproc", "--precisions", "--modes"])
def test_flags_of_other_tools_are_understood(flag: str, vernier_here: Runner) -> None:
    """`--learning-rate 0.1` and `--gpus 2` were unrecognized options without a hint."""
    done = vernier_here("train", flag, "wrong")
    assert done.code == 2
    assert re.match(f"vernier: {flag} (takes a|wrong is not known)", done.err)


def test_none_is_a_name_where_a_name_is_expected(vernier_here: Runner, tmp_path: Path) -> None:
    """`--set name=none` cleared the name, and the error was "must be text, not None"."""
    done = vernier_here("train", "--set", "recipe.name=none", "--explain", "--data", "shapes")
    assert done.code == 0, done.err
    done = vernier_here("train", "--data", "None", "--smoke", "--out", str(tmp_path))
    assert done.code == 2
    assert "The data path None does not exist." in done.err


def test_optional_arguments_stand_in_brackets_and_switches_alone(vernier_here: Runner) -> None:
    """Help showed RECIPE as required, seven --no- flags that do nothing, and no default of --device."""
    shown = vernier_here("train", "--help-all").out
    assert "[RECIPE]" in shown
    assert "--no-smoke" not in shown
    assert "--[no-]tensorboard" in shown
    assert "(default: auto" in " ".join(shown.split())
    assert "(default: )" not in vernier_here("report", "--help").out
    assert "examples:\n  vernier train\n" in shown


def test_commands_are_listed_in_the_order_of_work(vernier_here: Runner) -> None:
    """The list began with train and ended with bench, data and study; `bench arm`, which is internal, was in it."""
    shown = vernier_here("--help").out
    positions = [shown.index(f"\n{title}\n") for title in ("Everyday", "Measure", "Fleets", "More")]
    assert positions == sorted(positions)
    assert "arm" not in vernier_here("bench", "--help").out.split()
    assert "  vernier completion zsh > ~/.zfunc/_vernier\n" in vernier_here("completion", "--help").out


SAYS_WHETHER_TORCH_WAS_LOADED = """
import sys
from vernier.cli import main
code = main(sys.argv[1:])
sys.stdout.write(f"{code} {'torch' in sys.modules}")
"""


@pytest.mark.parametrize(
    "typed",
    [
        "train --procs 3",
        "train --out /proc/nope",
        "train --weights /no/such.pth",
        "train --max-bad-images many",
        "train --freeze lyaer1",
        "train --data /no/such",
        "train --precision tf32 --device cpu",
        "eval /no/such",
        "predict /no/such",
        "export /no/such",
        "plan nvidia-resnet50-90e --bench 0",
        "--help",
    ],
)
def test_cheap_checks_come_before_pytorch_is_loaded(typed: str, tmp_path: Path) -> None:
    """`--procs 3` started three processes before it said that 32 does not divide by 3; other refusals took 5 s."""
    done = subprocess.run(
        [sys.executable, "-c", SAYS_WHETHER_TORCH_WAS_LOADED, *typed.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "VERNIER_HOME": str(tmp_path / "home")},
        timeout=120,
    )
    assert done.stdout.splitlines()[-1] in ("2 False", "0 False"), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
