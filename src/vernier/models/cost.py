"""The cost of a network by arithmetic: parameters, multiply-accumulates and activations per image. Imports no torch.

Walks through the layers as `resnet` and `ssd` build them; a test compares every network of the catalogue with what
PyTorch counts in the real forward pass.
"""

from functools import cache
from itertools import pairwise

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
        counter.linear(channels, options.num_classes)
    else:
        counter.detector(entry.arch, ssd_spec(name, options.box_sizes), channels, px)
    return counter.total()


def cost_of(spec: Model, *, px: int, classes: int = 0, channels: int = 3) -> Cost:
    """Count the cost of a recipe's network for data of so many classes, or with the catalogue's outputs where 0."""
    entry = info(spec.name)
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


class _Counter:
    """Adds up layers, and follows the resolution."""

    def __init__(self, options: Options, px: int) -> None:
        self.options, self.px = options, px
        self.params = self.macs = self.activations = 0
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
        )

    def conv(
        self, in_px: int, inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1, blur: bool = True
    ) -> int:
        """A convolution without bias, padded by half its kernel, and its batch norm; the resolution after it."""
        if blur and self.options.blurpool and stride > 1 and inputs >= BLUR_MIN_CHANNELS:
            self.macs += inputs * 9 * in_px**2
            self.activations += inputs * in_px**2
        out_px = -(-in_px // stride)
        self._convolve(out_px, inputs // groups * kernel**2, outputs)
        self.params += 2 * outputs
        self.activations += outputs * out_px**2
        return out_px

    def _convolve(self, out_px: int, fan_in: int, outputs: int) -> None:
        self.params += fan_in * outputs
        self.macs += fan_in * outputs * out_px**2
        self.activations += outputs * out_px**2

    def linear(self, inputs: int, outputs: int) -> None:
        self.params += (inputs + 1) * outputs
        self.macs += inputs * outputs
        self.activations += outputs

    def trunk(self, arch: Arch) -> int:
        """A residual network without its head; its output channels."""
        options = self.options
        width = options.width or arch.width
        stem = arch.stem if options.stem == "default" else options.stem
        if stem == "imagenet":
            self.px = -(-self.conv(self.px, options.in_channels, width, 7, stride=2) // 2)
        else:
            self.px = self.conv(self.px, options.in_channels, width, 3) // (2 if stem == "small-pool" else 1)
        channels = width
        self.marks.append(self.macs)
        for index, (count, stride) in enumerate(zip(arch.blocks, stage_strides(arch), strict=True)):
            for position in range(count):
                channels = self._block(arch, channels, width * 2**index, stride if position == 0 else 1)
            self.marks.append(self.macs)
        return channels

    def pooled(self, arch: Arch) -> None:
        """`airbench`: a whitening stem with a bias, blocks with a pool behind the first convolution, a head without."""
        channels = whitening_channels(self.options.in_channels)
        self.px -= PATCH_PX - 1
        self._convolve(self.px, self.options.in_channels * PATCH_PX**2, channels)
        self.params += channels
        self.marks.append(self.macs)
        for planes in stage_channels(arch, self.options.width):
            self._convolve(self.px, 9 * channels, planes)
            self.px //= 2
            self.params += 2 * planes
            self.activations += planes * self.px**2
            self.conv(self.px, planes, planes, 3)
            channels = planes
            self.marks.append(self.macs)
        self.linear(channels, self.options.num_classes)
        self.params -= self.options.num_classes

    def _block(self, arch: Arch, inputs: int, planes: int, stride: int) -> int:
        outputs, start = planes * arch.expansion, self.px
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
                self.linear(outputs, arch.squeeze)
                self.linear(arch.squeeze, outputs)
        if arch.shortcut == "projection" and (stride != 1 or inputs != outputs):
            self.conv(start, inputs, outputs, 1, stride=stride)
        self.px = px
        return outputs

    def detector(self, arch: Arch, spec: SsdSpec, channels: int, px: int) -> None:
        """The feature pyramid, the levels after the backbone, and the two heads of every level."""
        classes, pyramid = self.options.num_classes, pyramid_channels(arch, spec, self.options.width)
        for index, level in enumerate(levels(arch, spec, px, self.options.stem)):
            if spec.pyramid and index < 2:
                self._convolve(level.grid, channels // (2 if index == 0 else 1), pyramid)
                self.params += pyramid
                self.conv(level.grid, pyramid, pyramid, 3)
            elif index:
                hidden, out = extra_channels(arch, spec, self.options.width, index - (2 if spec.pyramid else 1))
                if spec.pyramid and index == 2:
                    channels = pyramid
                for fan_in, outputs, grid in ((channels, hidden, self.px), (9 * hidden, out, level.grid)):
                    self._convolve(grid, fan_in, outputs)
                    self.params += (2 if spec.extra_norm else 1) * outputs
                channels, self.px = out, level.grid
            inputs = pyramid if spec.pyramid and index < 2 else channels
            for outputs in (4 * len(level.shapes), classes * len(level.shapes)):
                self._convolve(level.grid, 9 * inputs, outputs)
                self.params += outputs
