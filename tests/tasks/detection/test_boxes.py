"""Boxes against slow and literal versions: coding, matching, suppression, and what is kept of a whole image."""

import itertools
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
from vernier.tasks.detection import boxes
from vernier.tasks.detection.boxes import _encode, _hardest, _match, _to_corners, detection_loss


def random_boxes(generator: torch.Generator, *shape: int, grid: int = 0) -> Tensor:
    """Corners in 0..1; on a coarse grid, where overlaps and scores tie."""
    points = torch.rand(*shape, 2, 2, generator=generator)
    if grid:
        points = (points * grid).round() / grid
    low, high = points.min(-2).values, points.max(-2).values
    return torch.cat([low, high + (1 / grid if grid else 1e-3)], dim=-1)


def slow_iou(one: Tensor, other: Tensor) -> float:
    wide = (torch.minimum(one[2], other[2]) - torch.maximum(one[0], other[0])).clamp(min=0)
    high = (torch.minimum(one[3], other[3]) - torch.maximum(one[1], other[1])).clamp(min=0)
    areas = (one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1])
    return float(wide * high / (areas - wide * high))


seeds = st.integers(0, 2**31 - 1)


# ---- coding ---------------------------------------------------------------------------------------------------------


def test_overlap_by_hand() -> None:
    one = torch.tensor([[0.0, 0.0, 2.0, 2.0], [5.0, 5.0, 5.0, 7.0]])
    other = torch.tensor([[1.0, 0.0, 3.0, 2.0], [0.0, 0.0, 2.0, 2.0], [9.0, 9.0, 10.0, 10.0], [5.0, 5.0, 5.0, 7.0]])
    assert boxes.iou(one, other)[0].tolist() == pytest.approx([1 / 3, 1.0, 0.0, 0.0])
    assert boxes.iou(one, other)[1].tolist() == [0.0] * 4


def test_coding_by_hand() -> None:
    anchor = torch.tensor([[0.5, 0.5, 0.2, 0.4]])
    shifted = boxes._to_corners(torch.tensor([[0.52, 0.46, 0.2, 0.4]]))
    assert boxes._encode(shifted, anchor)[0].tolist() == pytest.approx([1.0, -1.0, 0.0, 0.0], abs=1e-5)
    grown = boxes._to_corners(torch.tensor([[0.5, 0.5, 0.2 * 2.718281828, 0.4]]))
    assert boxes._encode(grown, anchor)[0].tolist() == pytest.approx([0.0, 0.0, 5.0, 0.0], abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_decoding_undoes_encoding(seed: int) -> None:
    dice = torch.Generator().manual_seed(seed)
    anchors = boxes._to_centres(random_boxes(dice, 50)).clamp(min=0.01)
    objects = random_boxes(dice, 3, 50)
    torch.testing.assert_close(boxes._decode(boxes._encode(objects, anchors), anchors), objects, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(boxes._to_corners(boxes._to_centres(objects)), objects)


def test_a_default_box_codes_itself_as_nothing() -> None:
    anchors = make_anchors(models.build("ssd-small", num_classes=2).levels)
    assert boxes._encode(boxes._to_corners(anchors), anchors).abs().max() < 1e-4


# ---- matching -------------------------------------------------------------------------------------------------------


def slow_match(
    ltrb: Tensor, classes: Tensor, valid: Tensor, anchors: Tensor, at_least: bool
) -> tuple[list[list[float]], list[int]]:
    """One image, one default box at a time, in the words of the rule."""
    corners = boxes._to_corners(anchors)
    objects = [i for i in range(len(ltrb)) if valid[i]]
    overlaps = {(i, a): slow_iou(ltrb[i], corners[a]) for i in objects for a in range(len(anchors))}
    owner: dict[int, int] = {}
    for i in objects:  # the later overwrites
        owner[max(range(len(anchors)), key=lambda a, i=i: (overlaps[i, a], -a))] = i
    for a in range(len(anchors)):
        if a in owner or not objects:
            continue
        best = max(objects, key=lambda i: (overlaps[i, a], -i))
        if overlaps[best, a] > 0.5 or (at_least and overlaps[best, a] == 0.5):
            owner[a] = best
    box = [(ltrb[owner[a]] if a in owner else corners[a]).tolist() for a in range(len(anchors))]
    return box, [int(classes[owner[a]]) if a in owner else 0 for a in range(len(anchors))]


@settings(max_examples=40, deadline=None)
@given(seeds, st.booleans(), st.sampled_from([0, 4]))
def test_matching_is_the_slow_rule(seed: int, at_least: bool, grid: int) -> None:
    dice = torch.Generator().manual_seed(seed)
    ltrb, valid = random_boxes(dice, 3, 6, grid=grid), torch.rand(3, 6, generator=dice) < 0.6
    classes = torch.randint(1, 5, (3, 6), generator=dice)
    anchors = boxes._to_centres(random_boxes(dice, 20, grid=grid))
    rule = "at-least" if at_least else "above"
    matched, target = boxes._match(ltrb, classes, valid, anchors, rule, 0.5)
    for n in range(3):
        box, kind = slow_match(ltrb[n], classes[n], valid[n], anchors, at_least)
        assert target[n].tolist() == kind
        torch.testing.assert_close(matched[n], torch.tensor(box))


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_objects_learned_on_real_default_boxes(seed: int) -> None:
    dice = torch.Generator().manual_seed(seed)
    anchors = make_anchors(models.build("ssd-small", num_classes=9).levels)
    ltrb, classes = random_boxes(dice, 2, 8), torch.arange(1, 9).repeat(2, 1)
    valid = torch.rand(2, 8, generator=dice) < 0.7
    matched, target = boxes._match(ltrb, classes, valid, anchors)
    corners = boxes._to_corners(anchors)
    for n in range(2):
        favourites = boxes.iou(ltrb[n][valid[n]], corners).argmax(1)
        learned = set(target[n].tolist()) - {0}
        assert learned <= set(classes[n][valid[n]].tolist())
        assert (target[n][favourites] > 0).all()  # nobody's best box is background
        assert len(learned) >= len(set(favourites.tolist()))
        assert torch.equal(matched[n][target[n] == 0], corners[target[n] == 0])
        assert torch.equal(matched[n][target[n] > 0], ltrb[n][target[n][target[n] > 0] - 1])


def test_the_later_of_two_objects_has_the_box_both_want() -> None:
    anchors = torch.tensor([[0.5, 0.5, 0.4, 0.4], [0.1, 0.1, 0.1, 0.1]])
    ltrb = torch.tensor([[[0.3, 0.3, 0.7, 0.7], [0.3, 0.3, 0.7, 0.5]]])  # overlaps 1 and 0.5 with the first
    for order in ([0, 1], [1, 0]):
        _, target = boxes._match(ltrb[:, order], torch.tensor([[1, 2]]), torch.ones(1, 2, dtype=torch.bool), anchors)
        assert target.tolist() == [[2, 0]]


def test_exactly_half_an_overlap_is_for_the_rule_to_say() -> None:
    anchors = torch.tensor([[0.5, 0.5, 0.5, 1.0], [0.5, 0.5, 0.5, 0.5]])
    ltrb, classes = torch.tensor([[[0.25, 0.0, 0.75, 1.0]]]), torch.tensor([[3]])
    valid = torch.ones(1, 1, dtype=torch.bool)
    assert boxes._match(ltrb, classes, valid, anchors, "above", 0.5)[1].tolist() == [[3, 0]]
    assert boxes._match(ltrb, classes, valid, anchors, "at-least", 0.5)[1].tolist() == [[3, 3]]


def test_empty_images_and_boxes_without_area_are_background() -> None:
    anchors = torch.tensor([[0.5, 0.5, 0.5, 0.5]])
    ltrb = torch.tensor([[[0.0, 0.0, 0.0, 0.0]], [[0.5, 0.5, 0.5, 0.9]]])
    valid = torch.tensor([[False], [True]])
    for threshold in (0.5, 0.0):
        matched, target = boxes._match(ltrb, torch.ones(2, 1, dtype=torch.long), valid, anchors, "at-least", threshold)
        assert target.tolist() == [[0], [0]]
        assert torch.isfinite(boxes._encode(matched, anchors)).all()


# ---- suppression ----------------------------------------------------------------------------------------------------


def slow_nms(ltrb: Tensor, scores: Tensor, threshold: float) -> list[int]:
    """Greedy, one box at a time."""
    kept: list[int] = []
    overlaps, values = boxes.iou(ltrb, ltrb).tolist(), scores.tolist()
    for i in sorted(range(len(values)), key=lambda i: (-values[i], i)):
        if all(overlaps[k][i] < threshold for k in kept):
            kept.append(i)
    return kept


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(0, 40), st.integers(1, 4), st.sampled_from([0.3, 0.5, 0.75]), st.sampled_from([0, 3]))
def test_suppression_is_the_slow_greedy(seed: int, count: int, groups: int, threshold: float, grid: int) -> None:
    dice = torch.Generator().manual_seed(seed)
    ltrb, scores = random_boxes(dice, count, grid=grid), torch.rand(count, generator=dice)
    if grid:
        scores = (scores * 5).round() / 5  # ties
    group = torch.randint(0, groups, (count,), generator=dice)
    kept = boxes._nms(ltrb, scores, group, threshold)
    for g in range(groups):
        rows = (group == g).nonzero().flatten()
        wanted = rows[slow_nms(ltrb[rows], scores[rows], threshold)].tolist()
        assert sorted(wanted) == (kept & (group == g)).nonzero().flatten().tolist()


def test_suppression_goes_down_a_long_chain() -> None:
    """Each box suppresses only the next: every other one stays, however many rounds that takes."""
    left = torch.arange(60) * 0.2
    ltrb = torch.stack([left, torch.zeros(60), left + 1, torch.ones(60)], dim=1)
    kept = boxes._nms(ltrb, torch.linspace(1, 0.1, 60), torch.zeros(60, dtype=torch.long), 0.6)
    assert kept.tolist() == [True, False] * 30


def test_groups_of_many_rounds() -> None:
    dice = torch.Generator().manual_seed(5)
    group = torch.randint(0, 3, (600,), generator=dice) ** 2
    ltrb, scores = random_boxes(dice, 600), torch.rand(600, generator=dice)
    assert (group == 4).sum() > 4 * boxes._ROUND
    for threshold in (0.5, 0.95):
        kept = boxes._nms(ltrb, scores, group, threshold)
        for g in (0, 1, 4):
            rows = (group == g).nonzero().flatten()
            wanted = rows[slow_nms(ltrb[rows], scores[rows], threshold)].tolist()
            assert sorted(wanted) == (kept & (group == g)).nonzero().flatten().tolist()


# ---- a whole image --------------------------------------------------------------------------------------------------


def slow_detect(
    offsets: Tensor, logits: Tensor, anchors: Tensor, chosen: Detect
) -> list[tuple[float, int, list[float]]]:
    """One image, class by class: (score, class, ltrb), best first."""
    ltrb, scores = boxes._decode(offsets, anchors), logits.T.contiguous().softmax(0).T
    found = []
    for kind in range(1, logits.shape[1]):
        rows = (scores[:, kind] > chosen.min_score).nonzero().flatten().tolist()
        rows = sorted(rows, key=lambda a, kind=kind: (-float(scores[a, kind]), a))[: chosen.max_per_class]
        kept = [rows[i] for i in slow_nms(ltrb[rows], scores[rows, kind], chosen.nms_iou)]
        found += [(float(scores[a, kind]), kind, a) for a in kept]
    found.sort(key=lambda f: (-f[0], f[1], f[2]))
    return [(score, kind, ltrb[a].tolist()) for score, kind, a in found[: chosen.max_detections]]


@settings(max_examples=30, deadline=None)
@given(
    seeds,
    st.sampled_from([0.3, 3.0]),
    st.sampled_from([0.0, 0.05, 0.3]),
    st.sampled_from([1, 3, 50]),
    st.sampled_from([1, 4, 60]),
    st.booleans(),
)
def test_detection_is_the_slow_one(
    seed: int, spread: float, score: float, per_class: int, most: int, tied: bool
) -> None:
    """Few boxes wanted of many candidates, so that looking at the best first is put to the test as well."""
    dice = torch.Generator().manual_seed(seed)
    anchors = boxes._to_centres(random_boxes(dice, 30))
    offsets, logits = torch.randn(3, 30, 4, generator=dice), torch.randn(3, 30, 5, generator=dice) * spread
    if tied:
        logits = logits.round()
        offsets = offsets.round()
    chosen = Detect(min_score=score, max_per_class=per_class, max_detections=most)
    found = boxes.detect(offsets, logits, anchors, chosen)
    for n in range(3):
        wanted = slow_detect(offsets[n], logits[n], anchors, chosen)
        count = int(found.count[n])
        assert count == len(wanted)
        assert found.classes[n, :count].tolist() == [kind for _, kind, _ in wanted]
        torch.testing.assert_close(found.scores[n, :count], torch.tensor([s for s, _, _ in wanted]))
        torch.testing.assert_close(found.ltrb[n, :count], torch.tensor([b for _, _, b in wanted]).reshape(-1, 4))
        assert not found.classes[n, count:].any()
        assert not found.scores[n, count:].any()


def test_looking_on_when_the_best_candidates_all_suppress_each_other() -> None:
    """40 near-identical strong boxes hide one another; the weak ones apart must still be found."""
    anchors = torch.tensor([[0.2, 0.2, 0.1, 0.1]] * 40 + [[0.1 + 0.2 * i, 0.8, 0.1, 0.1] for i in range(4)])
    logits = torch.zeros(2, 44, 3)
    logits[0, :40, 1], logits[0, 40:, 1], logits[1, :, 0] = 6.0, 2.0, 9.0
    found = boxes.detect(torch.zeros(2, 44, 4), logits, anchors, Detect(max_detections=5))
    assert found.count.tolist() == [5, 0]
    assert found.ltrb[0, 0].tolist() == pytest.approx([0.15, 0.15, 0.25, 0.25])
    assert sorted(found.ltrb[0, 1:, 0].tolist()) == pytest.approx([0.05, 0.25, 0.45, 0.65])


def test_an_image_alone_gives_what_it_gives_in_a_batch() -> None:
    torch.manual_seed(3)
    anchors = make_anchors(models.build("ssd-small", num_classes=6).levels)
    offsets, logits = torch.randn(4, len(anchors), 4), torch.randn(4, len(anchors), 6) * 2
    together = boxes.detect(offsets, logits, anchors, Detect())
    for n, part in itertools.product(range(4), ("ltrb", "scores", "classes", "count")):
        alone = boxes.detect(offsets[n : n + 1], logits[n : n + 1], anchors, Detect())
        assert torch.equal(getattr(alone, part)[0], getattr(together, part)[n])


def test_a_contested_box_goes_to_the_last_or_the_first_object() -> None:
    """Habana's and Google's TensorFlow takes the first of two objects with the same best default box."""
    anchors = torch.tensor([[0.5, 0.5, 0.4, 0.4], [0.9, 0.9, 0.1, 0.1]])
    objects = boxes._to_corners(torch.tensor([[[0.5, 0.5, 0.3, 0.3], [0.5, 0.5, 0.35, 0.35], [0.0, 0.0, 0.0, 0.0]]]))
    labels, valid = torch.tensor([[3, 5, 0]]), torch.tensor([[True, True, False]])
    assert boxes._match(objects, labels, valid, anchors)[1].tolist() == [[5, 0]]
    ltrb, classes = boxes._match(objects, labels, valid, anchors, contested="first")
    assert classes.tolist() == [[3, 0]]
    assert torch.equal(ltrb[0, 0], objects[0, 0])


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
        boxes, classes = (part[0] for part in _match(ltrb, kinds, valid, anchors))
        wanted = _encode(boxes, anchors)
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
    targets = targets_of([(_to_corners(anchors[0]).tolist(), 2)])
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
    assert _hardest(losses, positive, 2.0).tolist() == [
        [False, False, True, False, True],
        [False, False, True, True, False],
    ]
    assert _hardest(losses, positive, 1.0)[0].tolist() == [False, False, True, False, False]  # the first of equals
    assert not _hardest(losses, torch.zeros_like(positive), 3.0).any()


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
