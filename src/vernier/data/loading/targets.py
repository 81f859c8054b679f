"""The targets of a batch: classes, or objects padded to one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

PAD_MULTIPLE = 8
"""The padded length is a multiple of this, so that a device sees few different shapes."""


@dataclass(frozen=True)
class ClassTargets:
    """A batch's classes, and which samples they are of: [N] int64 each."""

    labels: Tensor
    samples: Tensor

    def to(self, device: torch.device | str, non_blocking: bool = False) -> ClassTargets:
        """The same with the labels on `device`; the sample numbers stay on the host."""
        return ClassTargets(self.labels.to(device, non_blocking=non_blocking), self.samples)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class BoxTargets:
    """A batch's objects, padded to the most that any image has, rounded up to a multiple of 8."""

    ltrb: Tensor
    """[N, M, 4] float32: left, top, right, bottom as shares of the image, 0 to 1; zeros where padded."""
    classes: Tensor
    """[N, M] int64: 1 to K - 1; 0 where padded."""
    valid: Tensor
    """[N, M] bool."""
    samples: Tensor
    """[N] int64: index in the source."""
    sizes: Tensor
    """[N, 2] int64: height and width of the original image, to which evaluation scales boxes back."""

    @classmethod
    def pad(
        cls, ltrb: Sequence[Tensor], classes: Sequence[Tensor], samples: Sequence[int], sizes: Sequence[tuple[int, int]]
    ) -> BoxTargets:
        """From each image's own [m, 4] boxes and [m] classes; an image may have none."""
        counts = torch.tensor([len(boxes) for boxes in ltrb])
        most = max(1, int(counts.max())) if len(ltrb) else 1
        padded = -(-most // PAD_MULTIPLE) * PAD_MULTIPLE
        boxes, labels = torch.zeros(len(ltrb), padded, 4), torch.zeros(len(ltrb), padded, dtype=torch.int64)
        for row, (own_boxes, own_classes) in enumerate(zip(ltrb, classes, strict=True)):
            boxes[row, : len(own_boxes)], labels[row, : len(own_boxes)] = own_boxes, own_classes
        return cls(
            ltrb=boxes,
            classes=labels,
            valid=torch.arange(padded) < counts[:, None],
            samples=torch.tensor(list(samples), dtype=torch.int64),
            # A list without sizes would give one axis.
            sizes=torch.tensor(list(sizes), dtype=torch.int64).reshape(-1, 2),
        )

    def to(self, device: torch.device | str, non_blocking: bool = False) -> BoxTargets:
        """The same on `device`."""
        return BoxTargets(**{k: tensor.to(device, non_blocking=non_blocking) for k, tensor in vars(self).items()})

    def __len__(self) -> int:
        return len(self.samples)
