"""A first idea of a device's speed: real training steps of a ResNet-50 on random images, for a few seconds.

A probe, not a benchmark: no data loading, few steps, no warm-up detection. `vernier bench` measures.
"""

import statistics
from typing import Any

import torch

from vernier.clock import now_s
from vernier.devices import Device
from vernier.models import build

PX = 224
WARMUP, LEAST = 1, 2
BATCH = {"cpu": 8}
OTHER_BATCH = 64


def training_speed(device: Device, precision: str, seconds: float) -> dict[str, Any]:
    """Images a second of forward, backward and update: the median step, the slowest and the fastest of how many."""
    place, batch = device.torch_device(0), BATCH.get(device.name, OTHER_BATCH)
    model = build("resnet50", num_classes=1000).to(device=place, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, PX, PX, device=place).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device=place)
    rates: list[float] = []
    began, step = now_s(), 0
    while step < WARMUP + LEAST or now_s() - began < seconds:
        start = now_s()
        with device.autocast(precision):
            logits = model(images)
        torch.nn.functional.cross_entropy(logits.float(), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        device.synchronize()
        if step >= WARMUP:
            rates.append(batch / (now_s() - start))
        step += 1
    return {
        "model": "resnet50", "px": PX, "batch": batch, "device": device.name, "precision": precision, "mode": "eager",
        "threads": torch.get_num_threads(), "images_per_s": statistics.median(rates), "slowest": min(rates), "fastest": max(rates),
        "steps": len(rates),
    }  # fmt: skip
