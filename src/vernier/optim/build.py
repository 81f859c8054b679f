"""Creates the optimizer of a recipe with its parameter groups, and sets its learning rate.

Groups: which parameters get weight decay, and which learn slower. Published systems differ, so both are settings.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from vernier.config import Optim, Recipe
from vernier.config.checks import check_optimizer
from vernier.errors import ConfigError
from vernier.models.contract import layout_of
from vernier.own_code import OwnPart, blamed, is_own
from vernier.references import given, use
from vernier.torch_private import plain

NORMS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)


Group = dict[str, Any]


def group_of(params: list[nn.Parameter], weight_decay: float, lr_share: float = 1.0) -> Group:
    """Parameters with the same weight decay and the same share of the schedule's learning rate."""
    return {"params": params, "weight_decay": weight_decay, "lr_share": lr_share}


def _split_by_decay(model: nn.Module, rule: str) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Split the parameters that require gradients into decayed and exempt ones, in model order."""
    # By identity, since comparing tensors compares their elements.
    norms = {id(p) for m in model.modules() if isinstance(m, NORMS) for p in m.parameters(recurse=False)}
    exempt: Callable[[str, nn.Parameter], bool] = {
        "all": lambda name, p: False,
        "norm-only": lambda name, p: id(p) in norms,
        "norm-and-bias": lambda name, p: id(p) in norms or name.endswith("bias"),
        # Layer scale is a vector with further dimensions of size 1.
        "vectors": lambda name, p: sum(size > 1 for size in p.shape) < 2,
        # By name, as NVIDIA's scripts do: projection norms are called downsample.1 and are therefore decayed.
        "nvidia-name": lambda name, p: "bn" in name,
    }[rule]
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    return [p for n, p in named if not exempt(n, p)], [p for n, p in named if exempt(n, p)]


def _parameter_groups(model: nn.Module, optim: Optim, *, head_apart: bool = False) -> list[Group]:
    """Group the parameters by weight decay and, with different rates or `head_apart`, by depth.

    The head has the schedule's rate; each depth below it has `layer_decay` times the rate of the one above, and all of
    them have `backbone_lr_share` of it.
    """
    decayed, exempt = _split_by_decay(model, optim.decay_rule)
    by_decay = [(decayed, optim.weight_decay), (exempt, 0.0)]
    # `head_apart`: a fused optimizer starts the momentum of a group as a whole, and the head starts first.
    if optim.layer_decay == optim.backbone_lr_share == 1.0 and not head_apart:
        return [group_of(params, decay) for params, decay in by_decay if params]
    layout = layout_of(model)
    depth_of, head = {id(p): layout.depth_of(n) for n, p in model.named_parameters()}, layout.head_depth
    return [
        group_of(
            at_depth, decay, optim.layer_decay ** (head - depth) * (1.0 if depth == head else optim.backbone_lr_share)
        )
        for depth in range(head + 1)
        for params, decay in by_decay
        if (at_depth := [p for p in params if depth_of[id(p)] == depth])
    ]


def build_optimizer(model: nn.Module, recipe: Recipe, lr: float, *, fused: bool = False) -> torch.optim.Optimizer:
    """Create the recipe's optimizer, with its weight decay and layer-wise rates.

    `lr` holds until the first `set_lr`; a training step calls that before it updates. `fused`: in one kernel, where
    the device has it; not with loss scaling, where it advances the momentum even in steps that the scaler skips.
    """
    optim = recipe.optim
    check_optimizer(optim)
    groups = optim.groups(model) or _parameter_groups(model, optim, head_apart=recipe.schedule.head_epochs > 0)
    if not groups:
        raise ConfigError("Nothing is left to train: model.freeze covers every weight. Freeze fewer layers.")
    if is_own(optim.name):
        return _build_own(groups, lr, optim)
    return optim.build(groups, lr, fused=fused) or _Updates(groups, lr, optim)


def _build_own(groups: list[Group], lr: float, optim: Optim) -> torch.optim.Optimizer:
    """A user's class, or a function that makes one: `f(groups, lr=...)`. Rates, decay and clipping are settings."""
    name, part = given("optim.name", optim.name), OwnPart("optim.name", optim.name, instantiate=False)
    try:
        optimizer = part.value(groups, lr=lr)
    except Exception as error:  # wrong arguments, or anything that the code of a user raises
        raise blamed("optim.name", optim.name, error) from error
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(f"{name} made {type(optimizer).__name__}, which is no torch.optim.Optimizer.")
    if optim.weight_decay and "weight_decay" not in optimizer.defaults:
        raise ConfigError(f"{name} has no weight decay. Use {use('optim.weight_decay', 0)}.")
    return optimizer


@plain
class _Updates(torch.optim.Optimizer):
    """An optimizer by the `update` of its settings."""

    def __init__(self, groups: list[Group], lr: float, optim: Optim) -> None:
        super().__init__(groups, {"lr": lr})
        self._optim = optim

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            for p in weights:
                if not self.state[p]:
                    self.state[p] |= {name: torch.zeros_like(p) for name in self._optim.buffers}
            if weights:
                self._optim.update(weights, self.state, group)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give each group its share of the schedule's rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_share"]
