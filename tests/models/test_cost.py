"""The cost of models from the catalogue, and the memory that follows from it, beside what PyTorch allocates."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vernier import models
from vernier.models import Options
from vernier.models.cost import cost, inference_bytes, training_bytes
from vernier.models.recomputing import recompute_activations
from vernier.models.trace import count


@pytest.mark.parametrize("name", models.names())
def test_another_number_of_classes_is_counted_without_the_model(name: str) -> None:
    """What `catalogue.json` has is scaled: as in the real model, to the last value."""
    entry = models.info(name)
    counted = count(name, Options(num_classes=7), entry.input_px)
    assert cost(name, Options(num_classes=7), entry.input_px) == replace(counted, counted_on="")


def test_activations_grow_with_the_image() -> None:
    small, large = (cost("resnet50", Options(num_classes=1000), px) for px in (112, 224))
    assert 3.9 < large.activations / small.activations < 4.1


def test_counting_does_not_import_torch() -> None:
    code = (
        "import sys; from vernier.config import Model; from vernier.models.cost import cost_of; "
        "cost_of(Model(name='resnet50'), px=224, classes=7); cost_of(Model(name='ssd300-resnet34'), px=300); "
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def allocated_peak(trace: Path, profile: torch.profiler.profile) -> int:
    """The most bytes that were allocated at once while profiling."""
    profile.export_chrome_trace(str(trace))
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("name") == "[memory]"]
    changes = [event["args"]["Bytes"] for event in sorted(events, key=lambda event: event["ts"])]
    return int(max(accumulate(changes)))


def build(name: str, px: int, *, recompute: bool = False, **options: Any) -> tuple[torch.nn.Module, Options]:
    sizes = {"image_px": px} if models.is_detector(name) else {}
    model = models.build(name, num_classes=10, **options, **sizes).to(memory_format=torch.channels_last)
    if recompute:
        recompute_activations(model)
    return model, Options(num_classes=10, **options, **sizes)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(
    ("name", "px", "batch", "options"),
    [
        ("resnet18", 96, 8, {}),
        ("resnet50", 96, 4, {}),
        ("resnet50", 64, 8, {"blurpool": True, "width": 32}),
        ("se-resnext101-32x4d", 64, 4, {"width": 32}),
        ("resnet8-small", 32, 32, {"stem": "small-pool"}),
        ("ssd300-resnet18", 128, 4, {}),
        ("ssd-fpn-resnet18", 128, 4, {}),
        ("convnext-tiny", 96, 4, {}),
    ],
)
def test_peak_of_a_training_step(
    tmp_path: Path, name: str, px: int, batch: int, options: dict[str, Any], recompute: bool
) -> None:
    model, used = build(name, px, recompute=recompute, **options)
    images = torch.randn(batch, 3, px, px).to(memory_format=torch.channels_last)
    with torch.profiler.profile(profile_memory=True) as profile:
        outputs = model(images.clone())  # a step makes its own float images
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        sum(output.square().mean() for output in outputs).backward()  # type: ignore[union-attr]
    expected = training_bytes(cost(name, used, px), batch=batch, recompute=recompute)
    # The smallest model with checkpointing is counted 22 % too high: 2 MB beside the 345 MiB of a process.
    tolerance = 0.25 if recompute and name == "resnet8-small" else 0.15
    assert expected == pytest.approx(allocated_peak(tmp_path / "trace.json", profile), rel=tolerance)


@pytest.mark.parametrize(("name", "px"), [("resnet18", 96), ("resnet50", 96), ("ssd300-resnet18", 128)])
def test_peak_of_a_forward_pass(tmp_path: Path, name: str, px: int) -> None:
    model, used = build(name, px)
    model.eval()
    images = torch.randn(8, 3, px, px).to(memory_format=torch.channels_last)
    with torch.profiler.profile(profile_memory=True) as profile, torch.inference_mode():
        model(images.clone())
    expected = inference_bytes(cost(name, used, px), batch=8)
    assert expected == pytest.approx(allocated_peak(tmp_path / "trace.json", profile), rel=0.35)


def test_half_precision_takes_half_of_the_activations() -> None:
    counted = cost("resnet50", Options(num_classes=10), 224)
    full, half = (training_bytes(counted, batch=64, value_bytes=size) for size in (4, 2))
    assert 0.5 < half / full < 0.55
