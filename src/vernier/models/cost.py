"""The cost of a network by arithmetic: parameters, multiply-accumulates, activations, memory. Imports no torch.

Walks through the layers as `resnet` and `ssd` build them; a test compares every network of the catalogue with what
PyTorch counts in the real forward pass.
Memory is the peak of a step: a walk through the backward pass with what autograd keeps of each layer, the gradients
beside it, and the weights' gradients that are there already. Optimiser, loader and process are added by
`measure.planning.memory`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby, pairwise
from operator import attrgetter

from vernier.config import Model
from vernier.frozen import frozen

from .architecture import (
    BLUR_MIN_CHANNELS,
    PATCH_PX,
    Arch,
    Options,
    SsdSpec,
    extra_channels,
    inner_channels,
    levels,
    pyramid_channels,
    stage_channels,
    stage_strides,
    whitening_channels,
)
from .catalogue import info, ssd_spec


@frozen
class Layer:
    """A convolution or linear layer of one part of a network, with its batch norm: parameters, and values per image.

    Part 0 is the stem, then each residual block is one, then all that follows. `shortcut`: its result is added to that
    of the block, and not kept. `extra` values are kept besides input and outputs: blurred inputs, positions of a pool,
    the factors' inputs of squeeze-and-excitation.
    """

    part: int
    inputs: int
    outputs: int
    params: int
    norm: bool
    shortcut: bool = False
    extra: int = 0


@frozen
class Cost:
    """Parameters, and of one image's forward pass: multiply-accumulates and the values of all layers' outputs.

    Convolutions and matrix products are counted; additions, batch norm, activations and pooling are not. `activations`
    are what training keeps for the backward pass: outputs of convolutions and of their batch norms.
    """

    params: int
    macs: int
    activations: int
    part_macs: tuple[int, ...]
    """Of the stem, of each stage, and of everything after the residual network."""
    layers: tuple[Layer, ...] = ()
    """In the order of the forward pass."""

    @property
    def gmac(self) -> float:
        return self.macs / 1e9


@cache
def cost(name: str, options: Options, px: int) -> Cost:
    """Count the cost of a catalogue network with these options, for one image of `px` x `px` pixels."""
    entry, counter = info(name), _Counter(options, px)
    if entry.arch.block == "pooled":
        counter.pooled(entry.arch)
        return counter.total()
    channels = counter.trunk(entry.arch)
    if entry.ssd is None:
        counter.part += 1
        counter.linear(channels, options.num_classes)
    else:
        counter.detector(entry.arch, ssd_spec(name, options.box_sizes), channels, px)
    return counter.total()


def cost_of(spec: Model, *, px: int, classes: int = 0, channels: int = 3) -> Cost:
    """Count the cost of a recipe's network for data of so many classes, or with the catalogue's outputs where 0."""
    entry = info(spec.name)
    # A detector has one more output, for the background.
    outputs = classes + (entry.ssd is not None) + spec.unused_outputs if classes else 0
    options = Options(
        num_classes=outputs or spec.num_classes or entry.classes,
        in_channels=channels,
        stem=spec.stem,
        width=spec.width,
        blurpool=spec.blurpool,
        box_sizes=spec.box_sizes,
    )
    return cost(spec.name, options, px)


_POSITION_VALUES = 2
"""Size of a position, 64 bits, in values of 32."""


class _Counter:
    """Adds up layers, and follows the resolution."""

    def __init__(self, options: Options, px: int) -> None:
        self.options, self.px = options, px
        self.params = self.macs = self.activations = self.part = 0
        self.layers: list[Layer] = []
        self.marks: list[int] = []
        """Multiply-accumulates up to the end of the stem and of each stage."""

    def total(self) -> Cost:
        """What was added up."""
        *parts, last = self.marks
        return Cost(
            params=self.params,
            macs=self.macs,
            activations=self.activations,
            part_macs=(*(after - before for before, after in pairwise((0, *parts, last))), self.macs - last),
            layers=tuple(self.layers),
        )

    def conv(
        self,
        in_px: int,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        shortcut: bool = False,
    ) -> int:
        """A convolution without bias, padded by half its kernel, and its batch norm; the resolution after it."""
        blurred = 0
        if self.options.blurpool and stride > 1 and inputs >= BLUR_MIN_CHANNELS:
            blurred = inputs * in_px**2
            self.macs += 9 * blurred
            self.activations += blurred
        # With half the kernel as padding, the resolution is divided by the stride and rounded up.
        out_px, fan_in = -(-in_px // stride), inputs // groups * kernel**2
        self._convolve(out_px, fan_in, outputs)
        # Scale and shift of the batch norm, and its output; `_convolve` has counted that of the convolution.
        self.params += 2 * outputs
        self.activations += outputs * out_px**2
        self._add_layer(inputs * in_px**2, outputs * out_px**2, fan_in * outputs, shortcut=shortcut, extra=blurred)
        return out_px

    def _convolve(self, out_px: int, fan_in: int, outputs: int) -> None:
        self.params += fan_in * outputs
        self.macs += fan_in * outputs * out_px**2
        self.activations += outputs * out_px**2

    def _add_layer(
        self, inputs: int, outputs: int, params: int, *, norm: bool = True, shortcut: bool = False, extra: int = 0
    ) -> None:
        layer = Layer(
            part=self.part, inputs=inputs, outputs=outputs, params=params, norm=norm, shortcut=shortcut, extra=extra
        )
        self.layers.append(layer)

    def linear(self, inputs: int, outputs: int) -> None:
        self.params += (inputs + 1) * outputs
        self.macs += inputs * outputs
        self.activations += outputs
        self._add_layer(inputs, outputs, (inputs + 1) * outputs, norm=False)

    def trunk(self, arch: Arch) -> int:
        """A residual network without its head; its output channels."""
        options = self.options
        width = options.width or arch.width
        stem = arch.stem if options.stem == "default" else options.stem
        if stem == "imagenet":
            # The 3x3 pool has padding and rounds up; the 2x2 pool of `small-pool` has none and rounds down.
            self.px = -(-self.conv(self.px, options.in_channels, width, 7, stride=2) // 2)
        else:
            self.px = self.conv(self.px, options.in_channels, width, 3) // (2 if stem == "small-pool" else 1)
        channels = width
        if stem != "small":  # a pool keeps its outputs, and their positions in 64 bits
            self.layers[-1] = replace(self.layers[-1], extra=(1 + _POSITION_VALUES) * width * self.px**2)
        self.marks.append(self.macs)
        for index, (count, stride) in enumerate(zip(arch.blocks, stage_strides(arch), strict=True)):
            for position in range(count):
                channels = self._block(arch, channels, width * 2**index, stride if position == 0 else 1)
            self.marks.append(self.macs)
        return channels

    def pooled(self, arch: Arch) -> None:
        """`airbench`: a whitening stem with a bias, blocks with a pool behind the first convolution, a head without."""
        channels, inputs = whitening_channels(self.options.in_channels), self.options.in_channels * self.px**2
        self.px -= PATCH_PX - 1  # no padding
        self._convolve(self.px, self.options.in_channels * PATCH_PX**2, channels)
        self.params += channels
        values = channels * self.px**2  # GELU keeps its input, besides its output, which the next layer reads
        self._add_layer(inputs, values, self.options.in_channels * PATCH_PX**2 * channels, norm=False, extra=values)
        self.marks.append(self.macs)
        for planes in stage_channels(arch, self.options.width):
            self.part += 1
            inputs, values = channels * self.px**2, planes * self.px**2
            self._convolve(self.px, 9 * channels, planes)
            self.px //= 2
            pooled = planes * self.px**2
            self.params += 2 * planes
            self.activations += pooled
            extra = (3 + _POSITION_VALUES) * pooled  # outputs of pool, batch norm and GELU, and the pool's positions
            self._add_layer(inputs, values, 9 * channels * planes, norm=False, extra=extra)
            self.conv(self.px, planes, planes, 3)
            self.layers[-1] = replace(self.layers[-1], extra=pooled)
            channels = planes
            self.marks.append(self.macs)
        self.part += 1
        self.linear(channels, self.options.num_classes)
        self.params -= self.options.num_classes  # `linear` counts a bias, which this head does not have

    def _block(self, arch: Arch, inputs: int, planes: int, stride: int) -> int:
        outputs, start = planes * arch.expansion, self.px
        self.part += 1
        if arch.block == "basic":
            px = self.conv(start, inputs, planes, 3, stride=stride)
            self.conv(px, planes, planes, 3)
        else:
            inner = inner_channels(arch, planes)
            first, second = (1, stride) if arch.stride_in == "3x3" else (stride, 1)
            px = self.conv(start, inputs, inner, 1, stride=first)
            px = self.conv(px, inner, inner, 3, stride=second, groups=arch.groups)
            self.conv(px, inner, outputs, 1)
            if arch.squeeze:
                # Scaling by the factors of squeeze-and-excitation keeps its input, too.
                self.layers[-1] = replace(self.layers[-1], extra=outputs * px**2)
                self.linear(outputs, arch.squeeze)
                self.linear(arch.squeeze, outputs)
        if arch.shortcut == "projection" and (stride != 1 or inputs != outputs):
            self.conv(start, inputs, outputs, 1, stride=stride, shortcut=True)
        self.px = px
        return outputs

    def detector(self, arch: Arch, spec: SsdSpec, channels: int, px: int) -> None:
        """The feature pyramid, the levels after the backbone, and the two heads of every level."""
        classes, pyramid = self.options.num_classes, pyramid_channels(arch, spec, self.options.width)
        self.part += 1
        for index, level in enumerate(levels(arch, spec, px, self.options.stem)):
            if spec.pyramid and index < 2:
                # Level 0 reads the backbone's last stage but one, which has half the channels of the last.
                fan_in = channels // (2 if index == 0 else 1)
                self._convolve(level.grid, fan_in, pyramid)
                self.params += pyramid
                self._add_layer(fan_in * level.grid**2, pyramid * level.grid**2, fan_in * pyramid, norm=False)
                self.conv(level.grid, pyramid, pyramid, 3)
            elif index:
                hidden, out = extra_channels(arch, spec, self.options.width, index - (2 if spec.pyramid else 1))
                # The first level behind a pyramid reads its coarser map, not the backbone.
                if spec.pyramid and index == 2:
                    channels = pyramid
                for fan_in, outputs, grid in ((channels, hidden, self.px), (9 * hidden, out, level.grid)):
                    self._convolve(grid, fan_in, outputs)
                    self.params += (2 if spec.extra_norm else 1) * outputs
                    self._add_layer(channels * grid**2, outputs * grid**2, fan_in * outputs, norm=spec.extra_norm)
                channels, self.px = out, level.grid
            inputs = pyramid if spec.pyramid and index < 2 else channels
            # Box and class heads. `Ssd` joins the outputs of all levels, which is a second copy (`extra`).
            for outputs in (4 * len(level.shapes), classes * len(level.shapes)):
                self._convolve(level.grid, 9 * inputs, outputs)
                self.params += outputs
                values = outputs * level.grid**2
                self._add_layer(inputs * level.grid**2, values, 9 * inputs * outputs, norm=False, extra=values)


# -------------------------------------------------------------------------------------------------------------- memory

_WEIGHT_BYTES = 4
_WEIGHT_COPIES = 2
"""Of a convolution's weights and of their gradient, in a kernel's own layout, while it computes."""


def training_bytes(
    cost: Cost, *, batch: int, value_bytes: int = 4, recompute: bool = False, frozen_parts: int = 0
) -> int:
    """Bytes of activations and gradients at the peak of a step with `batch` images; weights are not included.

    `value_bytes`: 2 where activations are bf16 or fp16, whose weights are cast as well. `recompute`: with activation
    checkpointing. `frozen_parts`: so many parts at the start of the network are not trained and keep nothing.
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
            held = trained[0].inputs + sum(_kept(layer) for earlier in before for layer in earlier)
        held += sum(map(_kept, part))
        for layer in reversed(part):
            # Alive in the backward pass of this layer: what is still kept, the gradient that waits for the shortcut,
            # gradients behind and in front of the batch norm (2 x outputs), and the gradient of the input.
            into_block = 0 if layer is part[-1] else part[-1].outputs
            gradient_bytes += _WEIGHT_BYTES * layer.params
            copies_bytes = _WEIGHT_COPIES * _WEIGHT_BYTES * layer.params
            yield held + into_block + 2 * layer.outputs + layer.inputs, gradient_bytes + copies_bytes
            held -= _kept(layer)


def _kept(layer: Layer) -> int:
    """Values that autograd keeps: the convolution's output for the batch norm, and what the next layer reads."""
    return layer.outputs * (2 if layer.norm and not layer.shortcut else 1) + layer.extra
