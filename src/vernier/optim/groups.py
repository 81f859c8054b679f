"""Which parameters are decayed, and which learn slower. The published systems disagree, so both are settings."""

import re
from collections.abc import Callable
from typing import Any

from torch import nn

from vernier.config import Optim

NORMS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)
_STEM = 0
_STAGE = re.compile(r"^layer(\d+)\.(\d+)\.")


def _of_norms(model: nn.Module) -> set[int]:
    return {id(p) for m in model.modules() if isinstance(m, NORMS) for p in m.parameters(recurse=False)}


def split(model: nn.Module, rule: str) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """(decayed, exempt) parameters that require gradients, in model order."""
    norms = _of_norms(model)
    exempt: Callable[[str, nn.Parameter], bool] = {
        "all": lambda name, p: False,
        "norm-only": lambda name, p: id(p) in norms,
        "norm-and-bias": lambda name, p: id(p) in norms or name.endswith("bias"),
        # By name, as NVIDIA's scripts do: projection norms are called downsample.1 and are therefore decayed.
        "nvidia-name": lambda name, p: "bn" in name,
    }[rule]
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    return [p for n, p in named if not exempt(n, p)], [p for n, p in named if exempt(n, p)]


def depths(model: nn.Module) -> dict[str, int]:
    """Parameter name -> how far it is from the input: the stem 0, each residual block one more, the head last."""
    names = [n for n, _ in model.named_parameters()]
    blocks = sorted({(int(m[1]), int(m[2])) for n in names if (m := _STAGE.match(n))})
    at = {block: number for number, block in enumerate(blocks, start=_STEM + 1)}
    head = len(blocks) + 1

    def depth(name: str) -> int:
        if found := _STAGE.match(name):
            return at[int(found[1]), int(found[2])]
        return _STEM if name.startswith(("conv1.", "bn1.")) else head

    return {name: depth(name) for name in names}


def parameter_groups(model: nn.Module, optim: Optim) -> list[dict[str, Any]]:
    """Groups for an optimiser: decayed and exempt, and with `layer_decay` one pair a depth.

    `lr_share` is the group's rate over the schedule's: 1 at the head, `layer_decay` times less with each step down.
    """
    decayed, exempt = split(model, optim.decay_rule)
    flat = [(decayed, optim.weight_decay), (exempt, 0.0)]
    if optim.layer_decay == 1.0:
        return [{"params": p, "weight_decay": wd, "lr_share": 1.0} for p, wd in flat if p]
    depth_of = {id(p): d for (n, p), d in zip(model.named_parameters(), depths(model).values(), strict=True)}
    head = max(depth_of.values())
    groups = []
    for depth in range(head + 1):
        share = optim.layer_decay ** (head - depth)
        parts = [([p for p in params if depth_of[id(p)] == depth], wd) for params, wd in flat]
        groups += [{"params": p, "weight_decay": wd, "lr_share": share} for p, wd in parts if p]
    return groups
