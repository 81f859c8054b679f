"""Training in two phases: what learns in each, and that a run killed in either continues bit for bit."""

from dataclasses import replace
from pathlib import Path

import torch

from tests.tiny_training import run_training, tiny_config
from vernier.config import Config, Ema, Model, Schedule, override
from vernier.engine.training.checkpoints.resume import _find_resume_point
from vernier.engine.training.head_warmup import HeadWarmup
from vernier.engine.training.session import Outcome, train
from vernier.engine.training.setup import prepare
from vernier.optim.kinds.sgd import Sgd

HEAD_STEPS = 4


def two_phases(shapes: Path, **model: object) -> Config:
    """Twelve steps, of which the first four are the head's."""
    spec = replace(Model(name="resnet8-small", width=8), **model)  # type: ignore[arg-type]
    config = tiny_config(
        shapes,
        model=spec,
        optim=Sgd(lr=0.05, backbone_lr_share=0.5),
        schedule=Schedule(epochs=1.2, head_epochs=0.4),
        ema=Ema(decay=0.9),
    )
    return override(config, "eval.every_epochs", 0.0)


def final_files(outcome: Outcome) -> list[bytes]:
    checkpoint = outcome.run.checkpoints.committed()[-1].path
    files = ("model.safetensors", "optimizer.safetensors", "ema.safetensors")
    return [(checkpoint / name).read_bytes() for name in files]


def test_the_backbone_waits_while_the_head_trains(shapes: Path) -> None:
    job = prepare(two_phases(shapes))
    try:
        assert HeadWarmup.count_steps(job.config, job.derived) == job.step.head_warmup.steps == HEAD_STEPS
        before = {name: tensor.clone() for name, tensor in job.model.state_dict().items()}
        batches = job.loader.batches(job.requests(0, 8))

        def changed() -> set[str]:
            now = job.model.state_dict()
            return {name for name, tensor in before.items() if not torch.equal(tensor, now[name])}

        for step in range(HEAD_STEPS):
            job.step(step, batches)
        assert changed() == {"fc.weight", "fc.bias"}, "neither weights nor statistics of the backbone"
        job.step(HEAD_STEPS, batches)
        assert {"conv1.weight", "bn1.running_mean", "layer3.0.conv2.weight"} <= changed()
    finally:
        job.close()


def test_layers_frozen_for_good_and_frozen_statistics_stay_so_in_the_second_phase(shapes: Path) -> None:
    job = prepare(two_phases(shapes, freeze=("conv1", "bn1"), freeze_statistics=True))
    try:
        before = {name: tensor.clone() for name, tensor in job.model.state_dict().items()}
        batches = job.loader.batches(job.requests(0, 8))
        for step in range(HEAD_STEPS + 2):
            job.step(step, batches)
        now = job.model.state_dict()
        same = {name for name, tensor in before.items() if torch.equal(tensor, now[name])}
        assert {"conv1.weight", "bn1.weight", "bn1.running_mean", "layer2.0.bn1.running_var"} <= same
        assert not torch.equal(before["layer2.0.bn1.weight"], now["layer2.0.bn1.weight"]), "scales still learn"
        assert any("keep the statistics they were loaded with" in note for note in job.notes)
    finally:
        job.close()


def test_a_run_cut_in_either_phase_continues_bit_for_bit(shapes: Path, tmp_path: Path) -> None:
    """At step 2 the head trains alone, at 4 the phases change, at 7 everything trains."""
    config = two_phases(shapes)
    whole = run_training(config, tmp_path / "whole")
    for cut in (2, HEAD_STEPS, 7):
        part = run_training(override(config, "limits.max_steps", cut), tmp_path / f"cut{cut}")
        assert part.summary.step == cut
        resumed = train(config, tmp_path, _find_resume_point(part.run, config, lambda _: None))
        assert resumed.summary.step == whole.summary.step == 12
        assert final_files(resumed) == final_files(whole)


def test_the_phases_of_a_run_that_goes_back_are_those_of_its_steps(shapes: Path) -> None:
    """A rollback may lead from the second phase into the first."""
    job = prepare(two_phases(shapes))
    try:
        phase = job.step.head_warmup
        for step, alone in ((0, True), (HEAD_STEPS, False), (1, True), (HEAD_STEPS + 1, False)):
            phase.enter(step)
            assert job.model.get_parameter("conv1.weight").requires_grad is not alone
            assert job.model.get_submodule("bn1").training is not alone
    finally:
        job.close()
