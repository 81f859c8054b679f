"""Half precision and loss scaling, against PyTorch's own GradScaler in a loop written by hand."""

import copy
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tiny_training import events_of, tiny_config
from vernier.config import Config, Derived, Limits, Machine, Recipe, Schedule, derive
from vernier.data.augment.normalize import Normalizer
from vernier.data.loading.loader import Batch
from vernier.devices.cpu import Cpu
from vernier.engine.processes.gradients import GradientReduction
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.engine.training.checkpoints.resume import _find_resume_point
from vernier.engine.training.head_warmup import HeadWarmup
from vernier.engine.training.loss_scaling import LossScaler
from vernier.engine.training.session import train
from vernier.engine.training.step import TrainStep
from vernier.models import build
from vernier.models.drop_path import PathMasks
from vernier.optim.build import build_optimizer
from vernier.optim.kinds.sgd import Sgd
from vernier.records.events import StepEvent
from vernier.tasks import task_of

CPU = torch.device("cpu")


def _half(scale: float = 65536.0, growth: int = 2000, scaling: str = "dynamic") -> Machine:
    return Machine(
        precision="fp16",
        allow_slow=True,
        loss_scale=scale,
        loss_scale_growth_steps=growth,
        loss_scaling=scaling,
        threads=1,  # type: ignore[arg-type]
    )


def _parts(machine: Machine) -> tuple[torch.nn.Module, TrainStep, Batch, Derived]:
    torch.manual_seed(0)
    recipe = Recipe(global_batch=8, optim=Sgd(lr=0.05), schedule=Schedule(kind="constant", epochs=100))
    config = Config(recipe=recipe, machine=machine)
    derived = derive(config, train_samples=8)
    model = build("resnet8-small", num_classes=10, width=8)
    optimizer = build_optimizer(model, recipe, derived.lr, fused=machine.precision != "fp16")
    step = TrainStep(
        config=config,
        derived=derived,
        task=task_of(recipe),
        model=model,
        head_warmup=HeadWarmup(model, 0, lambda: GradientReduction(model)),
        optimizer=optimizer,
        average=None,
        device=Cpu(),
        world=World(Topology()),
        paths=PathMasks(model, derived.process_batch, torch.device("cpu")),
    )
    images = torch.randint(0, 256, (8, 3, 16, 16), dtype=torch.uint8)
    return model, step, Batch(images, torch.arange(8), 0.0), derived


@pytest.mark.slow
def test_scale_and_weights_follow_gradscaler_through_overflows_and_growth() -> None:
    machine = _half(scale=2.0**34, growth=4)
    model, step, batch, _ = _parts(machine)
    twin = copy.deepcopy(model)
    decayed = [p for n, p in twin.named_parameters() if p.ndim > 1]
    others = [p for n, p in twin.named_parameters() if p.ndim == 1]
    optimizer = torch.optim.SGD(
        [{"params": decayed, "weight_decay": 1e-4}, {"params": others, "weight_decay": 0.0}], lr=0.05, momentum=0.9
    )
    reference_scaler = torch.amp.GradScaler("cpu", init_scale=2.0**34, growth_interval=4)
    images = Normalizer(Recipe().data, CPU)(batch.images)
    scales, skipped = [], 0
    for number in range(40):
        step(number, repeat(batch))
        with torch.autocast("cpu", dtype=torch.float16):
            logits = twin(images)
        before = reference_scaler.get_scale()
        reference_scaler.scale(torch.nn.functional.cross_entropy(logits.float(), batch.targets)).backward()
        reference_scaler.step(optimizer)
        reference_scaler.update()
        optimizer.zero_grad()
        skipped += reference_scaler.get_scale() < before
        scales.append(reference_scaler.get_scale())
        assert step.scaler.scale == reference_scaler.get_scale()
    assert step.scaler.skipped_steps == skipped > 3
    assert any(b > a for a, b in pairwise(scales)), "the scale never grew back"
    for ours, reference in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-5, atol=1e-6)


def test_a_static_scale_stays_and_still_skips_overflows() -> None:
    model, step, batch, _ = _parts(_half(scale=2.0**34, scaling="static"))
    before = copy.deepcopy(model.state_dict())["fc.weight"]
    for number in range(3):
        step(number, repeat(batch))
    assert step.scaler.scale == 2.0**34
    assert step.scaler.skipped_steps == 3
    assert torch.equal(model.state_dict()["fc.weight"], before)


def test_without_fp16_nothing_is_scaled() -> None:
    _, step, batch, _ = _parts(Machine(threads=1))
    step(0, repeat(batch))
    assert not step.scaler.enabled
    assert step.scaler.state() is None


def test_batch_norm_and_weights_stay_fp32() -> None:
    model, step, batch, _ = _parts(_half())
    step(0, repeat(batch))
    assert all(t.dtype == torch.float32 for t in model.state_dict().values() if t.is_floating_point())


@pytest.mark.slow
def test_a_half_precision_run_resumes_with_its_scale(shapes: Path, tmp_path: Path) -> None:
    config = tiny_config(shapes, schedule=Schedule(epochs=1.0), optim=Sgd(lr=0.01))
    config = replace(config, machine=replace(_half(scale=2.0**34, growth=3), eval_batch=50))
    whole = train(config, tmp_path / "whole")
    part = train(replace(config, limits=Limits(max_steps=4)), tmp_path / "part")
    point = _find_resume_point(part.run, config, lambda text: None)
    rest = train(config, tmp_path / "part", point)
    assert whole.summary.skipped_steps == rest.summary.skipped_steps > 0

    def weights(outcome: Any) -> bytes:
        return (outcome.run.checkpoints.committed()[-1].path / "model.safetensors").read_bytes()

    assert weights(whole) == weights(rest)
    assert all(event.loss_scale is not None for event in events_of(whole.run, StepEvent))


@pytest.mark.parametrize(
    ("precision", "allow_slow", "message"),
    [("tf32", True, "CUDA"), ("bf16", False, "machine.allow_slow"), ("fp16", False, "machine.allow_slow")],
)
def test_what_this_cpu_has_no_hardware_for_must_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, precision: str, allow_slow: bool, message: str
) -> None:
    monkeypatch.setattr("vernier.devices.cpu.instruction_sets", frozenset)
    assert message in Cpu().refuse(precision, "eager", allow_slow=allow_slow)
    monkeypatch.setattr("vernier.devices.cpu.instruction_sets", lambda: frozenset({"amx_bf16", "amx_fp16"}))
    if precision != "tf32":
        assert Cpu().refuse(precision, "eager", allow_slow=False) == ""
    assert isinstance(Cpu().autocast("fp32"), nullcontext)


def test_the_state_of_the_loss_scaler_is_restored() -> None:
    """Elsewhere it was not saved, so that mixed precision did not continue as it had stopped."""
    _, step, batch, _ = _parts(_half(scale=2.0**34))
    for number in range(5):
        step(number, repeat(batch))
    assert step.scaler.skipped_steps > 0
    restored = LossScaler(_half(), CPU)
    restored.load(step.scaler.state())
    assert (restored.scale, restored.skipped_steps) == (step.scaler.scale, step.scaler.skipped_steps)
    assert restored.state() == step.scaler.state()
