"""Arithmetic of boxes: overlap, the offsets SSD predicts, matching of default boxes to objects, SSD's loss, non-maximum
suppression.

Pure torch on whole batches, on any device; no loop over images, classes or boxes. Boxes are `ltrb` (left, top, right,
bottom); default boxes (`anchors`) are center x, center y, width, height. All are fractions of the image, 0 to 1. The
loss has no shapes that depend on data, and is computed in float32 whatever the network's precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from vernier.config import Detect
from vernier.data.loading.targets import BoxTargets
from vernier.frozen import frozen

# Units of the offsets, as in the code of SSD (Liu et al. 2016) and MLPerf: published weights predict in them.
CENTRE_VARIANCE, SIZE_VARIANCE = 0.1, 0.2
_ROUND = 32  # boxes per group that one round of suppression decides
_FIRST_TRY = 4  # candidates tried first, as a multiple of the detections allowed
_BINS, _BINS_OF_A_CLASS = 4096, 256  # bins of scores, to find the best without sorting


def _to_corners(centres: Tensor) -> Tensor:
    """Convert [..., 4] centre x, centre y, width, height to left, top, right, bottom."""
    middle, half = centres[..., :2], centres[..., 2:] / 2
    return torch.cat([middle - half, middle + half], dim=-1)


def _to_centres(ltrb: Tensor) -> Tensor:
    """Convert [..., 4] left, top, right, bottom to centre x, centre y, width, height."""
    first, last = ltrb[..., :2], ltrb[..., 2:]
    return torch.cat([(first + last) / 2, last - first], dim=-1)


def _area(ltrb: Tensor) -> Tensor:
    """Areas [...] of boxes [..., 4]; a negative side counts as 0."""
    return (ltrb[..., 2] - ltrb[..., 0]).clamp(min=0) * (ltrb[..., 3] - ltrb[..., 1]).clamp(min=0)


def iou(one: Tensor, other: Tensor) -> Tensor:
    """Intersection over union [..., M, A] of every pair of ltrb [..., M, 4] and [..., A, 4]; 0 for empty boxes."""
    left, top, right, bottom = one[..., :, None, :].unbind(-1)
    other_left, other_top, other_right, other_bottom = other[..., None, :, :].unbind(-1)
    width = torch.minimum(right, other_right).sub_(torch.maximum(left, other_left)).clamp_(min=0)
    height = torch.minimum(bottom, other_bottom).sub_(torch.maximum(top, other_top)).clamp_(min=0)
    shared = width.mul_(height)
    union = (_area(one)[..., :, None] + _area(other)[..., None, :]).sub_(shared)
    return shared.div_(union.clamp_(min=torch.finfo(union.dtype).tiny))


def _encode(ltrb: Tensor, anchors: Tensor) -> Tensor:
    """Encode boxes [..., A, 4] as offsets from the default boxes: the targets of the network."""
    boxes = _to_centres(ltrb)
    centre = (boxes[..., :2] - anchors[..., :2]) / anchors[..., 2:] / CENTRE_VARIANCE
    return torch.cat([centre, (boxes[..., 2:] / anchors[..., 2:]).log() / SIZE_VARIANCE], dim=-1)


def _decode(offsets: Tensor, anchors: Tensor) -> Tensor:
    """Decode offsets [..., A, 4] to ltrb, which may reach outside the image."""
    centre = offsets[..., :2] * CENTRE_VARIANCE * anchors[..., 2:] + anchors[..., :2]
    return _to_corners(torch.cat([centre, (offsets[..., 2:] * SIZE_VARIANCE).exp() * anchors[..., 2:]], dim=-1))


# ---- matching default boxes to objects ------------------------------------------------------------------------------


def _match(
    ltrb: Tensor,
    classes: Tensor,
    valid: Tensor,
    anchors: Tensor,
    rule: Literal["above", "at-least"] = "above",
    threshold: float = 0.5,
    contested: Literal["last", "first"] = "last",
) -> tuple[Tensor, Tensor]:
    """Give every default box its target: ltrb [N, A, 4] and class [N, A], 0 for background.

    Every object of [N, M] is first matched to the default box it overlaps most (of equals the first); if several
    objects choose the same one, the `contested` one gets it, the last or the first. Every other default box is matched
    to the object it overlaps most (of equals the first), if the overlap is `above` the threshold, or `at-least` it. A
    background box has itself as its box target. Objects without area are ignored.
    """
    corners = _to_corners(anchors)
    real = valid & (_area(ltrb) > 0)
    overlaps = iou(ltrb, corners).masked_fill_(~real[..., None], -1.0)
    best, owner = overlaps.max(dim=1)
    # A plain scatter of two claims has no defined order. Padding claims as no object.
    none, reduce = (-1, "amax") if contested == "last" else (ltrb.shape[1], "amin")
    number = torch.arange(ltrb.shape[1], device=ltrb.device).where(real, none)
    claims = torch.full_like(owner, none).scatter_reduce_(1, overlaps.argmax(dim=2), number, reduce)
    claimed = claims != none
    owner = torch.where(claimed, claims, owner)
    positive = claimed | (best > threshold if rule == "above" else best >= threshold) & (best >= 0)
    boxes = ltrb.gather(1, owner[..., None].expand(-1, -1, 4))
    return torch.where(positive[..., None], boxes, corners), classes.gather(1, owner).where(positive, 0)


# ---- choosing detections --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Detections:
    """The detections of a batch, best first, padded with zeros to D, the most an image may have."""

    ltrb: Tensor
    """[N, D, 4] float32, shares of the image; may reach outside it."""
    scores: Tensor
    """[N, D] float32."""
    classes: Tensor
    """[N, D] int64: 1 to K - 1; 0 where padded."""
    count: Tensor
    """[N] int64."""

    @classmethod
    def joined(cls, batches: Sequence[Detections]) -> Detections:
        """Those of several batches as one."""
        return cls(*(torch.cat(parts) for parts in zip(*(vars(batch).values() for batch in batches), strict=True)))


def detect(offsets: Tensor, logits: Tensor, anchors: Tensor, settings: Detect) -> Detections:
    """Choose the detections from offsets [N, A, 4] and logits [N, A, K], on the device where the `anchors` are.

    Per class except 0: scores above `min_score`; of those the `max_per_class` best; of those the ones that non-maximum
    suppression by `nms_iou` leaves. Then the `max_detections` best per image. Of equal scores the lower class comes
    first, and within a class the lower default box.
    """
    images, _, classes = logits.shape
    candidates, offsets = _candidates(offsets, logits, settings.min_score, anchors.device)
    # Lower scores never suppress higher ones, so the best are tried first, and all only if too few remain.
    best, has_more = _best(candidates, candidates.image, images, settings.max_detections * _FIRST_TRY, _BINS)
    remaining = _suppress(best, offsets, anchors, settings, classes)
    if bool((has_more & (remaining.image.bincount(minlength=images) < settings.max_detections)).any()):
        group = candidates.index // len(anchors)
        of_each_class, _ = _best(candidates, group, images * classes, settings.max_per_class, _BINS_OF_A_CLASS)
        remaining = _suppress(of_each_class, offsets, anchors, settings, classes)
    return _pad(remaining, images, settings.max_detections)


@frozen
class _Candidates:
    """Scores above the threshold, by image, class and default box; `index` is their position in [N, K, A]."""

    index: Tensor
    image: Tensor
    scores: Tensor

    def __getitem__(self, chosen: Tensor) -> _Candidates:
        return _Candidates(**{name: tensor.index_select(0, chosen) for name, tensor in vars(self).items()})


def _candidates(offsets: Tensor, logits: Tensor, min_score: float, target: torch.device) -> tuple[_Candidates, Tensor]:
    """The candidates of a batch, and all offsets.

    To another device both go in one transfer, after one that tells the number of candidates.
    """
    scores, offsets = logits.float().transpose(1, 2).contiguous().softmax(dim=1), offsets.float()
    above = scores > min_score
    above[:, 0] = False
    index = above.flatten().nonzero().flatten()
    values, numel = scores.flatten().index_select(0, index), scores[0].numel()
    if values.device != target:  # the bits of the floats next to the integers
        image, count = index // numel, len(index)
        parts = (image.int(), (index - image * numel).int(), values.view(torch.int32))
        packed = torch.cat([*parts, offsets.contiguous().view(torch.int32).flatten()]).to(target)
        index = packed[:count].long() * numel + packed[count : 2 * count]
        values = packed[2 * count : 3 * count].view(torch.float32)
        offsets = packed[3 * count :].view(torch.float32).view(offsets.shape)
    return _Candidates(index=index, image=index // numel, scores=values), offsets


@frozen
class _Remaining:
    """The boxes of a batch that suppression left, by image and class, best first within each."""

    image: Tensor
    kind: Tensor
    scores: Tensor
    ltrb: Tensor


def _best(candidates: _Candidates, group: Tensor, groups: int, count: int, bins: int) -> tuple[_Candidates, Tensor]:
    """Take at least the `count` best of every group, without sorting; also say which groups have more."""
    bin_ = (candidates.scores * bins).long()  # monotonic, so whole bins from the top miss no better score
    counts = (group * (bins + 1) + bin_).bincount(minlength=groups * (bins + 1)).view(groups, bins + 1)
    at_least = counts.flip(1).cumsum(1).flip(1)  # scores in this bin and above
    # The highest bin with enough scores in and above it; a group with fewer scores takes all its bins.
    lowest = ((at_least >= count).sum(1) - 1).clamp(min=0)
    taken = at_least.gather(1, lowest[:, None]).flatten()
    return candidates[(bin_ >= lowest.index_select(0, group)).nonzero().flatten()], taken < at_least[:, 0]


def _suppress(candidates: _Candidates, offsets: Tensor, anchors: Tensor, settings: Detect, classes: int) -> _Remaining:
    """Apply the rules per class to the candidates."""
    group, anchor = candidates.index // len(anchors), candidates.index % len(anchors)
    order, rank = _rank(group, candidates.scores)
    first = order[rank < settings.max_per_class]
    scores, group, anchor = candidates.scores[first], group[first], anchor[first]
    image, kind = group // classes, group % classes
    ltrb = _decode(offsets[image, anchor], anchors[anchor])
    chosen = _nms(ltrb, scores, group, settings.nms_iou)
    return _Remaining(image=image[chosen], kind=kind[chosen], scores=scores[chosen], ltrb=ltrb[chosen])


def _nms(ltrb: Tensor, scores: Tensor, groups: Tensor, threshold: float) -> Tensor:
    """Greedy non-maximum suppression in all groups at once: which of the [C] boxes remain, as bool [C].

    From the best score down (of equals the first), a box remains if its overlap with every remaining one is below the
    threshold. Scores must not be negative. It works in rounds: the best 32 left in each group are decided among
    themselves, and those that remain suppress what they overlap of the rest.
    """
    remains = torch.zeros_like(groups, dtype=torch.bool)
    left, rank = _rank(groups, scores)
    while len(left):
        begins = rank == 0
        group = begins.cumsum(0) - 1  # from 0, without gaps
        size = group.bincount()
        inside = torch.arange(_ROUND, device=left.device) < size[:, None]
        first = begins.nonzero() + torch.arange(_ROUND, device=left.device)
        rows = left[first.clamp_(max=len(left) - 1)]
        winners = _greedy(ltrb[rows], inside, threshold)
        remains[rows[winners]] = True
        # Winners first and the rest cut off, so that the overlaps below are no wider than the most winners of a group.
        order = winners.int().argsort(dim=1, descending=True, stable=True)[:, : int(winners.sum(1).max())]
        rows, winners = rows.gather(1, order), winners.gather(1, order)
        later = rank >= _ROUND
        left, group = left[later], group[later]
        overlapping = (iou(ltrb[left, None], ltrb[rows][group])[:, 0] >= threshold) & winners[group]
        open_ = ~overlapping.any(1)
        left, group = left[open_], group[open_]
        rank = _rank_in_group(group)
    return remains


def _greedy(ltrb: Tensor, inside: Tensor, threshold: float) -> Tensor:
    """Which of [G, R] boxes, best first, remain.

    Exactly the greedy result: a box is decided once all better ones are, so repeating "remains unless a remaining one
    suppresses it" for all boxes at once ends there, and only there.
    """
    overlapping = iou(ltrb, ltrb) >= threshold
    suppresses = overlapping.triu_(1).logical_and_(inside[:, :, None]).to(ltrb.dtype)
    remains = inside
    while True:
        suppressed = torch.bmm(remains[:, None, :].to(ltrb.dtype), suppresses)[:, 0] > 0
        now = inside & ~suppressed
        if torch.equal(now, remains):
            return remains
        remains = now


def _rank(groups: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Order by group and then by falling score (equals as they come); also the rank of each within its group.

    One sort is enough: the bits of a non-negative float sort like the number.
    """
    bits = scores.contiguous().view(torch.int32).long()
    # Shifts by name, since not every device has the operator `<<`. 31 bits: the sign of a score is always 0.
    groups, order = (groups.bitwise_left_shift(31) + (0x7FFFFFFF - bits)).sort(stable=True)
    return order, _rank_in_group(groups.bitwise_right_shift(31))


def _rank_in_group(groups: Tensor) -> Tensor:
    """The position of each element within its group; the elements of a group are adjacent."""
    position = torch.arange(len(groups), device=groups.device)
    if len(groups) == 0:
        return position
    begins = torch.ones_like(groups, dtype=torch.bool)
    begins[1:] = groups[1:] != groups[:-1]
    return position - torch.where(begins, position, 0).cummax(0).values


def _pad(remaining: _Remaining, images: int, count: int) -> Detections:
    order, rank = _rank(remaining.image, remaining.scores)
    order, rank = order[rank < count], rank[rank < count]
    slots = (remaining.image[order], rank)
    return Detections(
        ltrb=remaining.ltrb.new_zeros(images, count, 4).index_put_(slots, remaining.ltrb[order]),
        scores=remaining.scores.new_zeros(images, count).index_put_(slots, remaining.scores[order]),
        classes=remaining.kind.new_zeros(images, count).index_put_(slots, remaining.kind[order]),
        count=slots[0].bincount(minlength=images),
    )


def detection_loss(offsets: Tensor, logits: Tensor, targets: BoxTargets, anchors: Tensor, settings: Detect) -> Tensor:
    """Mean over the images; an image's loss is a sum over default boxes, divided by the number of positive ones.

    Positive boxes are those matched to an object. They have a box term and a class term; the background boxes with the
    largest class loss, at most `negatives` per positive box, have a class term. An image without positive boxes has no
    loss.
    """
    with torch.autocast(offsets.device.type, enabled=False):
        offsets, logits = offsets.float(), logits.float()
        with torch.no_grad():
            boxes, classes = _match(
                targets.ltrb,
                targets.classes,
                targets.valid,
                anchors,
                settings.match,
                settings.match_iou,
                settings.contested,
            )
            positive = classes > 0
            target = _encode(boxes, anchors)
        box = F.smooth_l1_loss(offsets, target, reduction="none").sum(-1)
        category = F.cross_entropy(logits.transpose(1, 2), classes, reduction="none")
        counted = positive | _hardest(category.detach(), positive, settings.negatives)
        # Masks keep shapes fixed. Background boxes need the finite targets that `_match` gives them: 0 * inf is NaN.
        total = (box * positive + category * counted).sum(1)
        return (total / positive.sum(1).clamp(min=1)).mean()


def _hardest(losses: Tensor, positive: Tensor, negatives: float) -> Tensor:
    """Choose the background boxes with the largest losses, `negatives` per positive box of the image, as [N, A] bool.

    Rounded down; of equal losses the lower default box comes first.
    """
    count = (positive.sum(1, keepdim=True) * negatives).long()
    # Below every cross-entropy, so positive boxes sort last; the final mask matters if background boxes run out.
    order = losses.masked_fill(positive, -1.0).argsort(dim=1, descending=True, stable=True)
    chosen = torch.arange(losses.shape[1], device=losses.device) < count
    return torch.zeros_like(positive).scatter_(1, order, chosen) & ~positive
