"""More epochs for a finished run: it begins with the last checkpoint, bit for bit, and survives kills."""

import hashlib
import json
import math
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done, only_run
from tests.integration.test_resume import _start_and_kill, _state
from tests.plain_loop import plain_losses
from tests.refusals import config_error_of, names_given
from vernier.config import config_from_tree
from vernier.records.events import EvalEvent, StepEvent
from vernier.report.page.runs import read_run
from vernier.store import RunDir

Runner = Callable[..., Done]
LOGGED = ("--set", "limits.log_every_steps=1", "--set", "ema.decay=0.9")


def _tensors(checkpoint: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(checkpoint.glob("*.safetensors"))}


def _files(run: Path) -> dict[str, bytes]:
    """Everything in a run directory; run.lock is opened by whoever looks."""
    return {str(p.relative_to(run)): p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != "run.lock"}


def _newest(out: Path) -> RunDir:
    return RunDir(sorted(p for p in out.iterdir() if not p.name.startswith("."))[-1])


@pytest.fixture
def parent(vernier_here: Runner, tiny: list[str], tmp_path: Path) -> RunDir:
    assert vernier_here("train", *tiny, *LOGGED, "--epochs", "2").code == 0
    return RunDir(only_run(tmp_path / "runs"))


def test_an_extension_begins_with_the_last_checkpoint_and_is_one_curve(
    vernier_here: Runner, tiny: list[str], parent: RunDir, tmp_path: Path
) -> None:
    before, last = _files(parent.path), parent.checkpoints.committed()[-1]
    extend = ("train", *tiny, *LOGGED, "--resume", str(parent.path), "--epochs", "3", "--set", "checkpoint.keep_last=9")
    plan = vernier_here(*extend, "--explain")
    assert (plan.code, "extends" in plan.out) == (0, True)
    done = vernier_here(*extend)
    assert done.code == 0, done.err
    assert f"extends {parent.path} from step {last.step}" in done.err
    run = _newest(tmp_path / "runs")
    assert _tensors(run.path / "checkpoints" / last.path.name) == _tensors(last.path)
    assert _files(parent.path) == before, "the run that is extended stays as it is"
    schedule = config_from_tree(run.read_config()).recipe.schedule
    assert (schedule.extends, schedule.extends_step) == (parent.path.name, last.step)
    assert schedule.extends_weights == _tensors(last.path)["model.safetensors"]
    # One curve: every step of both once, and evaluations in order, in the report too.
    steps = [event for event in run.history() if isinstance(event, StepEvent)]
    assert [event.step for event in steps] == list(range(1, 1 + last.step * 3 // 2))
    page = read_run(run, False)
    assert [point.step for point in page.evals] == [
        event.step for event in run.history() if isinstance(event, EvalEvent)
    ]
    assert ("extends", parent.path.name) in page.facts()
    # cosine, the default: where a cosine over 3 epochs would be by now.
    total, peak = steps[-1].step, config_from_tree(run.read_config()).recipe.optim
    lr = peak.lr * 16 / (peak.lr_batch or 16)
    assert steps[-1].lr == pytest.approx(lr * 0.5 * (1 + math.cos(math.pi * (total - 1) / total)))
    # The same command again is that run, which has ended.
    assert vernier_here(*extend).code == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2
    # An extension can be extended, without its settings being repeated.
    assert (
        vernier_here("train", "--resume", str(run.path), "--steps", str(total + 2), "--out", str(tmp_path / "b")).code
        == 0
    )
    assert RunDir(only_run(tmp_path / "b")).status().summary.step == total + 2


@pytest.mark.parametrize("tail", ["constant", "restart"])
def test_losses_are_those_of_a_plain_loop_that_loads_the_checkpoint(
    vernier_here: Runner, tiny: list[str], tmp_path: Path, tail: str
) -> None:
    plain = ("--set", "augment.mixup=0", "--set", "loss.label_smoothing=0", "--set", "limits.log_every_steps=1")
    assert vernier_here("train", *tiny, *plain, "--epochs", "2").code == 0
    parent = RunDir(only_run(tmp_path / "runs"))
    last = parent.checkpoints.committed()[-1]
    last_rate = [e.lr for e in parent.history() if isinstance(e, StepEvent)][-1]
    done = vernier_here(
        "train", "--resume", str(parent.path), "--epochs", "3", "--schedule-tail", tail, "--out", str(tmp_path / "b")
    )
    assert done.code == 0, done.err
    run = RunDir(only_run(tmp_path / "b"))
    config = config_from_tree(run.read_config())
    steps = [e for e in run.history() if isinstance(e, StepEvent) and e.step > last.step]
    optim = config.recipe.optim
    peak, length = optim.lr * 16 / (optim.lr_batch or 16), len(steps)

    def rate(step: int) -> float:
        if tail == "constant":
            return last_rate
        return peak * 0.5 * (1 + math.cos(math.pi * (step - last.step) / length))

    losses = plain_losses(config, range(last.step, last.step + length), rate, checkpoint=last.path)
    assert [e.loss for e in steps] == pytest.approx(losses, rel=1e-5)


def test_an_extension_that_was_killed_while_it_was_prepared_begins_again(
    vernier_here: Runner, parent: RunDir, tmp_path: Path
) -> None:
    left = tmp_path / "b" / f".extending-{parent.path.name}" / "20260101-000000-x"
    shutil.copytree(parent.path, left)
    done = vernier_here("train", "--resume", str(parent.path), "--epochs", "3", "--out", str(tmp_path / "b"))
    assert done.code == 0, done.err
    assert [p.name for p in (tmp_path / "b").iterdir()] == [_newest(tmp_path / "b").path.name]


def test_what_is_no_extension_is_refused_and_leaves_nothing(
    vernier_here: Runner, tiny: list[str], parent: RunDir, shapes: Path, tmp_path: Path
) -> None:
    run, out = str(parent.path), str(tmp_path / "b")
    extend = ("train", "--resume", run, "--out", out)
    # No longer than what is done, in either unit; another model or rate.
    assert names_given(config_error_of(*extend, "--epochs", "1")) == "schedule.epochs"
    assert names_given(config_error_of(*extend, "--steps", "3")) == "schedule.steps"
    assert "model.width" in str(config_error_of(*extend, "--epochs", "3", "--set", "model.width=16"))
    assert "optim.lr" in str(config_error_of(*extend, "--epochs", "3", "--lr", "1"))
    # A tail without an extension.
    assert names_given(config_error_of("train", *tiny, "--schedule-tail", "restart")) == "schedule_tail"
    assert names_given(config_error_of("train", "--resume", run, "--schedule-tail", "restart")) == "schedule_tail"
    # Changed data: found when it is listed, before anything is written.
    image = next((shapes / "train").rglob("*.png"), None) or next((shapes / "train").rglob("*.jpg"))
    moved = image.with_name(f"moved-{image.name}")
    image.rename(moved)
    try:
        refused = vernier_here(*extend, "--epochs", "3")
    finally:
        moved.rename(image)
    assert (refused.code, "has changed" in refused.err) == (2, True)
    assert not Path(out).exists() or not list(Path(out).iterdir())
    # Not finished, and no checkpoint.
    status = json.loads((parent.path / "run.json").read_text())
    (parent.path / "run.json").write_text(json.dumps(status | {"status": "stopped"}))
    assert "has not finished" in str(config_error_of(*extend, "--epochs", "3"))
    (parent.path / "run.json").write_text(json.dumps(status))
    shutil.rmtree(parent.path / "checkpoints")
    assert "no usable checkpoint" in str(config_error_of(*extend, "--epochs", "3"))
    # The configuration of an extension alone has no run to begin with.
    assert not Path(out).exists() or not list(Path(out).iterdir())


@pytest.mark.slow
def test_killed_at_random_moments_an_extension_ends_bit_for_bit_the_same(
    vernier: Runner, tiny: list[str], parent: RunDir, tmp_path: Path
) -> None:
    extend = ["--resume", str(parent.path), "--epochs", "6", "--schedule-tail", "restart"]
    extend += ["--set", "checkpoint.every_steps=2"]
    reference = vernier("train", *extend, "--out", str(tmp_path / "reference"))
    assert reference.code == 0, reference.err
    out, dice, kills = tmp_path / "killed", random.Random(36), 0
    out.mkdir()
    for _ in range(3):
        code = _start_and_kill(
            [*extend, "--out", str(out)], out, dice.randrange(1, 9), dice.random() * 0.05, signal.SIGKILL
        )
        kills += code == -signal.SIGKILL
    assert kills >= 2
    done = vernier("train", *extend, "--out", str(out))
    assert done.code == 0, done.err
    assert _state(_newest(out).path) == _state(only_run(tmp_path / "reference"))
