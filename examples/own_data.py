"""A data set in a CSV file, image,label per line, with a loss that weights rare classes up.

vernier train --data "examples/own_data.py:Table('photos/labels.csv')" \
    --loss "examples/own_data.py:weighted('photos/labels.csv')"
"""

import csv
from collections import Counter
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F


@cache
def rows(file: str) -> list[tuple[str, str]]:
    with open(file, newline="") as lines:
        return [(row["image"], row["label"]) for row in csv.DictReader(lines)]


class Table:
    """Paths in the file are relative to its folder. A tenth of the images is kept for validation."""

    def __init__(self, file: str) -> None:
        self.folder, self.rows = Path(file).parent, rows(file)
        self.classes = tuple(sorted({label for _, label in self.rows}))

    def __len__(self) -> int:
        return len(self.rows)

    def sample(self, index: int) -> tuple[bytes, int]:
        image, label = self.rows[index]
        return (self.folder / image).read_bytes(), self.classes.index(label)


class weighted(torch.nn.Module):  # noqa: N801  named as the function that it is used as
    """Cross-entropy with weights in inverse proportion to the images of a class; their mean is 1."""

    def __init__(self, file: str) -> None:
        super().__init__()
        counts = Counter(label for _, label in rows(file))
        weights = torch.tensor([1 / counts[label] for label in sorted(counts)])
        self.register_buffer("weights", weights / weights.mean())

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels, weight=self.weights.to(logits.device))
