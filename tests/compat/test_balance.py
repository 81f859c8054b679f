"""Classes with different numbers of images: weights, focal loss, balanced sampling, and what is reported by class."""

import itertools
import random
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.conftest import Done, only_run
from tests.integration.test_resume import _start_and_kill, _state
from tests.plain_loop import plain_losses
from tests.refusals import config_error_of, names_given
from tests.tiny_training import events_of
from vernier.compat.balance import balanced_order
from vernier.config import Recipe, config_from_tree, override
from vernier.data.loading.order import TrainOrder
from vernier.data.sources.folder import FolderSource
from vernier.errors import ConfigError
from vernier.lab.finetuning.survey import recommend_balancing
from vernier.records.events import StepEvent
from vernier.store import RunDir

Runner = Callable[..., Done]
COUNTS = {"circle": 24, "cross": 6, "star": 2}


@pytest.fixture
def rare(shapes: Path, tmp_path: Path) -> Path:
    """24, 6 and 2 training images of three classes."""
    root = tmp_path / "rare"
    for split in ("train", "val"):
        folders = sorted((shapes / split).iterdir())
        for (name, count), start in zip(COUNTS.items(), itertools.count()):
            (root / split / name).mkdir(parents=True)
            images = [p for folder in folders[start::3] for p in sorted(folder.iterdir())]
            for image in images[: count if split == "train" else 5]:
                (root / split / name / f"{image.parent.name}-{image.name}").write_bytes(image.read_bytes())
    return root


def _args(rare: Path, tiny: list[str], out: Path, *more: str) -> list[str]:
    settings = ("--set", "augment.mixup=0", "--set", "loss.label_smoothing=0", "--set", "limits.log_every_steps=1")
    return [*tiny, *settings, "--data", str(rare), "--batch", "8", "--out", str(out), "--lr", "0.02", *more]


def _plain(kind: str, labels: torch.Tensor) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The same losses, written as their papers have them."""
    n = torch.tensor([24.0, 6.0, 2.0])
    weights = {"auto": n.sum() / (3 * n), "1,2,4": torch.tensor([1.0, 2.0, 4.0])}.get(kind)

    def loss(logits: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        p = torch.exp(logits) / torch.exp(logits).sum(1, keepdim=True)
        p = p[torch.arange(len(truth)), truth]
        if kind == "focal":
            return (-((1 - p) ** 1.5) * torch.log(p)).mean()
        assert weights is not None
        return (weights[truth] * -torch.log(p)).mean()

    return loss


@pytest.mark.parametrize("kind", ["auto", "1,2,4", "focal"])
def test_losses_of_a_run_are_those_of_a_plain_loop(
    vernier_here: Runner, rare: Path, tiny: list[str], tmp_path: Path, kind: str
) -> None:
    loss = ("--loss", "focal", "--set", "loss.focal_gamma=1.5")
    chosen = loss if kind == "focal" else ("--set", f"loss.class_weights={kind}")
    done = vernier_here("train", *_args(rare, tiny, tmp_path / "out", *chosen, "--steps", "6"))
    assert done.code == 0, done.err
    run = RunDir(only_run(tmp_path / "out"))
    events = events_of(run, StepEvent)
    plain = plain_losses(
        config_from_tree(run.read_config()), range(6), lambda step: events[step].lr, _plain(kind, torch.empty(0))
    )
    assert [e.loss for e in events] == pytest.approx(plain, rel=1e-5)


def test_weights_do_not_depend_on_how_a_batch_is_divided(
    vernier_here: Runner, rare: Path, tiny: list[str], tmp_path: Path
) -> None:
    losses = []
    for parts in ("1", "4"):
        settings = (
            "--set",
            "loss.class_weights=auto",
            "--set",
            "ema.decay=0",
            "--set",
            f"machine.accumulation={parts}",
        )
        out = tmp_path / parts
        assert vernier_here("train", *_args(rare, tiny, out, *settings, "--steps", "1")).code == 0
        losses.append(events_of(RunDir(only_run(out)), StepEvent)[0].loss)
    # Batch norm sees other statistics, so not the same bits; a mean over weights would be far off.
    assert losses[0] == pytest.approx(losses[1], rel=0.15)


def _order(rare: Path, **changes: int) -> TrainOrder:
    source = FolderSource(rare / "train")
    plain = TrainOrder(samples=len(source), seed=3, global_batch=8, **changes)
    return balanced_order(plain, source, Recipe())


def test_balanced_sampling_shows_every_class_equally_often_and_is_a_function_of_position(rare: Path) -> None:
    order = _order(rare)
    epoch = np.concatenate([order.indices(5, step, 0) for step in range(order.steps_per_epoch)])
    labels = FolderSource(rare / "train").labels[epoch % 32]
    assert np.abs(np.bincount(labels) - 32 / 3).max() < 1
    # Every image of a rare class before any of them again, and every copy of its own.
    assert len(set(epoch.tolist())) == len(epoch)
    star = epoch[labels == 2] % 32
    assert np.bincount(star)[30:].tolist() in ([5, 5], [6, 5], [5, 6])
    # Any position alone, and other processes, give the same.
    assert order.indices(5, 2, 0).tolist() == _order(rare).indices(5, 2, 0).tolist() == epoch[16:24].tolist()
    shared = [_order(rare, world=4, rank=rank).indices(5, 2, 0).tolist() for rank in range(4)]
    assert sorted(itertools.chain(*shared)) == sorted(epoch[16:24].tolist())
    assert order.indices(6, 2, 0).tolist() != epoch[16:24].tolist()


@pytest.mark.slow
def test_balanced_sampling_with_weights_is_bit_identical_after_kills(
    vernier: Runner, rare: Path, tiny: list[str], tmp_path: Path
) -> None:
    settings = ("--set", "data.sampling=balanced", "--set", "loss.class_weights=auto", "--loss", "focal")
    settings += ("--set", "checkpoint.every_steps=2", "--steps", "24")
    reference = vernier("train", *_args(rare, tiny, tmp_path / "reference", *settings))
    assert reference.code == 0, reference.err
    out, dice, kills = tmp_path / "killed", random.Random(2), 0
    for _ in range(3):
        moment = dice.randrange(1, 8), dice.random() * 0.05
        kills += _start_and_kill(_args(rare, tiny, out, *settings), out, *moment, signal.SIGKILL) == -signal.SIGKILL
    assert kills >= 2
    assert vernier("train", *_args(rare, tiny, out, *settings)).code == 0
    killed = [p for p in out.iterdir() if list((p / "checkpoints").glob("step-*"))]
    assert _state(sorted(killed)[-1]) == _state(only_run(tmp_path / "reference"))


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        (["loss.class_weights=1,2"], "loss.class_weights"),
        (["loss.class_weights=1,2,zero"], "loss.class_weights"),
        (["loss.class_weights=1,0,2"], "loss.class_weights"),
        (["loss.class_weights=auto", "loss.kind=bce"], "loss.class_weights loss.kind"),
        (["data.sampling=balanced", "data.shuffle_shards=2"], "data.sampling data.shuffle_shards"),
    ],
)
def test_what_cannot_be_balanced_is_refused(
    rare: Path, tiny: list[str], tmp_path: Path, settings: list[str], given: str
) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    error = config_error_of("train", *_args(rare, tiny, tmp_path / "out", *words))
    assert names_given(error) == given
    assert not (tmp_path / "out").exists()
    if settings == ["loss.class_weights=1,0,2"]:
        assert "the weight of cross is" in str(error)


def test_a_detector_has_no_classes_to_balance() -> None:
    assert (
        names_given(config_error_of("train", "ssd-shapes-quick", "--set", "data.sampling=balanced")) == "data.sampling"
    )
    assert names_given(config_error_of("train", "ssd-shapes-quick", "--loss", "focal")) == "loss.kind"


def test_inspect_and_finetune_recommend_it_with_the_numbers(vernier_here: Runner, rare: Path, tmp_path: Path) -> None:
    assert recommend_balancing(("a", "b"), (10, 9)) == ""
    inspected = vernier_here("data", "inspect", str(rare))
    assert "24 images of circle, 2 of star" in inspected.out
    assert "data.sampling=balanced" in inspected.out
    planned = vernier_here("finetune", str(rare), "--explain")
    assert planned.code == 0, planned.err
    assert "24 images of circle, 2 of star" in planned.out + planned.err
    chosen = vernier_here("finetune", str(rare), "--explain", "--set", "data.sampling=balanced")
    assert "24 images of circle" not in chosen.out + chosen.err


def test_smoothing_and_focal_loss_work_together(rare: Path) -> None:
    from functools import partial

    from vernier.compat.balance import ClassLoss
    from vernier.tasks.classification import _cross_entropy

    loss = override(config_from_tree({}), "loss.label_smoothing", 0.1)
    loss = override(override(loss, "loss.kind", "focal"), "loss.focal_gamma", 0.0).recipe.loss
    each = partial(_cross_entropy, loss=loss, reduction="none")
    logits, labels = torch.randn(8, 3, requires_grad=True), torch.arange(8) % 3
    value = ClassLoss(loss, FolderSource(rare / "train"), each)(logits, labels)
    assert value.item() == pytest.approx(F.cross_entropy(logits, labels, label_smoothing=0.1).item())
    sure = torch.tensor([[60.0, 0.0, 0.0]], requires_grad=True)
    small = override(config_from_tree({}), "loss.kind", "focal")
    small = override(small, "loss.focal_gamma", 0.5).recipe.loss
    ClassLoss(small, FolderSource(rare / "train"), partial(_cross_entropy, loss=small, reduction="none"))(
        sure, torch.tensor([0])
    ).backward()
    assert sure.grad is not None
    assert bool(sure.grad.isfinite().all())
    with pytest.raises(ConfigError):
        ClassLoss(override(config_from_tree({}), "loss.kind", "bce").recipe.loss, FolderSource(rare / "train"), each)
