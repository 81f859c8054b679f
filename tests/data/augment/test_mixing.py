import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from vernier.config import Augment
from vernier.data.augment.mixing import _cutmix, _draw_mix, _draw_partners, mix_batch


def test_mixup_draws_follow_beta_and_do_not_depend_on_anything_else() -> None:
    draws = [_draw_mix(Augment(mixup=0.2), 1, step) for step in range(2000)]
    weights = np.array([d.weight for d in draws if d is not None and d.kind == "mixup"])
    assert len(weights) == 2000
    assert weights.mean() == pytest.approx(0.5, abs=0.03)
    assert weights.var() == pytest.approx(0.25 / (2 * 0.2 + 1), abs=0.01)
    assert _draw_mix(Augment(mixup=0.2), 1, 7) == _draw_mix(Augment(mixup=0.2), 1, 7)
    assert _draw_mix(Augment(), 1, 7) is None
    assert torch.equal(_draw_partners(1, 7, 0, 0, 50), _draw_partners(1, 7, 0, 0, 50))
    assert not torch.equal(_draw_partners(1, 7, 0, 0, 50), _draw_partners(1, 7, 1, 0, 50))


def test_mixup_and_cutmix_take_turns_by_chance() -> None:
    kinds = [d.kind for s in range(2000) if (d := _draw_mix(Augment(mixup=0.2, cutmix=1.0), 1, s)) is not None]
    assert kinds.count("cutmix") / 2000 == pytest.approx(0.5, abs=0.04)
    alone = [_draw_mix(Augment(cutmix=1.0), 1, step) for step in range(50)]
    assert {d.kind for d in alone if d is not None} == {"cutmix"}


@pytest.mark.parametrize(("centre", "share"), [((0.5, 0.5), 0.25), ((0.0, 0.0), 0.0625), ((0.99, 0.5), 0.125)])
def test_cutmix_pastes_a_box_and_weighs_labels_by_what_is_left(centre: tuple[float, float], share: float) -> None:
    images, labels = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 3, 16, 16), torch.arange(4)
    cut, mixed = _cutmix(images, labels, 0.75, centre, torch.tensor([1, 2, 3, 0]))
    pasted = (cut[0] == 1).float().mean().item()
    assert pasted == pytest.approx(share, abs=0.04)
    assert mixed.weight == pytest.approx(1 - pasted)
    assert set(cut[0].unique().tolist()) == {0.0, 1.0}
    assert mixed.second.tolist() == [1, 2, 3, 0]
    assert images[0].unique().tolist() == [0.0]


def test_a_batch_is_mixed_with_its_own_permutation_or_left_alone() -> None:
    images, labels = torch.randn(6, 3, 4, 4), torch.arange(6)
    same, nothing = mix_batch(images, labels, Augment(), seed=1, step=7, micro=0, rank=0)
    assert same is images
    assert nothing is None
    mixed, second = mix_batch(images, labels, Augment(mixup=0.2), seed=1, step=7, micro=0, rank=0)
    assert second is not None
    partners = _draw_partners(1, 7, 0, 0, 6)
    assert second.second.tolist() == partners.tolist()
    torch.testing.assert_close(mixed, second.weight * images + (1 - second.weight) * images[partners])


class _Program(TorchDispatchMode):
    """Operations with the shapes of tensors and the numbers of Python in them: what a lazy device compiles anew."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[object, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        flat = tree_flatten((args, kwargs or {}))[0]
        self.operations.append(
            (str(func), *(tuple(part.shape) if isinstance(part, torch.Tensor) else str(part) for part in flat))
        )
        return func(*args, **(kwargs or {}))


def test_mixing_is_the_same_program_in_every_step() -> None:
    """A box as a slice, or a weight as a number of Python, is another program each time."""
    images, labels, programs = torch.randn(6, 3, 16, 16), torch.arange(6), set()
    for step in range(12):
        with _Program() as program:
            mix_batch(images, labels, Augment(mixup=0.2, cutmix=1.0), seed=1, step=step, micro=0, rank=0)
        programs.add(tuple(program.operations))
    assert len(programs) == 2  # one of MixUp, one of CutMix


def test_the_box_is_cut_as_before_it_was_a_mask() -> None:
    """By slices: the same pixels, in the memory layout of the images."""
    images = torch.randn(5, 3, 20, 24).to(memory_format=torch.channels_last)
    partners = torch.tensor([3, 0, 4, 1, 2])
    for weight, centre in ((0.3, (0.1, 0.9)), (0.9, (0.5, 0.5)), (0.0, (0.4, 0.2)), (1.0, (0.3, 0.3))):
        mixed, labels = _cutmix(images, torch.arange(5), weight, centre, partners)
        half = 0.5 * math.sqrt(1 - weight)
        y, x, dy, dx = int(centre[0] * 20), int(centre[1] * 24), int(half * 20), int(half * 24)
        rows, columns = slice(max(0, y - dy), min(20, y + dy)), slice(max(0, x - dx), min(24, x + dx))
        expected = images.clone()
        expected[:, :, rows, columns] = images[partners][:, :, rows, columns]
        assert torch.equal(mixed, expected)
        assert mixed.is_contiguous(memory_format=torch.channels_last)
        assert float(labels.weight + labels.second_weight) == pytest.approx(1)
