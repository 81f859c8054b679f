"""Going on with a training of NVIDIA's or Habana's code."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.conftest import Done, only_run
from tests.models import their_checkpoints
from tests.tiny_training import events_of, tiny_config
from vernier.compat.training_checkpoints import resume_external
from vernier.config import Config, Limits, Model, Schedule
from vernier.engine.training.checkpoints.contents import _optimizer_tensors
from vernier.engine.training.session import train
from vernier.engine.training.setup import Job, prepare
from vernier.errors import ConfigError
from vernier.models import build
from vernier.optim.kinds.lars import Lars
from vernier.records.events import StartEvent, StepEvent
from vernier.records.run import Progress
from vernier.store import RunDir

Vernier = Callable[..., Done]
NETWORK = "resnet14-small"  # has projections, whose norms are not called bn


def network() -> nn.Module:
    torch.manual_seed(3)
    return build(NETWORK, num_classes=10, width=8)


def config_for(shapes: Path, checkpoint: Path, **recipe: object) -> Config:
    model = Model(name=NETWORK, width=8, checkpoint=str(checkpoint))
    return tiny_config(shapes, model=model, **{"schedule": Schedule(epochs=4.0), **recipe})


def taken_over(config: Config) -> tuple[Job, Progress]:
    job = prepare(config)
    try:
        return job, resume_external(job)
    finally:
        job.close()


def same(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def momentum_of(job: Job) -> dict[str, torch.Tensor]:
    tensors = _optimizer_tensors(job.model, job.optimizer)
    return {name.removesuffix("/momentum_buffer"): tensor for name, tensor in tensors.items()}


def test_a_checkpoint_of_nvidias_code_goes_on_with_its_momentum(shapes: Path, tmp_path: Path) -> None:
    model, file = network(), tmp_path / "checkpoint.pth.tar"
    momentum = their_checkpoints.write_nvidia_fp32(model, file, epoch=2, best=31.5)
    job, progress = taken_over(config_for(shapes, file))
    assert (progress.step, progress.best_value) == (2 * job.derived.steps_per_epoch, 31.5)
    assert same(job.model.state_dict(), dict(model.state_dict()))
    assert same(momentum_of(job), momentum)
    notes = "\n".join(job.notes)
    assert "resumed from NVIDIA's main.py: epoch 2" in notes
    assert f"momentum of {len(momentum)} weights; best top-1 31.50 %" in notes
    assert "learning rate, schedule, weight decay and the order of images are this recipe's" in notes


@pytest.mark.parametrize("halves_first", [True, False])
def test_a_half_precision_checkpoint_goes_on_with_its_fp32_masters(
    shapes: Path, tmp_path: Path, halves_first: bool
) -> None:
    """The files of all published FP16 recipes were refused: names `module.1.conv1`, and apex's LossScaler pickled."""
    file = tmp_path / "checkpoint.pth.tar"
    momentum, fp32 = their_checkpoints.write_nvidia_fp16(network(), file, epoch=1, best=12.0, halves_first=halves_first)
    job, progress = taken_over(config_for(shapes, file))
    assert progress.step == job.derived.steps_per_epoch
    assert same({name: p.detach() for name, p in job.model.named_parameters()}, fp32)
    assert same(momentum_of(job), momentum)
    assert "their loss scale of 128 was not taken over: none is needed (fp32)" in "\n".join(job.notes)


def test_a_checkpoint_of_habanas_code_counts_epochs_from_zero(shapes: Path, tmp_path: Path) -> None:
    model, file = network(), tmp_path / "checkpoint.pth"
    momentum = their_checkpoints.write_habana(model, file, epoch=1)
    job, progress = taken_over(config_for(shapes, file))
    assert (progress.step, progress.best_value) == (2 * job.derived.steps_per_epoch, None)
    assert same(momentum_of(job), momentum)
    assert "epoch 2" in "\n".join(job.notes)


def test_another_optimiser_starts_without_momentum_and_says_so(shapes: Path, tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.pth"
    their_checkpoints.write_habana(network(), file, epoch=0)
    job, _ = taken_over(config_for(shapes, file, optim=Lars(lr=0.05)))
    assert not job.optimizer.state
    assert "momentum was not taken over (the recipe's optimiser is lars" in "\n".join(job.notes)


def test_momentum_in_an_unknown_order_is_left_out_and_said(shapes: Path, tmp_path: Path) -> None:
    model, file = network(), tmp_path / "checkpoint.pth"
    their_checkpoints.write_habana(model, file, epoch=0)
    content = torch.load(file, weights_only=False)
    content["optimizer"]["param_groups"][0]["params"].reverse()
    torch.save(content, file)
    job, _ = taken_over(config_for(shapes, file))
    assert not job.optimizer.state
    assert "momentum was not taken over (its parameters are in no known order)" in "\n".join(job.notes)


def test_the_command_line_goes_on_and_resumes_its_own_run_after_an_interruption(
    shapes: Path, tmp_path: Path, vernier_here: Vernier
) -> None:
    file, out = tmp_path / "checkpoint.pth.tar", tmp_path / "runs"
    their_checkpoints.write_nvidia_fp32(network(), file, epoch=2, best=99.0)
    config = replace(config_for(shapes, file), limits=Limits(max_steps=24))
    train(config, out)
    run = RunDir.open(only_run(out))
    assert events_of(run, StepEvent)[-1].step == 24
    assert any("resumed from NVIDIA's main.py" in note for note in events_of(run, StartEvent)[0].notes)
    run.write_status("crashed", reason="for the test")
    small = ["--data", str(shapes), "--out", str(out), "--config", str(run.path / "config.json"), "--resume", str(file)]
    done = vernier_here("train", *small, "--set", "limits.max_steps=26")
    assert done.code == 0, done.err
    assert "which was interrupted" in done.err
    assert events_of(run, StartEvent)[-1].resumed_from == 24
    assert "best so far" not in done.err  # 99 % was better


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"state_dict": {}}, "not a checkpoint of NVIDIA's (epoch, state_dict, optimizer)"),
        ([1, 2], "it has list"),
        ({"epoch": 2, "model": {}, "optimizer": {"state": {}}}, "not the state of a PyTorch optimizer"),
        ({"epoch": 2, "state_dict": {}, "optimizer": {"state": {0: 1}, "param_groups": []}}, "(state, param_groups)"),
        ({"epoch": 2, "model": {}, "optimizer": os.system}, "refers to posix.system, and Vernier runs no code"),
    ],
)
def test_other_files_are_refused_with_what_would_work(
    shapes: Path, tmp_path: Path, content: object, message: str
) -> None:
    torch.save(content, tmp_path / "x.pth")
    with pytest.raises(ConfigError) as error:
        train(config_for(shapes, tmp_path / "x.pth"), tmp_path / "runs")
    assert message in str(error.value)
    assert not list((tmp_path / "runs").glob("*"))


def test_refusals_before_a_run_is_created(shapes: Path, tmp_path: Path, vernier_here: Vernier) -> None:
    file = tmp_path / "checkpoint.pth"
    their_checkpoints.write_habana(network(), file, epoch=7)
    with pytest.raises(ConfigError, match="8 epochs are done, and this run ends after 4"):
        train(config_for(shapes, file), tmp_path / "runs")
    both = vernier_here("train", "shapes-quick", "--resume", str(file), "--weights", str(file))
    assert "has weights of its own" in both.err
    assert "with which recipe?" in vernier_here("train", "--resume", str(file)).err
    (tmp_path / "w.safetensors").write_bytes(b"\x02" + b"\0" * 7 + b"{}")
    done = vernier_here("train", "shapes-quick", "--data", str(shapes), "--resume", str(tmp_path / "w.safetensors"))
    assert "a safetensors file has weights and no optimizer" in done.err
