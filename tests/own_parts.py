"""Code of a user for tests: the example of docs/own-code.md, and parts that are wrong in one way each."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.documented import DOCS

PAGE = (DOCS / "own-code.md").read_text(encoding="utf-8")
SMALL = {"data.image_px": 32, "model.width": 8, "model.stem": "small", "machine.threads": 1}
TRAIN: dict[str, Any] = {
    "model": "resnet8-small",
    "global_batch": 16,
    "tensorboard": False,
    "quiet": True,
    "settings": SMALL,
}
"""Keyword arguments of a run that takes a second."""

WRONG = """
import numpy as np
import torch
from mycode import Stripes

def list_of_losses(logits, labels): return logits.sum(1)
def number(logits, labels): return 1.0
def detached(logits, labels): return logits.sum().detach()
def infinite(logits, labels): return logits.sum() / 0
def raises(logits, labels): return {}["x"]
def stateful(logits, labels, calls=[]):
    calls.append(1)
    return logits.square().mean() * len(calls)
class Weighted(torch.nn.Linear):
    def __init__(self): super().__init__(2, 2)
def cut(image, target, rng): return image[:8, :8]
def floats(image, target, rng): return image / 255
def forgets(image, target, rng): image[0] = 0
def two(logits, labels): return logits[:2]
def nan(logits, labels): return float("nan")
def negative(progress): return -1.0
def no_optimizer(groups, lr): return 1
class NoDecay(torch.optim.Optimizer):
    def __init__(self, groups, lr): super().__init__(groups, {"lr": lr})
class Strange(Stripes):
    def __init__(self, split="train", kind=""):
        super().__init__(48, split)
        self.kind, self.reads = kind, 0
    def __len__(self):
        return self.size + (self.reads > 20 and self.kind == "length")
    def sample(self, index):
        self.reads += 1
        image, label = super().sample(index)
        if self.kind == "bug" and index > 8:
            return self.nothing
        return {
            "label": (image, 3), "text": (image, "a"), "normalized": (image / 255.0, label), "alone": image,
            "channels": (np.zeros((9, 9, 2), np.uint8), label),
        }.get(self.kind, (image, label))
def no_set(): return [1, 2, 3]
class Fails(torch.optim.SGD):
    def step(self, closure=None): return 1 / 0
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with the files of the page and `wrong.py`, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, text in re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', PAGE, flags=re.S):
        (tmp_path / name).write_text(text)
    (tmp_path / "wrong.py").write_text(WRONG)
    yield tmp_path
    for name in [name for name in sys.modules if name in ("mycode", "wrong") or name.startswith("vernier_own_")]:
        del sys.modules[name]
