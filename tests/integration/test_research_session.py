"""What a researcher writes in one file: an own part of every kind, checked, trained, continued, repeated with seeds."""

import sys
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

import vernier as v


class Net(nn.Module):
    """A network with an option, whose head and image size are found by its parameters' names."""

    def __init__(self, num_classes: int, in_channels: int = 3, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(in_channels, width, 3, stride=2)
        self.stages = nn.Sequential(nn.Sequential(nn.Conv2d(width, width, 3), nn.BatchNorm2d(width), nn.ReLU()))
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(width, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.stages(self.stem(x)).mean((2, 3))))


class Leaves:
    """Pillow images and labels."""

    classes = ("oak", "elm")

    def __init__(self, split: str = "train", size: int = 64) -> None:
        self.size, self.first = (size, 0) if split == "train" else (20, 10_000)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        rng = np.random.default_rng(self.first + index)
        pixels = rng.integers(0, 200, (36, 40, 3), dtype=np.uint8)
        pixels[..., index % 2] += 50
        return Image.fromarray(pixels), index % 2


def cutout(image: np.ndarray, target: Any, rng: np.random.Generator, side: int = 8) -> np.ndarray:
    y, x = rng.integers(0, 32 - side, 2)
    image = image.copy()
    image[y : y + side, x : x + side] = 128
    return image


def focal(logits: torch.Tensor, targets: torch.Tensor, gamma: float = 2.0) -> torch.Tensor:
    loss = F.cross_entropy(logits, targets, reduction="none")
    return ((1 - torch.exp(-loss)) ** gamma * loss).mean()


def one_cycle(progress: float, up: float = 0.3) -> float:
    return progress / up if progress < up else (1 - progress) / (1 - up)


class MacroF1:
    """As torchmetrics' objects are used: update and compute."""

    def __init__(self) -> None:
        self.f1: list[float] = []

    def update(self, logits: torch.Tensor, targets: torch.Tensor) -> None:
        said = logits.argmax(1)
        for label in (0, 1):
            right = ((said == label) & (targets == label)).sum().item()
            self.f1.append(2 * right / max(1, (said == label).sum().item() + (targets == label).sum().item()))

    def compute(self) -> float:
        return mean(self.f1[-2:])


OPTIONS: dict[str, Any] = {
    "model": Net,
    "data": Leaves,
    "loss": focal,
    "transforms": [cutout],
    "optimizer": torch.optim.AdamW,
    "schedule": one_cycle,
    "metrics": [MacroF1],
    "lr": 3e-3,
    "epochs": 2,
    "global_batch": 16,
    "settings": {
        "data.image_px": 32,
        "optim.layer_decay": 0.9,
        "eval.best": "MacroF1",
        "machine.threads": 1,
        "machine.workers": 0,
    },
    "quiet": True,
    "tensorboard": False,
}


def test_one_file_has_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[2])])
    seen = list[str]()
    assert v.check(**OPTIONS).exact
    run = v.train(observers=[lambda event: seen.append(event.kind)], **OPTIONS)
    assert {"start", "eval", "end"} <= set(seen)
    assert 0 <= run.summary.result.figures["MacroF1"] <= 1
    assert f"{__name__}:Net" in run.config.recipe.model.name
    model = v.load(run)
    assert model.predict(Leaves()[0][0]).label in Leaves.classes
    assert model.evaluate(data=Leaves).samples == 20
    assert 0 <= mean(_f1(lr=1e-3, seed=seed, out=tmp_path) for seed in (1, 2)) <= 1


def _f1(lr: float, seed: int, out: Path) -> float:
    options = {**OPTIONS, "lr": lr, "seed": seed, "out": out / "sweep", "max_steps": 2}
    result: float = v.train(**options).summary.result.figures["MacroF1"]
    return result
