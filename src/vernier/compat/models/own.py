"""Own models: `mynets:Net`, `train.py:Net(width=32)`, or an object of a Python session.

The reference names a module, or a class or function that makes one. Parameters with the usual names get the number of
classes, the channels and the size of the images; nothing else is expected of it.
"""

import copy
import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import nn

from vernier.errors import ConfigError
from vernier.models.contract import Entry, Family, Options
from vernier.own_code import load_own
from vernier.references import given

from .adapting import OUTSIDE, build_outside

_CLASSES = ("num_classes", "classes", "n_classes", "num_labels", "outputs")
_CHANNELS = ("in_channels", "in_chans")
_PX = ("image_px", "image_size", "img_size")
_USUAL_CLASSES = 1000


def find(name: str) -> tuple[Entry, Family]:
    """The model of a reference. Raises ConfigError if it names none."""
    target = load_own("model.name", name)
    if not (isinstance(target, nn.Module) or callable(target)):
        raise ConfigError(
            f"{given('model.name', name)} is of type {type(target).__name__}, not an nn.Module, nor a class or "
            "function that makes one."
        )
    return _declare(name, target), OUTSIDE


@cache
def _declare(name: str, target: Any) -> Entry:
    parameters, original = _parameters(target), target.func if isinstance(target, partial) else target
    classes = next((each for key, each in parameters.items() if key in _CLASSES), None)
    default = _USUAL_CLASSES if classes is None or classes.default is classes.empty else classes.default
    px = getattr(original, "input_px", 0)
    doc = original.__doc__ if inspect.isclass(original) or inspect.isfunction(original) else ""
    return Entry(
        name=name,
        family="own",
        summary=next(iter((doc or "").strip().splitlines()), "") or "a model of your own",
        input_px=px if isinstance(px, int) else 0,
        any_px=not px,
        # 0: as many as the module has, whatever the data.
        classes=default if classes is not None and isinstance(default, int) else 0,
        width=0,
        build=partial(_build, name, target),
    )


def _parameters(target: Any) -> dict[str, inspect.Parameter]:
    """What a class or function can be called with, besides what the reference gives."""
    if isinstance(target, nn.Module):
        return {}
    try:
        named = dict(inspect.signature(target).parameters)
    except (TypeError, ValueError):  # made in C
        return {}
    given_already = target.keywords if isinstance(target, partial) else {}
    return {key: each for key, each in named.items() if key not in given_already}


def _build(name: str, target: nn.Module | Callable[..., object], options: Options) -> nn.Module:
    parameters = _parameters(target)
    values = {_CLASSES: options.num_classes, _CHANNELS: options.in_channels, _PX: options.image_px}
    known = {key: value for keys, value in values.items() for key in keys if key in parameters and value}

    def make() -> object:
        if isinstance(target, nn.Module):
            # A copy, so that the object stays as it is, and a second run begins as the first.
            return copy.deepcopy(target).to(torch.get_default_device())
        return target(**known)

    return build_outside(name, options.num_classes, make)
