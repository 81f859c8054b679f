"""Gives any module that maps images to class scores a layout: where its stem, blocks and classifier are.

The parts are its layers in the order of registration, which is nearly always that of the forward pass. Where it is not,
layer-wise rates, head warm-up and `model.freeze` see another order; the results of the module stay its own. A module
with a `layout` (`models.contract.Layout`) is taken at its word.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

from torch import nn

from vernier.errors import ConfigError
from vernier.models.contract import Family, Layout
from vernier.own_code import arguments_of, blamed
from vernier.references import given

OUTSIDE = Family(
    models=(),
    options=("image_px",),
    why_not_torchvision=lambda spec, channels: "its layers keep the names of its own code",
)
"""Options of Vernier's own models, such as `model.width`, have no effect; arguments are given in the name."""


def build_outside(name: str, classes: int, make: Callable[[], object], classifier: str = "") -> nn.Module:
    """Call what makes a module, which may raise anything, and give the module a layout. Raises ConfigError."""
    try:
        model = make()
    except Exception as error:
        raise blamed("model.name", name, error) from error
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"{given('model.name', name)} made an object of type {type(model).__name__}, not an nn.Module."
        )
    return adapt(model, classes, classifier)


def adapt(model: nn.Module, classes: int, classifier: str = "") -> nn.Module:
    """Let a module carry its layout. `classifier`: the layer that names classes, if its code base knows it."""
    own = getattr(model, "layout", None)
    layout = own if isinstance(own, Layout) else _infer(model, classifier or _find_classifier(model, classes))
    model.outside_layout = replace(layout, outside=True)  # type: ignore[assignment]
    return model


def _infer(model: nn.Module, classifier: str) -> Layout:
    parts = list(_parts(model))
    while len(parts) == 1 and list(model.get_submodule(parts[0]).children()):  # a wrapper around one module
        parts = list(_parts(model.get_submodule(parts[0]), f"{parts[0]}."))
    head = next((n for n, part in enumerate(parts) if f"{classifier}.".startswith(f"{part}.")), len(parts))
    backbone = parts[:head]
    # Such as the position embedding of a ViT: parameters of no layer come before all of them.
    loose = [name for name, _ in model.named_parameters() if not name.startswith(tuple(f"{part}." for part in parts))]
    return Layout(
        stem=(*backbone[:1], *loose),
        stages=tuple((part,) for part in backbone[1:]),
        blocks=(1,) * len(backbone[1:]),
        classifier=classifier,
    )


def _parts(model: nn.Module, prefix: str = "") -> Iterator[str]:
    """The names of the parts of a module: its layers, and in place of lists of blocks the blocks."""
    for name, child in model.named_children():
        if not any(True for _ in child.parameters()):
            continue
        blocks = isinstance(child, nn.Sequential | nn.ModuleList) and any(list(each.children()) for each in child)
        if blocks:
            yield from _parts(child, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _find_classifier(model: nn.Module, classes: int) -> str:
    """The last layer with one row of weights per class; without a number of classes, the last linear layer."""
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    fitting = [name for name, module in layers if len(module.weight) == classes]
    linear = [name for name, module in layers if isinstance(module, nn.Linear)]
    return next(reversed(fitting or linear), "")


def import_library(module: str, name: str) -> Any:
    """A library of models. Raises ConfigError, with its reason, where it cannot be imported."""
    try:
        return import_module(module)
    except Exception as error:  # torchvision raises RuntimeError next to a PyTorch that it was not made for
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigError(
            f"{given('model.name', name)}: {module} cannot be imported ({reason}). Install vernier[timm], with the "
            "torchvision that was made for this PyTorch."
        ) from None


def split_name(name: str) -> tuple[str, dict[str, object]]:
    """The name within its library, and the arguments: `resnet18` and none of `timm:resnet18`."""
    own_name = name.partition(":")[2].partition("(")[0].strip()
    return own_name, arguments_of("model.name", name) if "(" in name else {}
