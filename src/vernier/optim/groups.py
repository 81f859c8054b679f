"""Which parameters are decayed. The published systems disagree, so the rule is a setting."""

from collections.abc import Callable

from torch import nn

NORMS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)


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
