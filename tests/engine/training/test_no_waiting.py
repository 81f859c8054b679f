"""No step of any recipe waits for the device: no blocking copy, and no number that is read back.

On rgpu, which queues, with a mode of PyTorch's dispatcher that sees every operation of a step. rgpu's copies never
wait, so only their arguments tell. On CUDA each would hold the host until the device has finished the step before.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vernier.data.shapes import ShapesSpec, make_shapes

_STEPS_OF_RECIPES = """
import json, re, sys
from dataclasses import replace
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from vernier import recipes
from vernier.config import override
from vernier.engine.training.setup import prepare
from vernier.models.catalogue import info
from vernier.recipes import is_detector

WAITS = "aten._local_scalar_dense", "aten.nonzero", "aten.masked_select", "aten.equal", "aten.unique"

class Waits(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.found, self.operations = set(), 0

    def __torch_dispatch__(self, f, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, str(f)
        self.operations += 1
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        on_device = any(t.device.type == "rgpu" for t in tensors)
        if on_device and name.startswith(WAITS):
            self.found.add(name)
        if name.startswith("aten._to_copy"):
            source, target = args[0].device.type, torch.device(kwargs.get("device") or args[0].device).type
            if source != target and not kwargs.get("non_blocking", False) and tuple(args[0].shape) != UPLOADED:
                self.found.add(f"{name} {source} to {target} {tuple(args[0].shape)}")
        if name.startswith("aten.copy_") and args[0].device.type != args[1].device.type:
            if not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False)):
                self.found.add(f"{name} {tuple(args[1].shape)}")
        if name.startswith(("aten.index.Tensor", "aten.index_put")) and on_device:
            if any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1]):
                self.found.add(f"{name} by a mask")
        return f(*args, **kwargs)

found, tried, key_of, unsupported = {}, 0, set(), []
for name in recipes.names():
    config = recipes.load(name)
    r = config.recipe
    family = re.split("[0-9]", r.model.name)[0]
    key = (family, r.optim.name, r.loss.kind, r.augment.mixup > 0, r.augment.cutmix > 0, r.ema.decay > 0,
           r.optim.clip_norm > 0, r.model.drop_path > 0)
    if key in key_of:
        continue  # another data set, schedule or number of devices: the same step
    key_of.add(key)
    px = 64 if is_detector(r.model.name) else 32
    changes = {"data.source": sys.argv[2 if is_detector(r.model.name) else 1], "data.image_px": px, "data.eval_px": px,
        "global_batch": 4, "machine.device": "rgpu", "seed": 6, "machine.threads": 1, "machine.workers": 1,
        "model.num_classes": None, "model.batch_norm_images": None, "augment.start_px": None, "augment.phase_px": (),
        "augment.phase_epochs": (), "limits.max_steps": 3, "data.eval_short_side_px": px, "machine.check_memory": False,
        "data.mean": (0.5, 0.5, 0.5), "data.std": (0.5, 0.5, 0.5), "model.padding": r.model.padding,
        "schedule.epochs": 90.0, "machine.reduction": "ddp", "machine.precision": "fp32", "data.hold_out": 0.0}
    if info(r.model.name).width:
        changes["model.width"] = 16 if "resnext" not in family else 64
    for setting, value in changes.items():
        try:
            config = override(config, setting, value)
        except Exception:
            if setting not in ("data.hold_out",):
                raise
    job = prepare(config)
    batches = job.loader.batches(job.requests(0, 4))
    UPLOADED = (4, 3, px, px)  # by the device's own `upload`, from page-locked memory where there is any
    waits = Waits()
    try:
        with waits:
            for step in range(2):  # with MixUp and CutMix by turns, seed 6 draws both
                job.step(step, batches)
    except NotImplementedError:  # rgpu lacks an operation
        unsupported.append(name)
        continue
    finally:
        batches.close()
        job.loader.close()
    assert waits.operations > 50, name
    tried += 1
    if waits.found:
        found[name] = sorted(waits.found)
print(json.dumps([tried, found, unsupported]))
"""


@pytest.mark.slow
def test_no_step_of_any_recipe_waits_for_the_device(shapes: Path, tmp_path: Path, on_rgpu: Callable[..., Any]) -> None:
    boxes = make_shapes(tmp_path / "boxes", ShapesSpec(kind="detect", train=16, val=8, size_px=64, seed=5))
    tried, found, unsupported = on_rgpu(_STEPS_OF_RECIPES, shapes, boxes, timeout=600)
    assert found == {}
    assert tried >= 10
    assert set(unsupported) <= {"convnext-tiny-300e"}
