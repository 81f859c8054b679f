"""The cost of a model: parameters, multiply-accumulates, activations, memory. Imports no torch for known sizes.

The layers of a model are counted in the real module (`trace`). `catalogue.json` has those of the built-in models at
their own size and at the sizes of recipes, for any number of classes; other sizes and options are counted when needed.
Memory is the peak of a step: a walk through the backward pass with what autograd keeps of each layer, the gradients
beside it, and the weights' gradients that are there already. Optimizer, loader and process are added by
`measure.memory`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import cache
from itertools import groupby
from operator import attrgetter

from vernier.config import Model
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.references import given

from .catalogue import Row, figures, info
from .contract import Described, Options


@frozen
class Layer:
    """A convolution or linear layer and what follows it up to the next: parameters, and values per image.

    `part` is the depth of `contract.Layout`. `saved` are values that autograd saves for the backward pass besides the
    layer's input, in units of 32 bits. `classifier`: all of its counts grow with the number of classes.
    """

    part: int
    inputs: int
    outputs: int
    params: int
    macs: int
    saved: int
    classifier: bool = False


@frozen
class Cost:
    """Parameters, and of one image's forward pass: multiply-accumulates and the values of all layers' outputs.

    Convolutions and matrix products are counted; additions, norms, activations and pooling are not. `activations` are
    the outputs of convolutions, linear layers and norms.
    """

    params: int
    activations: int
    layers: tuple[Layer, ...]
    """In the order of the forward pass."""
    counted_on: str = ""
    """The device of the forward pass that was counted just now, `meta` or `cpu`; empty: known before."""

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)

    @property
    def gmac(self) -> float:
        return self.macs / 1e9

    def macs_from(self, part: int) -> int:
        """Multiply-accumulates of this part and all that follow it."""
        return sum(layer.macs for layer in self.layers if layer.part >= part)


@cache
def cost(name: str, options: Options, px: int) -> Cost:
    """Count the cost of a model with these options, for one image of `px` x `px` pixels."""
    entry = info(name)
    row = figures()["costs"].get(_key_of(entry, options, px))
    if row is not None:
        return _with_classes(_decode(row), options.num_classes, entry.classes)
    from .trace import count

    return count(name, options, px)


def cost_of(spec: Model, *, px: int, classes: int = 0, channels: int = 3) -> Cost:
    """Count the cost of a recipe's model for `classes` classes; 0: with the catalogue's outputs. Raises ConfigError."""
    # Settings that were read from a run, for a report, are not checked as those of a training run are.
    if channels < 1:
        raise ConfigError(f"{given('data.mean', ())} has no value, and so the images no channel.")
    entry = info(spec.name)
    # A detector has one more output, for the background.
    outputs = classes + entry.detector + spec.unused_outputs if classes else 0
    options = Options(
        num_classes=outputs or spec.num_classes or entry.classes,
        in_channels=channels,
        stem=spec.stem,
        width=spec.width,
        blurpool=spec.blurpool,
        box_sizes=spec.box_sizes,
    )
    return cost(spec.name, options, px)


def _key_of(entry: Described, options: Options, px: int) -> str:
    """The name of a cost in `catalogue.json`: the model, the image size, and options that are not the model's own."""
    own = {"num_classes": options.num_classes, "image_px": options.image_px, "width": entry.width, "stem": entry.stem}
    other = [
        f"{field.name}={value}"
        for field in fields(Options)
        if (value := getattr(options, field.name)) not in (field.default, own.get(field.name, field.default))
    ]
    return " ".join([entry.name, str(px), *other])


def _decode(row: Row) -> Cost:
    # Equal parts in a row are listed once, with their number.
    parts = [layers for times, layers in row["parts"] for _ in range(times)]
    layers = tuple(
        Layer(part=part, inputs=i, outputs=o, params=p, macs=m, saved=k, classifier=bool(c))
        for part, rows in enumerate(parts)
        for i, o, p, m, k, *c in rows
    )
    return Cost(params=row["params"], activations=row["activations"], layers=layers)


def _with_classes(counted: Cost, classes: int, own: int) -> Cost:
    """The same model with another number of classes."""
    layers = list(counted.layers)
    params, activations = counted.params, counted.activations
    for index, layer in enumerate(layers):
        if layer.classifier and classes != own:
            names = ("outputs", "params", "macs", "saved")
            layers[index] = replace(layer, **{name: getattr(layer, name) * classes // own for name in names})
            params += layers[index].params - layer.params
            activations += layers[index].outputs - layer.outputs
    return Cost(params=params, activations=activations, layers=tuple(layers))


# -------------------------------------------------------------------------------------------------------------- memory

_WEIGHT_BYTES = 4
_WEIGHT_COPIES = 2
"""Of a convolution's weights and of their gradient, in a kernel's own layout, while it computes."""


def training_bytes(
    cost: Cost, *, batch: int, value_bytes: int = 4, recompute: bool = False, frozen_parts: int = 0
) -> int:
    """Bytes of activations and gradients at the peak of a step with `batch` images; weights are not included.

    `value_bytes`: 2 where activations are bf16 or fp16, whose weights are cast as well. `recompute`: with activation
    checkpointing. `frozen_parts`: so many parts at the start of the model are not trained and keep nothing.
    """
    trained = [layer for layer in cost.layers if layer.part >= frozen_parts]
    peak = max(values * batch * value_bytes + gradients for values, gradients in _moments(trained, recompute))
    # Autocast keeps a half-precision copy of the weights, and the images stay in fp32 beside their cast.
    cast_bytes = value_bytes * cost.params if value_bytes < _WEIGHT_BYTES else 0
    images = cost.layers[0].inputs * batch * (_WEIGHT_BYTES if value_bytes < _WEIGHT_BYTES else 0)
    # Frozen parts keep nothing, but their forward pass can be the peak of the step.
    passed = inference_bytes(cost, batch=batch, value_bytes=value_bytes) if frozen_parts else 0
    return max(peak + images, passed) + cast_bytes


def inference_bytes(cost: Cost, *, batch: int, value_bytes: int = 4) -> int:
    """Bytes of activations at the peak of a forward pass of `batch` images without gradients."""
    # Reversed: of the layers of a part, the first is set last. Its input stays alive for the shortcut.
    starts = {layer.part: layer.inputs for layer in reversed(cost.layers)}
    peak = max(starts[layer.part] + layer.inputs + 2 * layer.outputs for layer in cost.layers)
    return batch * (peak * value_bytes + cost.layers[0].inputs * _WEIGHT_BYTES)


def _moments(trained: Sequence[Layer], recompute: bool) -> Iterator[tuple[int, int]]:
    """Layer by layer through the backward pass: values per image that are alive, and bytes of the weights' gradients.

    With `recompute`, only the inputs of the parts before are kept, and this part has just run again.
    """
    parts = [list(layers) for _, layers in groupby(trained, key=attrgetter("part"))]
    gradient_bytes = 0
    for number, part in reversed(list(enumerate(parts))):
        before = parts[:number]
        if recompute:
            held = part[0].inputs + sum(earlier[0].inputs for earlier in before)
        else:
            held = trained[0].inputs + sum(layer.saved for earlier in before for layer in earlier)
        held += sum(layer.saved for layer in part)
        for layer in reversed(part):
            # Alive in the backward pass of this layer: what is still kept, the gradient that waits for the shortcut,
            # gradients behind and in front of the batch norm (2 x outputs), and the gradient of the input.
            into_block = 0 if layer is part[-1] else part[-1].outputs
            gradient_bytes += _WEIGHT_BYTES * layer.params
            copies_bytes = _WEIGHT_COPIES * _WEIGHT_BYTES * layer.params
            yield held + into_block + 2 * layer.outputs + layer.inputs, gradient_bytes + copies_bytes
            held -= layer.saved
