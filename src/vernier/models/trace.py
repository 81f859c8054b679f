"""Counts the layers of a model in the real module, on the meta device: nothing is computed and no memory is used.

A forward pass in training mode, with hooks around layers, PyTorch's own count of operations, and a hook on what
autograd keeps. Outside models that cannot run there, since they look at values, run on the CPU. `cost` has the results
of built-in models; the contract's `Layout` gives the part of each layer.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from vernier.errors import ConfigError
from vernier.own_code import blamed, defined_at
from vernier.references import given

from .catalogue import build_entry, entry_of, is_outside
from .contract import Described, Entry, ModelInfo, Options, layout_of
from .cost import Cost, Layer

_IMAGES = 2  # batch norm of one value per channel needs two
_VALUE_BYTES = 4
_TRIED_PX = (224, 64, 32, 28)
"""Image sizes for a model that does not say what it is for."""


def count(name: str, options: Options, px: int) -> Cost:
    """Count the cost of a model with these options, for one image of `px` x `px` pixels."""
    entry, family = entry_of(name)
    if "image_px" in family.options:
        options = replace(options, image_px=px)
    return _count(entry, options, px)[1]


@cache
def describe_entry(entry: Entry) -> ModelInfo:
    """The catalogue's entry of a model that a family declares, or of an outside model, whose size is found by trying.

    Raises ConfigError for an outside model that cannot be built, or that runs at no size.
    """
    failures = list[ConfigError]()
    for px in (entry.input_px,) if entry.input_px else _TRIED_PX:
        try:
            model, counted, classes = _count(entry, Options(num_classes=entry.classes), px)
            break
        except ConfigError as error:
            failures.append(error)
    else:
        raise failures[0]
    # What runs at the first size that is tried is taken to run at any.
    described = replace(entry, input_px=px, any_px=entry.any_px and not failures, classes=classes)
    return ModelInfo(
        **{field.name: getattr(described, field.name) for field in fields(Described)},
        params=counted.params,
        macs=counted.macs,
        layout=layout_of(model),
        groups=tuple(dict.fromkeys(name.partition(".")[0] for name, _ in model.named_parameters())),
    )


def _count(entry: Entry, options: Options, px: int) -> tuple[nn.Module, Cost, int]:
    """The model, its cost, and how many classes it tells."""
    if not is_outside(entry.name):
        return _count_on("meta", entry, options, px)
    # A user's module may raise anything. What it raises on the CPU has a reason that means something.
    with suppress(Exception):
        return _count_on("meta", entry, options, px)
    try:
        return _count_on("cpu", entry, options, px)
    except Exception as error:
        raise blamed("model.name", entry.name, error) from error


def _count_on(device: str, entry: Entry, options: Options, px: int) -> tuple[nn.Module, Cost, int]:
    # Also if the caller is in inference mode, where tensors have no gradients.
    with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]), torch.device(device):
        model, images = build_entry(entry, options), torch.zeros(_IMAGES, options.in_channels, px, px)
        tracer = _Tracer(model, images)
        with torch.autograd.graph.saved_tensors_hooks(tracer.save, lambda tensor: tensor), tracer.flops:
            outputs = model(images)
        if is_outside(entry.name):
            _check_scores(entry.name, model, outputs, options.num_classes)
        parts = outputs if isinstance(outputs, tuple) else (outputs,)
        tracer.finish(parts)
    counted = Cost(
        params=sum(parameter.numel() for parameter in model.parameters()),
        activations=tracer.activations,
        layers=tuple(tracer.layers),
        counted_on=device,
    )
    return model, counted, options.num_classes or parts[0].shape[1]


def _check_scores(name: str, model: nn.Module, outputs: Any, classes: int) -> None:
    """Refuse what is not one score per class and image; 0: of any number of classes. Raises ConfigError."""
    shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else ()
    if len(shape) == 2 and shape[0] == _IMAGES and classes in (0, shape[1]):
        return
    returned = f"a tensor {list(shape)}" if shape else f"a {type(outputs).__name__}"
    raise ConfigError(
        f"{given('model.name', name)}{defined_at(type(model).forward)} returns {returned} for {_IMAGES} images"
        + (f" and {classes} classes" if classes else "")
        + f". A classifier returns one score per image and class: [{_IMAGES}, {classes or 'classes'}]. A function or "
        "class with a parameter num_classes is called with the number of classes in the data."
    )


class _Tracer:
    """Follows a forward pass: a layer begins where a module with weights does, and ends with the next one."""

    def __init__(self, model: nn.Module, images: Tensor) -> None:
        self.flops = FlopCounterMode(display=False)
        self.activations, self.layers = 0, list[Layer]()
        self._layout, self._counted = layout_of(model), 0
        # By identity, and referenced so that no other storage gets the same one: on this device all have address 0.
        tensors = [images, *model.parameters(), *model.buffers()]
        self._storages = {id(storage): storage for tensor in tensors if (storage := tensor.untyped_storage())}
        for name, module in model.named_modules():
            parameters = list(module.parameters(recurse=False))
            if parameters and not list(module.children()):
                if any(parameter.dim() > 1 for parameter in parameters):
                    module.register_forward_pre_hook(partial(self._begin, name))
                module.register_forward_hook(self._end)

    def _begin(self, name: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if not inputs or not isinstance(inputs[0], Tensor):
            return  # given by name: counted with the layer before
        # The layer saves its input for the gradient of its weights. It is the output of the layer before.
        self.save(inputs[0])
        self._end_layer()
        values, params = inputs[0].numel() // _IMAGES, sum(parameter.numel() for parameter in module.parameters())
        classifier = self._layout.classifier_weight([f"{name}.weight"]) is not None
        part = self._layout.depth_of(name)
        self.layers.append(
            Layer(part=part, inputs=values, outputs=0, params=params, macs=0, saved=0, classifier=classifier)
        )

    def _end(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not isinstance(output, Tensor) or not self.layers:
            return
        values = output.numel() // _IMAGES
        self.activations += values
        if not self.layers[-1].outputs:
            self._change(outputs=values)
            self._output = output

    def _end_layer(self) -> None:
        # PyTorch counts a multiply-accumulate as two operations.
        total = self.flops.get_total_flops() // 2 // _IMAGES
        if self.layers:
            self._change(macs=total - self._counted)
        self._counted = total

    def _change(self, **counts: Any) -> None:
        self.layers[-1] = replace(self.layers[-1], **counts)

    def save(self, tensor: Tensor) -> Tensor:
        """Add what autograd saves to the layer that runs, unless it is known or does not grow with the batch."""
        storage = tensor.untyped_storage()
        if id(storage) not in self._storages and tensor.dim() > 1 and tensor.shape[0] % _IMAGES == 0:
            self._storages[id(storage)] = storage
            if self.layers:
                self._change(saved=self.layers[-1].saved + storage.nbytes() // _VALUE_BYTES // _IMAGES)
        return tensor

    def finish(self, outputs: Sequence[Tensor]) -> None:
        """Add what the loss saves: the model's outputs, and those of the last layers if outputs are joined copies."""
        if not self.layers:  # a module without layers of PyTorch
            self._begin("", nn.Identity(), tuple(outputs))
            self._end(nn.Identity(), (), outputs[0])
        self._end_layer()
        copies = 1 if outputs[0].untyped_storage() is self._output.untyped_storage() else 2
        values = sum(output.numel() for output in outputs) // _IMAGES
        for index, layer in reversed(list(enumerate(self.layers))):
            if values > 0:
                self.layers[index] = replace(layer, saved=layer.saved + copies * layer.outputs)
            values -= layer.outputs
