"""Measures training speeds of several networks on one core, to see how well one predicts another by arithmetic.

    python benchmarks/conversion.py > speeds.jsonl

Prints one row of benchmarks/data/training_speeds.json per network and image size: the median over steps of
processor time (not wall time, so that other programs matter little), one thread, fp32, SGD, random images.
"""

import json
import statistics
import sys
import time
from typing import Any

import torch

from vernier.config import Model
from vernier.models import build, info
from vernier.models.cost import cost_of

SECONDS = 14.0
CASES: list[tuple[str, dict[str, Any], int, int]] = [
    ("resnet8-small", {"width": 32, "stem": "imagenet"}, 64, 32),
    ("resnet8-small", {}, 32, 64),
    ("resnet20-cifar", {}, 32, 32),
    ("resnet18", {}, 64, 16),
    ("resnet18", {}, 128, 16),
    ("resnet18", {}, 224, 8),
    ("resnet34", {}, 224, 8),
    ("resnet50", {}, 64, 16),
    ("resnet50", {}, 128, 8),
    ("resnet50", {}, 224, 8),
    ("resnext101-32x4d", {}, 224, 4),
]
"""Network, what is not as published, image size, batch."""


def measure(name: str, options: dict[str, Any], px: int, batch: int) -> dict[str, object]:
    classes = info(name).classes
    network = build(name, num_classes=classes, in_channels=3, **options).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(batch, 3, px, px), torch.randint(0, classes, (batch,))
    step_s: list[float] = []
    end_s = time.monotonic() + SECONDS
    while time.monotonic() < end_s or len(step_s) < 4:
        began_s = time.process_time()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
        step_s.append(time.process_time() - began_s)
    changed = "".join(f", {key} {value}" for key, value in options.items())
    return {
        "network": f"{name}{changed}",
        "image_px": px,
        "gmac": float(f"{cost_of(Model(name=name, **options), px=px).gmac:.4g}"),
        "images_per_s": float(f"{batch / statistics.median(step_s[1:]):.3g}"),
        "batch": batch,
        "steps": len(step_s) - 1,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in CASES:
        sys.stdout.write(json.dumps(measure(*case)) + "\n")
        sys.stdout.flush()
