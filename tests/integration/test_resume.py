"""Real interruptions: processes killed, stopped or damaged at any moment, and resumed to the same end."""

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done, command, only_run

HARD = [
    "--epochs",
    "4",
    "--set",
    "augment.mixup=0.2",
    "--set",
    "ema.decay=0.9",
    "--set",
    "machine.accumulation=2",
    "--set",
    "loss.label_smoothing=0.1",
    "--set",
    "checkpoint.every_steps=3",
    "--set",
    "limits.log_every_steps=1",
]


def _state(run: Path) -> dict[str, bytes]:
    """Weights, optimiser, average and metrics of the last checkpoint."""
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    files = {p.name: p.read_bytes() for p in newest.glob("*.safetensors")}
    progress = json.loads((newest / "state.json").read_text())["progress"]
    progress.pop("spent_s")
    return {**files, "progress": json.dumps(progress).encode(), "step": newest.name.encode()}


def _steps_logged(out: Path) -> int:
    runs = list(out.glob("*/events.jsonl"))
    return runs[-1].read_text().count('"kind": "step"') if runs else 0


def _start_and_kill(arguments: list[str], out: Path, after_steps: int, delay_s: float, number: signal.Signals) -> int:
    """Start a training, send it a signal once it has logged some steps of its own, and return its exit code."""
    before = _steps_logged(out)
    child = subprocess.Popen(command("train", *arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while child.poll() is None and _steps_logged(out) < before + after_steps:
        assert time.monotonic() < deadline, "the training does not start"
        time.sleep(0.002)
    time.sleep(delay_s)
    if child.poll() is None:
        child.send_signal(number)
    return child.wait(timeout=120)


@pytest.mark.slow
def test_killed_at_random_moments_and_resumed_it_ends_bit_for_bit_the_same(
    tiny: list[str], vernier: Callable[..., Done], tmp_path: Path
) -> None:
    reference = vernier("train", *tiny, *HARD, "--out", str(tmp_path / "reference"))
    assert reference.code == 0, reference.err
    out = tmp_path / "killed"
    arguments = [*tiny, *HARD, "--out", str(out)]
    dice = random.Random(20261115)
    kills = 0
    for _ in range(5):
        code = _start_and_kill(arguments, out, dice.randrange(1, 9), dice.random() * 0.05, signal.SIGKILL)
        kills += code == -signal.SIGKILL
    done = vernier("train", *arguments)
    assert done.code == 0, done.err
    assert kills >= 3
    killed = [p for p in out.iterdir() if list((p / "checkpoints").glob("step-*"))]
    assert _state(sorted(killed)[-1]) == _state(only_run(tmp_path / "reference"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_saves_at_the_next_step_and_the_same_command_resumes(
    tiny: list[str], vernier: Callable[..., Done], tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "stopped"
    arguments = [
        *tiny,
        *HARD,
        "--out",
        str(out),
        "--set",
        "checkpoint.every_steps=0",
        "--set",
        "checkpoint.every_epochs=0",
    ]
    assert _start_and_kill(arguments, out, 5, 0.0, number) == 75
    run = only_run(out)
    status = json.loads((run / "run.json").read_text())
    assert status["status"] == "stopped"
    (checkpoint,) = (run / "checkpoints").glob("step-*")
    assert int(checkpoint.name[5:]) >= 5
    done = vernier("train", *arguments, "--json")
    assert done.code == 0, done.err
    assert "resuming from step" in done.err
    assert done.json()["run"] == str(run)
    whole = vernier("train", *arguments[:-4], "--out", str(tmp_path / "whole"))
    assert whole.code == 0
    assert _state(run) == _state(only_run(tmp_path / "whole"))


def test_a_damaged_newest_checkpoint_is_skipped_with_a_warning(
    tiny: list[str], vernier: Callable[..., Done], tmp_path: Path
) -> None:
    first = vernier("train", *tiny, "--epochs", "2", "--max-steps", "14", "--set", "checkpoint.every_steps=7")
    assert first.code == 0, first.err
    run = only_run(tmp_path / "runs")
    damaged = run / "checkpoints" / "step-00000014" / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    done = vernier("train", *tiny, "--epochs", "2", "--resume", "auto")
    assert done.code == 0, done.err
    assert "damaged" in done.err
    assert "resuming from step" in done.err


def test_resume_refuses_another_recipe_and_changed_data(
    tiny: list[str], shapes: Path, vernier: Callable[..., Done], tmp_path: Path
) -> None:
    assert vernier("train", *tiny, "--epochs", "1").code == 0
    run = only_run(tmp_path / "runs")
    other = vernier("train", *tiny, "--epochs", "1", "--lr", "0.01", "--resume", str(run))
    assert other.code == 2
    assert "optim.lr was" in other.err
    moved = tmp_path / "moved"
    subprocess.run(["cp", "-r", str(shapes), str(moved)], check=True)
    arguments = [*tiny, "--data", str(moved), "--epochs", "1", "--out", str(tmp_path / "other")]
    assert vernier("train", *arguments, "--max-steps", "5").code == 0
    next((moved / "train").rglob("*.jpg")).unlink()
    changed = vernier("train", *arguments, "--resume", "auto")
    assert changed.code == 2
    assert "data has changed" in changed.err


def test_resuming_a_finished_run_changes_nothing(tiny: list[str], vernier: Callable[..., Done], tmp_path: Path) -> None:
    assert vernier("train", *tiny, "--epochs", "1").code == 0
    run = only_run(tmp_path / "runs")
    before = _state(run)
    done = vernier("train", *tiny, "--epochs", "1", "--resume", "auto")
    assert done.code == 0, done.err
    assert _state(only_run(tmp_path / "runs")) == before
    again = vernier("train", *tiny, "--epochs", "1")
    assert again.code == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2, "without --resume a finished run is left alone"


def test_a_run_in_use_is_not_touched(tiny: list[str], vernier: Callable[..., Done], tmp_path: Path) -> None:
    out = tmp_path / "runs"
    child = subprocess.Popen(
        command("train", *tiny, "--epochs", "200", "--set", "limits.log_every_steps=1"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while _steps_logged(out) < 12:
        assert time.monotonic() < deadline, "the training does not start"
        time.sleep(0.05)
    during = vernier("eval", str(only_run(out)))
    refused = vernier("train", *tiny, "--epochs", "200", "--resume", "auto")
    child.terminate()
    assert child.wait(timeout=60) == 75, "a second command must not disturb the first one's checkpoints"
    assert during.code == 0, during.err
    assert "top-1" in during.out
    assert refused.code == 2
    assert "in use" in refused.err
