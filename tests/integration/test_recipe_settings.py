"""Settings through the command line: each has an effect, all together resume bit for bit, wrong ones are refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.conftest import Done, only_run

MODERN = [
    "--set",
    "optim.name=lamb",
    "--set",
    "optim.lr=0.01",
    "--set",
    "optim.lr_batch=none",
    "--set",
    "optim.nesterov=false",
    "--set",
    "optim.clip_norm=1.0",
    "--set",
    "optim.layer_decay=0.9",
    "--set",
    "loss.kind=bce",
    "--set",
    "model.drop_path=0.3",
    "--set",
    "augment.mixup=0.2",
    "--set",
    "augment.cutmix=1.0",
    "--set",
    "augment.policy=rand",
    "--set",
    "augment.erase=0.5",
    "--set",
    "augment.repeats=3",
    "--set",
    "augment.start_px=16",
    "--set",
    "augment.ramp_epochs=[0, 1]",
    "--set",
    "ema.decay=0.9",
    "--set",
    "ema.every_steps=3",
    "--set",
    "ema.copy_epochs=1",
    "--set",
    "data.interpolation=bicubic",
]


_PLAIN: list[dict[str, Tensor]] = []  # the weights without any of the settings, trained once


def _newest(out: Path) -> Path:
    return sorted((only_run(out) / "checkpoints").glob("step-*"))[-1]


@pytest.mark.parametrize("stop", [4, 10, 13])
def test_a_resumed_run_ends_like_an_uninterrupted_one(
    tiny: list[str], vernier_here: Callable[..., Done], tmp_path: Path, stop: int
) -> None:
    """Also across the step at which images grow: ten steps per epoch, 16 pixels in the first and 32 in the second."""
    whole = vernier_here(
        "train", "shapes-quick", *tiny, *MODERN, "--epochs", "2", "--out", str(tmp_path / "whole"), "--json"
    )
    assert whole.code == 0, whole.err
    cut = vernier_here("train", "shapes-quick", *tiny, *MODERN, "--epochs", "2", "--max-steps", str(stop))
    assert cut.code == 0, cut.err
    resumed = vernier_here(
        "train", "shapes-quick", *tiny, *MODERN, "--epochs", "2", "--resume", str(only_run(tmp_path / "runs")), "--json"
    )
    assert resumed.code == 0, resumed.err
    assert resumed.json()["result"] == whole.json()["result"]
    for name in ("model.safetensors", "ema.safetensors", "optimizer.safetensors"):
        assert (_newest(tmp_path / "runs") / name).read_bytes() == (_newest(tmp_path / "whole") / name).read_bytes(), (
            name
        )


@pytest.mark.parametrize(
    "setting",
    [
        "optim.name=lars",
        "optim.name=lamb",
        "optim.name=adamw",
        "optim.clip_norm=0.01",
        "optim.layer_decay=0.5",
        "loss.kind=bce",
        "loss.smoothing_over=others",
        "model.drop_path=0.5",
        "model.blurpool=true",
        "model.unused_outputs=1",
        "augment.mixup=0.2",
        "augment.cutmix=1.0",
        "augment.policy=rand",
        "augment.policy=trivial-wide",
        "augment.erase=1.0",
        "augment.repeats=4",
        "augment.start_px=16",
        "data.interpolation=bicubic",
        "schedule.kind=mlperf",
        "schedule.warmup_form=stairs",
    ],
)
def test_each_setting_changes_the_weights(
    tiny: list[str], vernier_here: Callable[..., Done], tmp_path: Path, setting: str
) -> None:
    plain = [
        *tiny,
        "--set",
        "optim.nesterov=false",
        "--set",
        "augment.crop=random-resized",
        "--max-steps",
        "2",
        "--train-only",
        "--json",
    ]
    if not _PLAIN:
        before = vernier_here("train", *plain, "--out", str(tmp_path / "before"))
        assert before.code == 0, before.err
        _PLAIN.append(load_file(_newest(tmp_path / "before") / "model.safetensors"))
    after = vernier_here("train", *plain, "--set", setting, "--out", str(tmp_path / "after"))
    assert after.code == 0, after.err
    weights = load_file(_newest(tmp_path / "after") / "model.safetensors")
    assert weights.keys() == _PLAIN[0].keys()
    assert not all(torch.equal(weights[name], _PLAIN[0][name]) for name in weights if name.endswith("weight"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["optim.name=adam"], "adamw, lamb, lars, muon, sgd"),
        (["optim.name=lars"], "--optimizer sgd"),
        (["augment.policy=auto"], "none, trivial-wide, rand"),
        (["augment.start_px=64"], "--set augment.start_px=none"),
        (["augment.start_px=16", "augment.ramp_epochs=[3, 1]"], "must not end before it begins"),
        (["schedule.kind=list"], "one share more than milestones"),
        (["loss.bce_threshold=0.2"], "--loss bce"),
        (["augment.repeats=0"], "1 or more"),
        (["loss.smoothing_over=none"], "all, others"),
        (["model.freeze=layer1"], "must be a list"),
    ],
)
def test_wrong_settings_say_what_would_work(
    tiny: list[str], vernier_here: Callable[..., Done], tmp_path: Path, settings: list[str], message: str
) -> None:
    done = vernier_here("train", *tiny, *(part for s in settings for part in ("--set", s)))
    assert done.code == 2, done.err
    assert message in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "runs").exists()


def test_the_resolution_of_an_evaluation_can_be_chosen(
    tiny: list[str], vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    assert vernier_here("train", *tiny, "--max-steps", "3").code == 0
    run = str(only_run(tmp_path / "runs"))
    plain = vernier_here("eval", run, "--json").json()
    larger = vernier_here(
        "eval", run, "--set", "data.eval_px=48", "--set", "data.eval_short_side_px=56", "--json"
    ).json()
    assert larger["samples"] == plain["samples"]
    assert larger["loss"] != plain["loss"]


def test_the_description_of_a_recipe_may_change_before_resuming(
    tiny: list[str], vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('name = "mine"\nabout = "first"\n')
    assert vernier_here("train", str(mine), *tiny, "--max-steps", "2").code == 0
    run = str(only_run(tmp_path / "runs"))
    mine.write_text('name = "mine"\nabout = "second"\n[[published]]\nmean = 50.0\n')
    assert vernier_here("train", str(mine), *tiny, "--max-steps", "3", "--resume", run).code == 0
    refused = vernier_here("train", str(mine), *tiny, "--max-steps", "4", "--resume", run, "--lr", "0.001")
    assert refused.code == 2
    assert "optim.lr" in refused.err


def test_evaluations_begin_at_their_offset(tiny: list[str], vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    settings = ("--set", "eval.every_epochs=2", "--set", "eval.offset_epochs=1", "--epochs", "4")
    assert vernier_here("train", *tiny, *settings).code == 0
    lines = (only_run(tmp_path / "runs") / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [e["epoch"] for e in events if e["kind"] == "eval"] == [1.0, 3.0, 4.0]
