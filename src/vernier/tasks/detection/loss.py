"""SSD's loss: smooth L1 for the boxes and cross-entropy for their classes.

Computed for a whole batch at once, without shapes that depend on data, and in float32 whatever the network's precision.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from vernier.config import Detect
from vernier.data.loading.targets import BoxTargets

from .boxes import encode, match


def detection_loss(offsets: Tensor, logits: Tensor, targets: BoxTargets, anchors: Tensor, settings: Detect) -> Tensor:
    """Mean over the images; an image's loss is a sum over default boxes, divided by the number of positive ones.

    Positive boxes are those matched to an object. They have a box term and a class term; the background boxes with the
    largest class loss, at most `negatives` per positive box, have a class term. An image without positive boxes has no
    loss.
    """
    with torch.autocast(offsets.device.type, enabled=False):
        offsets, logits = offsets.float(), logits.float()
        with torch.no_grad():
            boxes, classes = match(
                targets.ltrb, targets.classes, targets.valid, anchors, settings.match, settings.match_iou
            )
            positive = classes > 0
            target = encode(boxes, anchors)
        box = F.smooth_l1_loss(offsets, target, reduction="none").sum(-1)
        category = F.cross_entropy(logits.transpose(1, 2), classes, reduction="none")
        counted = positive | hardest(category.detach(), positive, settings.negatives)
        # Masks keep shapes fixed. Background boxes need the finite targets that `match` gives them: 0 * inf is NaN.
        total = (box * positive + category * counted).sum(1)
        return (total / positive.sum(1).clamp(min=1)).mean()


def hardest(losses: Tensor, positive: Tensor, negatives: float) -> Tensor:
    """Choose the background boxes with the largest losses, `negatives` per positive box of the image, as [N, A] bool.

    Rounded down; of equal losses the lower default box comes first.
    """
    count = (positive.sum(1, keepdim=True) * negatives).long()
    # Below every cross-entropy, so positive boxes sort last; the final mask matters if background boxes run out.
    order = losses.masked_fill(positive, -1.0).argsort(dim=1, descending=True, stable=True)
    chosen = torch.arange(losses.shape[1], device=losses.device) < count
    return torch.zeros_like(positive).scatter_(1, order, chosen) & ~positive
