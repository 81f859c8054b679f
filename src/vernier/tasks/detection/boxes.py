"""Boxes: overlap, the coding SSD learns, which default box learns which object, and which predicted boxes are kept.

Pure torch on whole batches, on whatever device the tensors are; no loop over images, classes or boxes. Boxes are `ltrb`
(left, top, right, bottom) or, of default boxes (`anchors`), centre x, centre y, width, height; shares of the image, 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vernier.config import Detect

CENTRE_VARIANCE, SIZE_VARIANCE = 0.1, 0.2
_ROUND = 32  # boxes of a group that settle at once which of them are kept
_FIRST_LOOK = 4  # times the boxes wanted are looked at before all are
_BINS = 4096  # of scores, to find the best without sorting


def to_corners(centres: Tensor) -> Tensor:
    """[..., 4] centre x, centre y, width, height to left, top, right, bottom."""
    middle, half = centres[..., :2], centres[..., 2:] / 2
    return torch.cat([middle - half, middle + half], dim=-1)


def to_centres(ltrb: Tensor) -> Tensor:
    """[..., 4] left, top, right, bottom to centre x, centre y, width, height."""
    first, last = ltrb[..., :2], ltrb[..., 2:]
    return torch.cat([(first + last) / 2, last - first], dim=-1)


def area(ltrb: Tensor) -> Tensor:
    """[...] of [..., 4]; negative sides count as none."""
    return (ltrb[..., 2] - ltrb[..., 0]).clamp(min=0) * (ltrb[..., 3] - ltrb[..., 1]).clamp(min=0)


def iou(one: Tensor, other: Tensor) -> Tensor:
    """Intersection over union of every pair, [..., M, A] for ltrb [..., M, 4] and [..., A, 4]; 0 between empty boxes."""
    left, top, right, bottom = one[..., :, None, :].unbind(-1)
    other_left, other_top, other_right, other_bottom = other[..., None, :, :].unbind(-1)
    wide = torch.minimum(right, other_right).sub_(torch.maximum(left, other_left)).clamp_(min=0)
    high = torch.minimum(bottom, other_bottom).sub_(torch.maximum(top, other_top)).clamp_(min=0)
    shared = wide.mul_(high)
    union = (area(one)[..., :, None] + area(other)[..., None, :]).sub_(shared)
    return shared.div_(union.clamp_(min=torch.finfo(union.dtype).tiny))


def encode(ltrb: Tensor, anchors: Tensor) -> Tensor:
    """Boxes [..., A, 4] as offsets from the default boxes: what the network is to say."""
    boxes = to_centres(ltrb)
    centre = (boxes[..., :2] - anchors[..., :2]) / anchors[..., 2:] / CENTRE_VARIANCE
    return torch.cat([centre, (boxes[..., 2:] / anchors[..., 2:]).log() / SIZE_VARIANCE], dim=-1)


def decode(offsets: Tensor, anchors: Tensor) -> Tensor:
    """Offsets [..., A, 4] back to ltrb, which may reach out of the image."""
    centre = offsets[..., :2] * CENTRE_VARIANCE * anchors[..., 2:] + anchors[..., :2]
    return to_corners(torch.cat([centre, (offsets[..., 2:] * SIZE_VARIANCE).exp() * anchors[..., 2:]], dim=-1))


# ---- which default box learns which object --------------------------------------------------------------------------


def match(
    ltrb: Tensor,
    classes: Tensor,
    valid: Tensor,
    anchors: Tensor,
    rule: Literal["above", "at-least"] = "above",
    threshold: float = 0.5,
) -> tuple[Tensor, Tensor]:
    """What every default box is to learn: ltrb [N, A, 4] and class [N, A], 0 for background.

    Every object of [N, M] first takes the default box it overlaps most, the first of equals; of two objects that want the
    same one, the later has it. Every other default box takes the object it overlaps most, the first of equals, if that
    is `above` the threshold, or `at-least` it. One that learns no object has its own place as its box. Objects without
    area are not learned.
    """
    corners = to_corners(anchors)
    real = valid & (area(ltrb) > 0)
    overlaps = iou(ltrb, corners).masked_fill_(~real[..., None], -1.0)
    best, owner = overlaps.max(dim=1)
    number = torch.arange(ltrb.shape[1], device=ltrb.device).where(real, -1)
    claims = torch.full_like(owner, -1).scatter_reduce_(1, overlaps.argmax(dim=2), number, "amax")
    claimed = claims >= 0
    owner = torch.where(claimed, claims, owner)
    positive = claimed | (best > threshold if rule == "above" else best >= threshold) & (best >= 0)
    boxes = ltrb.gather(1, owner[..., None].expand(-1, -1, 4))
    return torch.where(positive[..., None], boxes, corners), classes.gather(1, owner).where(positive, 0)


# ---- which predicted boxes are kept ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Detections:
    """What was found in a batch, best first, padded with zeros to the most an image may have."""

    ltrb: Tensor
    """[N, most, 4] float32, shares of the image; may reach out of it."""
    scores: Tensor
    """[N, most] float32."""
    classes: Tensor
    """[N, most] int64: 1 to K - 1; 0 where padded."""
    count: Tensor
    """[N] int64."""


def detect(offsets: Tensor, logits: Tensor, anchors: Tensor, settings: Detect) -> Detections:
    """The boxes of [N, A, 4] offsets and [N, A, K] logits that are kept.

    For every class but 0: scores above `score`, of them the `per_class` best, of them those that overlap no better one
    that is kept by `nms_iou` or more; then the `most` best of the image. Of equal scores the lower class goes first, and
    in a class the lower default box.
    """
    scores = logits.float().transpose(1, 2).contiguous().softmax(dim=1)
    above = scores > settings.min_score
    above[:, 0] = False
    place = above.flatten().nonzero().flatten()  # by image, class and default box
    found, image = scores.flatten()[place], place // scores[0].numel()
    # Worse boxes cannot change what becomes of better ones: all are looked at only for want of kept ones.
    images = len(logits)
    best, left_out = _best(found, image, images, settings.max_detections * _FIRST_LOOK)
    kept = _suppress(place[best], found[best], offsets, anchors, settings, scores.shape[1])
    if bool((left_out & (kept.image.bincount(minlength=images) < settings.max_detections)).any()):
        kept = _suppress(place, found, offsets, anchors, settings, scores.shape[1])
    return _padded(kept, images, settings.max_detections)


@dataclass(frozen=True)
class _Kept:
    """What suppression left of a batch, by image and class, best first in each."""

    image: Tensor
    kind: Tensor
    scores: Tensor
    ltrb: Tensor


def _best(scores: Tensor, image: Tensor, images: int, look: int) -> tuple[Tensor, Tensor]:
    """(indices, images that have more): of every image all scores from some score on, `look` or a few more."""
    bins = (scores * _BINS).long()  # monotonous, so whole bins from the top leave no better score out
    counts = (image * (_BINS + 1) + bins).bincount(minlength=images * (_BINS + 1)).view(images, _BINS + 1)
    from_here_up = counts.flip(1).cumsum(1).flip(1)
    lowest = ((from_here_up >= look).sum(1) - 1).clamp(min=0)
    taken = from_here_up.gather(1, lowest[:, None]).flatten()
    return (bins >= lowest[image]).nonzero().flatten(), taken < from_here_up[:, 0]


def _suppress(place: Tensor, scores: Tensor, offsets: Tensor, anchors: Tensor, settings: Detect, classes: int) -> _Kept:
    """What the rules for a class leave of candidates at `place` in [N, K, A]."""
    group, anchor = place // len(anchors), place % len(anchors)
    order, rank = _ranked(group, scores)
    first = order[rank < settings.max_per_class]
    scores, group, anchor = scores[first], group[first], anchor[first]
    image, kind = group // classes, group % classes
    ltrb = decode(offsets[image, anchor].float(), anchors[anchor])
    kept = nms(ltrb, scores, group, settings.nms_iou)
    return _Kept(image=image[kept], kind=kind[kept], scores=scores[kept], ltrb=ltrb[kept])


def nms(ltrb: Tensor, scores: Tensor, groups: Tensor, threshold: float) -> Tensor:
    """Greedy non-maximum suppression in every group at once: which of [C] boxes are kept, as bool [C].

    Best first, the first of equals first, a box is kept if its overlap with every kept one is below the threshold. Scores
    are not negative. In rounds: the best 32 left in each group settle it among themselves, and those they keep suppress
    what they overlap of the rest.
    """
    kept = torch.zeros_like(groups, dtype=torch.bool)
    left, rank = _ranked(groups, scores)
    while len(left):
        begins = rank == 0
        group = begins.cumsum(0) - 1  # from 0 on, without gaps
        size = group.bincount()
        inside = torch.arange(_ROUND, device=left.device) < size[:, None]
        first = begins.nonzero() + torch.arange(_ROUND, device=left.device)
        rows = left[first.clamp_(max=len(left) - 1)]
        winners = _greedy(ltrb[rows], inside, threshold)
        kept[rows[winners]] = True
        later = rank >= _ROUND
        left, group = left[later], group[later]
        hidden = (iou(ltrb[left, None], ltrb[rows][group])[:, 0] >= threshold) & winners[group]
        unhidden = ~hidden.any(1)
        left, group = left[unhidden], group[unhidden]
        rank = _places(group)
    return kept


def _greedy(ltrb: Tensor, inside: Tensor, threshold: float) -> Tensor:
    """Which of [G, R] boxes, best first, are kept.

    Exactly the greedy ones: a box's fate is final once those of all better ones are, so repeating "kept unless a kept one
    suppresses me" for all boxes together ends, and can only end, there.
    """
    overlapping = iou(ltrb, ltrb) >= threshold
    suppresses = overlapping.triu_(1).logical_and_(inside[:, :, None]).to(ltrb.dtype)
    kept = inside
    while True:
        suppressed = torch.bmm(kept[:, None, :].to(ltrb.dtype), suppresses)[:, 0] > 0
        now = inside & ~suppressed
        if torch.equal(now, kept):
            return kept
        kept = now


def _ranked(groups: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """(order, rank): indices by group and then best first, equals as they come, and the place of each in its group.

    One sort: the bits of a float that is not negative sort as the number does.
    """
    bits = scores.contiguous().view(torch.int32).long()
    groups, order = ((groups << 31) + (0x7FFFFFFF - bits)).sort(stable=True)
    return order, _places(groups >> 31)


def _places(groups: Tensor) -> Tensor:
    """The place of each in its group, where groups lie together."""
    place = torch.arange(len(groups), device=groups.device)
    if len(groups) == 0:
        return place
    begins = torch.ones_like(groups, dtype=torch.bool)
    begins[1:] = groups[1:] != groups[:-1]
    return place - torch.where(begins, place, 0).cummax(0).values


def _padded(kept: _Kept, images: int, most: int) -> Detections:
    order, rank = _ranked(kept.image, kept.scores)
    order, rank = order[rank < most], rank[rank < most]
    where = (kept.image[order], rank)
    return Detections(
        ltrb=kept.ltrb.new_zeros(images, most, 4).index_put_(where, kept.ltrb[order]),
        scores=kept.scores.new_zeros(images, most).index_put_(where, kept.scores[order]),
        classes=kept.kind.new_zeros(images, most).index_put_(where, kept.kind[order]),
        count=where[0].bincount(minlength=images),
    )
