"""The catalogue: published sizes and costs, and requests that cannot be met."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.conftest import REPO
from tests.models.small_networks import CLASSIFIERS
from vernier import models
from vernier.models import ModelInfo

PUBLISHED_PARAMS = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnet50-v1": 25_557_032,
    "resnext50-32x4d": 25_028_904,
    "resnext101-32x4d": 44_177_704,
    "resnext101-32x8d": 88_791_336,
    "resnext101-64x4d": 83_455_272,
    "resnet20-cifar": 269_722,
    "convnext-tiny": 28_589_128,
}


PUBLISHED_GMAC = {"resnet50": 4.089, "resnet50-v1": 3.858, "resnext101-32x4d": 7.970, "convnext-tiny": 4.456}


@pytest.mark.parametrize("entry", models.describe(), ids=lambda entry: entry.name)
def test_groups_and_layout_are_those_of_the_built_model(entry: ModelInfo) -> None:
    with torch.device("meta"):
        model = models.build(entry.name, num_classes=entry.classes)
    assert entry.groups == tuple(dict.fromkeys(n.split(".")[0] for n, _ in model.named_parameters()))
    assert entry.layout == model.layout


PUBLISHED_CIFAR_MILLIONS = {20: 0.27, 32: 0.46, 44: 0.66, 56: 0.85, 110: 1.7}


@pytest.mark.parametrize("entry", [e for e in CLASSIFIERS if "resne" in e.name], ids=lambda entry: entry.name)
def test_depth_in_the_name_is_that_of_the_model(entry: ModelInfo) -> None:
    with torch.device("meta"):
        model = models.build(entry.name, num_classes=entry.classes)
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    aside = [name for name, _ in model.named_modules() if name.endswith(("downsample.0", "se.fc1", "se.fc2"))]
    assert f"{len(layers) - len(aside)}" in re.findall(r"\d+", entry.name)[0]


@pytest.mark.parametrize(("name", "params"), PUBLISHED_PARAMS.items())
def test_published_parameter_counts(name: str, params: int) -> None:
    assert models.info(name).params == params
    with torch.device("meta"):
        model = models.build(name, num_classes=models.info(name).classes)
    assert sum(parameter.numel() for parameter in model.parameters()) == params


@pytest.mark.parametrize(("name", "gmac"), PUBLISHED_GMAC.items())
def test_published_multiply_accumulates(name: str, gmac: float) -> None:
    assert round(models.info(name).gmac, 3) == gmac


@pytest.mark.parametrize(("depth", "millions"), PUBLISHED_CIFAR_MILLIONS.items())
def test_published_cifar_sizes(depth: int, millions: float) -> None:
    assert models.info(f"resnet{depth}-cifar").params / 1e6 == pytest.approx(millions, abs=0.03)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: models.build("resnet-50", num_classes=2), "Did you mean resnet50"),
        (lambda: models.build("resnet50", num_clases=2), "num_classes"),
        (lambda: models.build("resnet50"), "num_classes"),
        (lambda: models.build("resnext50-32x4d", num_classes=2, width=20), "32 groups"),
        (lambda: models.build("airbench94", num_classes=2, blurpool=True), "model.blurpool out"),
        (lambda: models.build("airbench94", num_classes=2, stem="small"), "model.stem out"),
    ],
)
def test_wrong_requests_say_what_would_work(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_listing_does_not_import_torch() -> None:
    code = "import sys, vernier.models as m; m.names(); m.describe()[0].gmac; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_model_of_an_outside_package_is_listed_and_trained(shapes: Path, tmp_path: Path) -> None:
    """The package of docs/add-a-model.md, as pip installs it."""
    metadata = tmp_path / "vernier_plain-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vernier-plain\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text("[vernier.models]\nplain = vernier_plain:FAMILY\n")
    paths = [str(tmp_path), str(REPO / "tests" / "model_plugin")]

    def vernier(*words: str) -> Any:
        command = [sys.executable, "-m", "vernier", *words, "--json"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "VERNIER_HOME": str(tmp_path / "home")}
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert (vernier("models", "plain4")["parameters"], vernier("models", "plain4")["gmac"]) == (98_954, 0.004)
    few = ["--data", str(shapes), "--max-steps", "3", "--set", "optim.layer_decay=0.5", "--freeze", "stem"]
    run = vernier("train", "plain4", *few, "--set", "machine.activation_checkpointing=true", "--workers", "1")
    assert run["status"] == "finished"
    weights = max(Path(tmp_path, run["run"]).glob("checkpoints/*/model.safetensors"))
    again = vernier("train", "plain4", *few, "--weights", str(weights), "--reset-head", "--out", "others")
    assert again["status"] == "finished"
