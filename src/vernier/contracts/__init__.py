"""Contracts: what Vernier expects of outside code, as checks for the tests of an outside package.

One line in a test, `check_model("mypackage:Net")`, or the same as a pytest suite:

    pytest --pyargs vernier.contracts --vernier-model mypackage:Net

A check trains a few steps on images of 32 pixels, which takes seconds, and raises AssertionError with what was broken.
Names and references are those of `vernier train`.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vernier import recipes
from vernier.api.models import evaluate
from vernier.api.runs import Run
from vernier.api.training import train
from vernier.config import override
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.engine.build import build_network
from vernier.models import info

_PX, _BATCH, _STEPS = 32, 8, 4
_SAME_SCORE = 1e-3
"""Kernels may round differently for another number of images; a wrong dependence is larger."""


def check_model(model: str) -> None:
    """Check that a model tells classes, image by image, learns with all of its weights, and resumes exactly."""
    entry = info(model)
    px = _PX if entry.any_px else entry.input_px
    built, again = (_build(model, px, entry.classes) for _ in range(2))
    for (name, first), second in zip(built.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(first, second), f"{name} has other initial values with the same seed"
    images = torch.rand(4, 3, px, px, generator=torch.Generator().manual_seed(1))
    built(images).logsumexp(1).sum().backward()
    unused = [name for name, p in built.named_parameters() if p.requires_grad and p.grad is None]
    assert not unused, f"no gradient reaches {', '.join(unused)}: several processes would wait for one"
    scores = built.eval()(images)
    assert scores.shape == (4, entry.classes), f"scores are {list(scores.shape)}, not [4, {entry.classes}]"
    assert scores.isfinite().all(), "scores are not finite"
    alone = torch.cat([built(image[None]) for image in images])
    assert torch.allclose(scores, alone, atol=_SAME_SCORE), "scores depend on the other images of the batch"
    assert entry.layout.classifier, "no layer tells classes, so weights with other classes cannot start it"
    check_resume(model=model, settings={"data.image_px": px})


def check_optimizer(optimizer: str) -> None:
    """Check that an optimizer changes the weights, keeps them finite, and resumes exactly."""
    # First without the default recipe's option of SGD, which others do not have.
    check_resume(settings={"optim.nesterov": False, "optim.name": optimizer}, lr=0.01)


def check_data(data: str) -> None:
    """Check that a data set can be trained on, and gives the same images when a run is resumed."""
    check_resume(data=data)


def check_device(device: str) -> None:
    """Check that a device trains, evaluates as the CPU does, and resumes exactly."""
    with tempfile.TemporaryDirectory() as folder:
        run = _train(Path(folder), "device", device=device)
        there, here = (evaluate(run, device=name, quiet=True).figures["loss"] for name in (device, "cpu"))
        assert abs(there - here) < _SAME_SCORE * abs(here), f"the loss is {there} on {device}, {here} on the CPU"
    check_resume(device=device)


def check_resume(**options: Any) -> None:
    """Check that a run with these options of `vernier.train` ends with the same bits when it is resumed in the middle,
    and with other weights than it began with."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        whole = _train(out, "whole", **options)
        begun = _train(out, "parts", max_steps=_STEPS // 2, **options)
        halfway = _weights(begun)
        _train(out, "parts", resume=begun.path, **options)
        assert _weights(whole) == _weights(begun), "a resumed run has other weights than one that was not interrupted"
        assert halfway != _weights(begun), "training does not change the weights"


def _build(model: str, px: int, classes: int) -> torch.nn.Module:
    recipe = override(recipes.load(model), "data.image_px", px).recipe
    torch.manual_seed(1)
    return build_network(recipe, classes, 3)


def _train(out: Path, name: str, *, settings: Mapping[str, object] | None = None, **options: Any) -> Run:
    shapes = out / "shapes"
    if not shapes.exists():
        make_shapes(shapes, ShapesSpec(train=_BATCH * _STEPS, val=_BATCH * _STEPS, size_px=_PX))
    small: dict[str, object] = {"data.image_px": _PX, "machine.threads": 1, "machine.workers": 0}
    few = {"epochs": 1, "max_steps": _STEPS, "global_batch": _BATCH, "procs": 1}
    chosen = {"data": shapes, "quiet": True, "tensorboard": False, "train_only": True, **few, **options}
    run: Run = train(out=out / name, settings={**small, **(settings or {})}, **chosen)
    return run


def _weights(run: Run) -> dict[str, bytes]:
    """All tensors of the last checkpoint."""
    newest = max(run.path.glob("checkpoints/step-*"))
    return {file.name: file.read_bytes() for file in newest.glob("*.safetensors")}


CHECKS = {"model": check_model, "optimizer": check_optimizer, "data": check_data, "device": check_device}
"""By the option of pytest that names what is checked: `--vernier-model`."""
