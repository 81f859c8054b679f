"""What a detector minimises: where the boxes are (smooth L1) and what is in them (cross-entropy), as SSD does.

A whole batch at once, without shapes that depend on data, and in float32 whatever the network computed in.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from vernier.config import Detect
from vernier.data.loading.targets import BoxTargets
from vernier.tasks.detection.boxes import encode, match


def detection_loss(offsets: Tensor, logits: Tensor, targets: BoxTargets, anchors: Tensor, settings: Detect) -> Tensor:
    """Mean over the images; an image's loss is a sum over default boxes, divided by how many learn an object.

    Box terms of those alone; class terms of those and of the background boxes that are hardest for the network, at most
    `negatives` of them for each. An image in which none learns an object has no loss.
    """
    with torch.autocast(offsets.device.type, enabled=False):
        offsets, logits = offsets.float(), logits.float()
        with torch.no_grad():
            boxes, classes = match(
                targets.ltrb, targets.classes, targets.valid, anchors, settings.match, settings.match_iou
            )
            positive = classes > 0
            wanted = encode(boxes, anchors)
        box = F.smooth_l1_loss(offsets, wanted, reduction="none").sum(-1)
        category = F.cross_entropy(logits.transpose(1, 2), classes, reduction="none")
        learned = positive | hardest(category.detach(), positive, settings.negatives)
        total = (box * positive + category * learned).sum(1)
        return (total / positive.sum(1).clamp(min=1)).mean()


def hardest(losses: Tensor, positive: Tensor, negatives: float) -> Tensor:
    """[N, A] bool: the `negatives` x positives boxes of each image with the largest losses, positive ones left out.

    Rounded down; of equal losses the lower default box goes first.
    """
    wanted = (positive.sum(1, keepdim=True) * negatives).long()
    order = losses.masked_fill(positive, -1.0).argsort(dim=1, descending=True, stable=True)
    chosen = torch.arange(losses.shape[1], device=losses.device) < wanted
    return torch.zeros_like(positive).scatter_(1, order, chosen) & ~positive
