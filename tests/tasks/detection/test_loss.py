"""The detection loss against MLPerf's, written out image by image."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vernier import models
from vernier.config import Detect
from vernier.data.loading.targets import BoxTargets
from vernier.models.ssd import make_anchors
from vernier.tasks.detection.boxes import encode, match, to_corners
from vernier.tasks.detection.loss import detection_loss, hardest


def targets_of(*images: list[tuple[list[float], int]]) -> BoxTargets:
    return BoxTargets.pad(
        [torch.tensor([box for box, _ in objects]).reshape(-1, 4) for objects in images],
        [torch.tensor([kind for _, kind in objects], dtype=torch.int64) for objects in images],
        samples=range(len(images)),
        sizes=[(100, 100)] * len(images),
    )


def random_targets(dice: torch.Generator, images: int, classes: int) -> BoxTargets:
    counts = torch.randint(0, 5, (images,), generator=dice).tolist()
    corners = [torch.rand(count, 2, 2, generator=dice).sort(dim=1).values.reshape(-1, 4) for count in counts]
    corners = [boxes + torch.tensor([0.0, 0.0, 0.02, 0.02]) for boxes in corners]
    kinds = [torch.randint(1, classes, (count,), generator=dice) for count in counts]
    return BoxTargets.pad(corners, kinds, samples=range(images), sizes=[(1, 1)] * images)


def slow_loss(offsets: Tensor, logits: Tensor, targets: BoxTargets, anchors: Tensor) -> Tensor:
    """Box by box: (smooth L1 of positives + cross-entropy of positives and hardest negatives) / positives."""
    images = []
    for n in range(len(offsets)):
        ltrb, kinds, valid = (part[n : n + 1] for part in (targets.ltrb, targets.classes, targets.valid))
        boxes, classes = (part[0] for part in match(ltrb, kinds, valid, anchors))
        wanted = encode(boxes, anchors)
        positives = [a for a in range(len(anchors)) if classes[a] > 0]
        if not positives:
            images.append(offsets.sum() * 0)
            continue
        box = offsets.new_zeros(())
        for a in positives:
            for c in range(4):
                d = (offsets[n, a, c] - wanted[a, c]).abs()
                box = box + (0.5 * d * d if d < 1 else d - 0.5)
        entropy = [torch.logsumexp(logits[n, a], 0) - logits[n, a, classes[a]] for a in range(len(anchors))]
        others = sorted(
            (a for a in range(len(anchors)) if a not in positives), key=lambda a: -float(entropy[a].detach())
        )
        chosen = positives + others[: 3 * len(positives)]
        images.append((box + torch.stack([entropy[a] for a in chosen]).sum()) / len(positives))
    return torch.stack(images).mean()


def a_problem(seed: int) -> tuple[Tensor, Tensor, BoxTargets, Tensor]:
    dice = torch.Generator().manual_seed(seed)
    anchors = torch.rand(40, 4, generator=dice) * 0.4 + 0.1
    offsets, logits = torch.randn(3, 40, 4, generator=dice), torch.randn(3, 40, 6, generator=dice) * 2
    return offsets, logits, random_targets(dice, 3, 6), anchors


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31 - 1))
def test_loss_is_the_slow_one(seed: int) -> None:
    offsets, logits, targets, anchors = a_problem(seed)
    fast = detection_loss(offsets, logits, targets, anchors, Detect())
    torch.testing.assert_close(fast, slow_loss(offsets, logits, targets, anchors), rtol=1e-4, atol=1e-5)


def test_gradients_are_the_slow_ones() -> None:
    offsets, logits, targets, anchors = a_problem(11)
    assert targets.valid.any()
    grads = []
    for loss in (
        lambda o, c: detection_loss(o, c, targets, anchors, Detect()),
        lambda o, c: slow_loss(o, c, targets, anchors),
    ):
        leaves = offsets.clone().requires_grad_(), logits.clone().requires_grad_()
        grads.append(torch.autograd.grad(loss(*leaves), leaves))
    for fast, slow in zip(*grads, strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-6)
        assert fast.abs().sum() > 0


def test_by_hand() -> None:
    """One positive, offsets off by 0.5 and 2, equal logits over 3 classes, and 3 of 4 background boxes."""
    anchors = torch.tensor([[0.5, 0.5, 0.2, 0.2]] + [[0.1, 0.1, 0.1, 0.1]] * 4)
    targets = targets_of([(to_corners(anchors[0]).tolist(), 2)])
    offsets = torch.zeros(1, 5, 4)
    offsets[0, 0] = torch.tensor([0.5, 2.0, 0.0, 0.0])
    offsets[0, 3] = 7.0  # no object, no box term
    loss = detection_loss(offsets, torch.zeros(1, 5, 3), targets, anchors, Detect())
    assert float(loss) == pytest.approx(0.125 + 1.5 + (1 + 3) * math.log(3), rel=1e-4)
    fewer = detection_loss(offsets, torch.zeros(1, 5, 3), targets, anchors, Detect(negatives=1.5))
    assert float(fewer) == pytest.approx(0.125 + 1.5 + (1 + 1) * math.log(3), rel=1e-4)


def test_an_image_without_boxes_is_safe_and_counts_in_the_mean() -> None:
    anchors = make_anchors(models.build("ssd-small", num_classes=4).levels)
    one, none = [([0.2, 0.2, 0.5, 0.5], 1)], []
    torch.manual_seed(0)
    offsets, logits = torch.randn(1, len(anchors), 4).requires_grad_(), torch.randn(1, len(anchors), 4)
    empty = detection_loss(offsets, logits, targets_of(none), anchors, Detect())
    assert float(empty.detach()) == 0.0
    (gradient,) = torch.autograd.grad(empty, offsets)
    assert not gradient.any()
    both = detection_loss(offsets.expand(2, -1, -1), logits.expand(2, -1, -1), targets_of(one, none), anchors, Detect())
    alone = detection_loss(offsets, logits, targets_of(one), anchors, Detect())
    assert float(both.detach()) == pytest.approx(float(alone.detach()) / 2, rel=1e-5)


def test_padding_does_not_matter() -> None:
    offsets, logits, targets, anchors = a_problem(3)
    wide = BoxTargets(
        torch.cat([targets.ltrb, torch.rand(3, 8, 4)], 1),
        torch.cat([targets.classes, torch.ones(3, 8, dtype=torch.int64)], 1),
        torch.cat([targets.valid, torch.zeros(3, 8, dtype=torch.bool)], 1),
        targets.samples,
        targets.sizes,
    )
    assert torch.equal(
        detection_loss(offsets, logits, targets, anchors, Detect()),
        detection_loss(offsets, logits, wide, anchors, Detect()),
    )


def test_hardest_never_takes_a_positive() -> None:
    losses = torch.tensor([[9.0, 1.0, 3.0, 0.0, 3.0], [5.0, 4.0, 3.0, 2.0, 1.0]])
    positive = torch.tensor([[True, False, False, False, False], [True, True, False, False, True]])
    assert hardest(losses, positive, 2.0).tolist() == [
        [False, False, True, False, True],
        [False, False, True, True, False],
    ]
    assert hardest(losses, positive, 1.0)[0].tolist() == [False, False, True, False, False]  # the first of equals
    assert not hardest(losses, torch.zeros_like(positive), 3.0).any()


def test_computed_in_float32_under_autocast() -> None:
    offsets, logits, targets, anchors = a_problem(4)
    coarse = offsets.bfloat16(), logits.bfloat16()
    wanted = detection_loss(coarse[0].float(), coarse[1].float(), targets, anchors, Detect())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = detection_loss(*coarse, targets, anchors, Detect())
    assert loss.dtype == torch.float32
    assert torch.equal(loss, wanted)


def test_a_small_detector_learns_eight_images_by_heart() -> None:
    torch.manual_seed(0)
    model = models.build("ssd-small", num_classes=3, width=8, image_px=64).train()
    images = torch.randn(8, 3, 64, 64)
    targets = targets_of(
        *(
            [([0.1, 0.1, 0.4, 0.4], 1), ([0.5, 0.4, 0.9, 0.8], 2)] if n % 2 else [([0.3, 0.3, 0.7, 0.6], 2)]
            for n in range(8)
        )
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    losses = []
    for _ in range(60):
        loss = detection_loss(*model(images), targets, make_anchors(model.levels), Detect())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 * losses[0]
