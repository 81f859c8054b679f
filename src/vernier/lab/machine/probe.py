"""A first idea of a device's speed: real training steps of a ResNet-50 on random images, for a few seconds.

A probe, not a benchmark: no data loading, few steps, no detection of warm-up. `vernier bench` measures.
"""

import statistics

import torch

from vernier.devices import Device
from vernier.models import build

from .doctor import TrainingProbe
from .kernels import time_steps

MODEL, PX = "resnet50", 224
MIN_STEPS = 2
CPU_BATCH, ACCELERATOR_BATCH = 8, 64


def probe_training(device: Device, precision: str, seconds: float) -> TrainingProbe:
    """Time forward, backward and update; the rate is that of the median step."""
    torch_device, batch = device.torch_device(0), CPU_BATCH if device.name == "cpu" else ACCELERATOR_BATCH
    layout = torch.channels_last
    model = build(MODEL, num_classes=1000).to(device=torch_device, memory_format=layout)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, PX, PX, device=torch_device).to(memory_format=layout)
    labels = torch.randint(0, 1000, (batch,), device=torch_device)

    def step() -> None:
        with device.autocast(precision):
            logits = model(images)
        torch.nn.functional.cross_entropy(logits.float(), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        device.synchronize()

    rates = [batch / step_s for step_s in time_steps(step, MIN_STEPS, seconds)]
    return TrainingProbe(
        model=MODEL,
        px=PX,
        batch=batch,
        device=device.name,
        precision=precision,
        threads=torch.get_num_threads(),
        images_per_s=statistics.median(rates),
        slowest=min(rates),
        fastest=max(rates),
        steps=len(rates),
    )
