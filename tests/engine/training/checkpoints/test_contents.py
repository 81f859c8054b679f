"""What a checkpoint holds, and that loading it restores exactly that."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.tiny_training import run_training, tiny_config
from vernier.config import Checkpoint, Ema, Recipe, Schedule, config_from_tree, optimizers, override
from vernier.engine.training.checkpoints.contents import (
    _optimizer_tensors,
    all_finite,
    read_state,
    restore_optimizer,
    weights_for_use,
)
from vernier.engine.training.checkpoints.writer import _steps_to_keep
from vernier.errors import ConfigError
from vernier.optim.build import build_optimizer
from vernier.optim.kinds.adamw import AdamW
from vernier.optim.kinds.lamb import Lamb
from vernier.records.run import CheckpointState
from vernier.store import CheckpointDir


def test_the_state_says_what_the_weights_are_without_the_run_directory(shapes: Path, tmp_path: Path) -> None:
    config = tiny_config(shapes, schedule=Schedule(epochs=1.0))
    outcome = run_training(config, tmp_path)
    checkpoint = outcome.run.checkpoints.committed()[-1]
    state = read_state(checkpoint)
    assert (state.step, state.progress.step, state.progress.last_eval_step) == (10, 10, 10)
    assert state.progress.result == outcome.summary.result
    assert len(state.classes) == 10
    assert state.config == outcome.run.read_config()
    # Of the settings that Vernier chooses, the run records what it chose.
    assert config_from_tree(state.config) == override(config, "machine.convolution", "torch")


def test_fields_of_another_version_are_ignored_and_missing_ones_have_defaults(tmp_path: Path) -> None:
    checkpoint = CheckpointDir(3, tmp_path)
    tree = {
        "step": 3,
        "progress": {"step": 3, "from_the_future": 1},
        "classes": ["a"],
        "channels": 3,
        "data_fingerprint": "x",
        "config": {},
        "also_new": True,
    }
    (tmp_path / "state.json").write_text(json.dumps(tree))
    state = read_state(checkpoint)
    assert isinstance(state, CheckpointState)
    assert (state.progress.step, state.progress.best_step, state.progress.spent_s) == (3, None, {})


@pytest.mark.parametrize("content", ["{", "[]", '{"step": "three"}', '{"step": 3}'])
def test_a_damaged_state_is_an_error_for_people(tmp_path: Path, content: str) -> None:
    (tmp_path / "state.json").write_text(content)
    with pytest.raises(ConfigError, match=r"Cannot read .*state\.json"):
        read_state(CheckpointDir(3, tmp_path))


def test_the_last_checkpoints_and_those_at_whole_epochs_are_kept() -> None:
    policy = Checkpoint(keep_last=2, keep_every_epochs=2)
    assert _steps_to_keep([5, 10, 15, 20, 25], policy, steps_per_epoch=5) == {10, 20, 25}
    assert _steps_to_keep([5, 10, 15], Checkpoint(keep_last=1, keep_every_epochs=0), steps_per_epoch=5) == {15}


@pytest.mark.parametrize("name", optimizers())
def test_an_optimizer_continues_bit_for_bit_after_a_round_trip(name: str) -> None:
    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        rates = {"bias_lr": 0.1, "head_lr": 0.1} if name == "muon" else {}
        return model, build_optimizer(model, Recipe(optim=optimizers()[name](lr=0.1, **rates)), 0.1)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
        images = torch.rand((2, 3, 8, 8), generator=torch.Generator().manual_seed(seed))
        model(images).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    model, optimizer = make()
    step(model, optimizer, 1)
    saved = {key: value.clone() for key, value in _optimizer_tensors(model, optimizer).items()}
    twin, other = make()
    twin.load_state_dict(model.state_dict())
    restore_optimizer(twin, other, saved)
    step(model, optimizer, 2)
    step(twin, other, 2)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def test_step_counters_stay_on_the_cpu_where_the_optimiser_keeps_them() -> None:
    """`meta` stands in for an accelerator: a counter there would be read with a synchronisation per tensor."""
    model = nn.Linear(2, 2, device="meta")
    optimizer = build_optimizer(model, Recipe(optim=Lamb(lr=0.1)), 0.1)
    saved = {"weight/step": torch.tensor(7), "weight/exp_avg": torch.ones(2, 2)}
    restore_optimizer(model, optimizer, saved)
    state = optimizer.state[model.weight]
    assert state["step"].device.type == "cpu"
    assert int(state["step"]) == 7
    assert state["exp_avg"].device.type == "meta"


def test_step_counters_of_a_fused_kernel_are_on_its_device() -> None:
    model = nn.Linear(2, 2, device="meta")
    optimizer = build_optimizer(model, Recipe(optim=AdamW(lr=0.1)), 0.1)
    optimizer.param_groups[0]["fused"] = True  # as on an accelerator; PyTorch has no fused kernel for `meta`
    restore_optimizer(model, optimizer, {"weight/step": torch.tensor(7.0), "bias/step": torch.tensor(7.0)})
    assert optimizer.state[model.weight]["step"].device.type == "meta"
    assert optimizer.state[model.bias]["step"].device.type == "cpu"  # of a group that is not fused


def test_averaged_weights_are_used_where_they_exist_and_refused_where_not(shapes: Path, tmp_path: Path) -> None:
    averaged = run_training(tiny_config(shapes, ema=Ema(decay=0.5), schedule=Schedule(epochs=0.2)), tmp_path / "a")
    plain = run_training(tiny_config(shapes, schedule=Schedule(epochs=0.2)), tmp_path / "b")
    checkpoint = averaged.run.checkpoints.committed()[-1]
    tensors, used = weights_for_use(checkpoint, averaged=None)
    raw, not_used = weights_for_use(checkpoint, averaged=False)
    assert (used, not_used) == (True, False)
    assert any(not torch.equal(tensors[name], raw[name]) for name in raw)
    with pytest.raises(ConfigError, match="no averaged weights"):
        weights_for_use(plain.run.checkpoints.committed()[-1], averaged=True)


def test_one_weight_that_is_not_finite_is_noticed() -> None:
    model = nn.Linear(3, 3)
    assert all_finite(model)
    with torch.no_grad():
        model.bias[1] = float("inf")
    assert not all_finite(model)


def test_a_checkpoint_has_nothing_that_runs_as_code(shapes: Path, tmp_path: Path) -> None:
    """Elsewhere a checkpoint held an object that the safe loader refuses: `--resume` failed on its own files."""
    run = run_training(tiny_config(shapes, schedule=Schedule(epochs=0.1)), tmp_path).run
    assert {path.suffix for path in run.checkpoints.committed()[-1].path.iterdir()} == {".safetensors", ".json"}


_RESUMED_ON_RGPU = """
import json, sys
from pathlib import Path
import rgpu, torch
from tests.tiny_training import tiny_config
from vernier.config import Augment, Ema, Model, override, optimizers
from vernier.optim.kinds.lamb import Lamb
from vernier.engine.training.checkpoints.contents import (
    restore, tensor_files
)
from vernier.engine.training.checkpoints.writer import _copy_to_host, _fill_checkpoint
from vernier.engine.training.setup import prepare
from vernier.records.run import Progress
from vernier.store import CheckpointDir

config = override(tiny_config(
    Path(sys.argv[1]),
    model=Model(name="resnet14-small", width=8, drop_path=0.5),
    augment=Augment(crop="pad", mixup=0.2),
    optim=Lamb(lr=0.02, clip_norm=1.0),
    ema=Ema(decay=0.9),
), "machine.device", "rgpu")

def trained(start, stop, folder, *, save_at=None):
    torch.rgpu.manual_seed(start)  # whatever state the device's generator is in
    job = prepare(config, fresh=start == 0)
    if start:
        restore(CheckpointDir(start, folder), job.model, job.optimizer, job.average)
    batches = job.loader.batches(job.requests(start, stop))
    for step in range(start, stop):
        job.step(step, batches)
        if step + 1 == save_at:
            state = job.state(Progress(step=save_at))
            files = _copy_to_host(tensor_files(job.model, job.optimizer, job.average))
            _fill_checkpoint(folder, files, state)
    job.close()
    tensors = [*job.model.state_dict().values(), *job.average.tensors.values()]
    return [tensor.cpu().flatten().tolist() for tensor in tensors]

folder = Path(sys.argv[2])
print(json.dumps(trained(0, 5, folder, save_at=2) == trained(2, 5, folder)))
"""


@pytest.mark.slow
def test_a_resumed_run_on_a_device_that_queues_repeats_every_bit(
    shapes: Path, tmp_path: Path, on_rgpu: Callable[..., Any]
) -> None:
    """With stochastic depth and mixing, whatever the state of the device's own generator."""
    assert on_rgpu(_RESUMED_ON_RGPU, shapes, tmp_path) is True
