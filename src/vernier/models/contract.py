"""The contract of models: what the one file of a family declares, so that no other module names its layers.

A family is a `Family` in one file (`resnet`, `convnext`, `airbench`, `ssd`) and one entry point of the group
`vernier.models`; outside packages offer theirs in the same way. Modules that it builds have `options`, and a `layout`
with the places of stem, stages and head. Any other module is an outside model: an entry point of the group
`vernier.model_origins` finds it by a name such as `mynets:Net`, and gives it a layout. Imports no torch. Families are
found in `catalogue`, their layers are counted in `trace`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from vernier.config import Data, Model
from vernier.frozen import frozen

if TYPE_CHECKING:
    from torch import Tensor, nn

GROUP = "vernier.models"
BACKBONE = "backbone"
"""All layers but the head, as `model.freeze` names them; in a detector, the submodule that has them."""


@frozen
class Options:
    """The options of any model. A family lists those that it has. Ranges are checked by `config.settings`."""

    num_classes: int
    """A detector's includes the background, its class 0."""
    in_channels: int = 3
    image_px: int | None = None
    """Detectors: side of the images, which decides levels and default boxes; None: the catalogue's."""
    box_sizes: tuple[float, ...] = ()
    """Detectors: side of the default boxes at the first, second and last level, as fractions of the image.
    Empty: the catalogue's."""
    init: str = "fan-out"
    """Convolutions: He normal by fan-out (torchvision's) or fan-in (NVIDIA's), or TensorFlow's variance scaling
    (truncated normal, variance 1/fan-in). Linear layers keep PyTorch's default. A detector's layers outside its
    backbone are always Xavier uniform."""
    zero_gamma: bool = False
    """Start the last batch norm of every block at zero, so that a new block is the identity."""
    stem: str = "default"
    """`imagenet`: 7x7 stride 2 and max pool. `small`: 3x3 stride 1, no pool. `small-pool`: the same and a 2x2 pool.
    `default`: the architecture's own."""
    width: int | None = None
    """Channels of the first stage; None: the architecture's own. A detector's extra levels scale with it."""
    drop_path: float = 0.0
    """Stochastic depth: probability that a sample skips the last block; earlier blocks linearly less."""
    blurpool: bool = False
    """Blur (3x3 binomial) before every strided convolution with at least 16 input channels, as FFCV's rn50 does."""
    padding: str = "torch"
    """Of strided layers. `tf`: TensorFlow's SAME, more at the right and bottom; `tf-fixed`: not in convolutions of the
    backbone."""


def _within(name: str, layers: Iterable[str]) -> bool:
    return any(name == layer or name.startswith(f"{layer}.") for layer in layers)


@frozen
class Layout:
    """Where the parts of a model are, by the names of its layers.

    A part is the stem, one block, or the head, which is everything else. Parts are numbered from the input: this is the
    depth of a parameter for layer-wise learning rates, and the unit that is frozen or computed again.
    """

    stem: tuple[str, ...]
    stages: tuple[tuple[str, ...], ...]
    """The layer with the numbered blocks of each stage, then layers that belong to its first block."""
    blocks: tuple[int, ...]
    """Blocks of each stage."""
    classifier: str
    """The layer that names classes, which is new for other classes; empty for a backbone alone."""
    boxes: int = 1
    """Rows per class of the classifier's first weight: a detector has one per default box."""
    detector: bool = False
    """Stem and stages are in the submodule `backbone`."""
    variant: str = ""
    """Distinguishes models whose weights have the same names and shapes."""
    outside: bool = False
    """A module that knows nothing of this contract: it may draw from PyTorch's generator, its batch norms may follow
    another layer than the one that is registered before them, and its names of layers are its own."""

    @property
    def head_depth(self) -> int:
        """The number of the head, which is the last part."""
        return 1 + sum(self.blocks)

    @property
    def lowest(self) -> tuple[str, ...]:
        """The layers of the stem and of the first stage."""
        return tuple(self._full(name) for name in (*self.stem, *chain(*self.stages[:1])))

    def depth_of(self, name: str) -> int:
        """The number of the part that a parameter belongs to."""
        if self.detector and not _within(name, [BACKBONE]):
            return self.head_depth
        inner = name.removeprefix(f"{BACKBONE}.") if self.detector else name
        if _within(inner, self.stem):
            return 0
        depth = 1
        for layers, count in zip(self.stages, self.blocks, strict=True):
            if _within(inner, layers):
                block = inner.removeprefix(f"{layers[0]}.").partition(".")[0]
                # A stage of one block may number what is inside of it.
                return depth + (min(int(block), count - 1) if block.isdecimal() else 0)
            depth += count
        return depth

    def in_backbone(self, name: str) -> bool:
        """Whether a parameter belongs to the part that starts from third-party weights: all but the head."""
        return self.depth_of(name) < self.head_depth

    def frozen_parts(self, freeze: tuple[str, ...]) -> int:
        """How many parts from the input on have no layer that is trained, given what `model.freeze` lists."""
        if BACKBONE in freeze:
            return self.head_depth
        parts = 0
        for layers, count in zip((self.stem, *self.stages), (1, *self.blocks), strict=True):
            # A part behind one that is trained passes gradients on, so it counts as trained.
            if not all(self._full(layer).startswith(freeze) for layer in layers):
                break
            parts += count
        return parts

    def classifier_weight(self, names: Iterable[str]) -> str | None:
        """The first weight of the classifier among the names of a state dict."""
        return next((n for n in names if _within(n, [self.classifier]) and n.endswith(".weight")), None)

    def first_weight(self, state: Mapping[str, Tensor]) -> Tensor | None:
        """The filters of the first convolution in a state dict."""
        first = tuple(self._full(name) for name in self.stem)
        return next((t for n, t in state.items() if _within(n, first) and t.dim() == 4), None)

    def _full(self, name: str) -> str:
        return f"{BACKBONE}.{name}" if self.detector else name


@frozen
class Naming:
    """The names of one code base: how to recognize them, and how they become those of Vernier's model."""

    source: str
    marker: str
    """A regular expression that a name of these weights matches."""
    renames: tuple[tuple[str, str], ...] = ()
    """Regular expressions and what replaces them; all are applied, in order."""
    dropped: str = ""
    """A regular expression for tensors that are not weights."""
    needs: tuple[tuple[str, Any], ...] = ()
    """Options that the model must have for these weights."""


@frozen
class Described:
    """The declared properties of a model."""

    name: str
    family: str
    """As `vernier models` lists it; a file can declare several."""
    summary: str
    input_px: int
    classes: int
    """The outputs of the published model; a detector's include the background."""
    width: int
    """Its own `Options.width`, as published."""
    stem: str = ""
    """Its own `Options.stem`, if it has that option."""
    any_px: bool = False
    """Made for no certain image size: a recipe keeps its own."""
    preparation: tuple[tuple[str, Any], ...] = ()
    """Settings of `data` with which it was published, besides the image size."""

    def prepare(self, data: Data) -> Data:
        """The same data at the image size of the model, prepared as it was published."""
        if self.any_px:
            return data
        sized = replace(data, image_px=self.input_px, eval_px=0, eval_short_side_px=0)
        return replace(sized, **dict(self.preparation))


@frozen
class Entry(Described):
    """A model of a family, and how to build it. Random weights come from torch's default generator."""

    build: Callable[[Options], nn.Module]


@frozen
class ModelInfo(Described):
    """A model with its cost for images of `input_px` squared, three channels and `classes` classes."""

    params: int
    macs: int
    """Multiply-accumulates of one image's forward pass, in convolutions and matrix products."""
    layout: Layout
    groups: tuple[str, ...]
    """What the names of its layers start with."""

    @property
    def gmac(self) -> float:
        return self.macs / 1e9

    @property
    def detector(self) -> bool:
        return self.layout.detector


@frozen
class Family:
    """The models of one file."""

    models: tuple[Entry, ...]
    options: tuple[str, ...]
    """The fields of `Options` that have an effect, besides classes and channels."""
    namings: tuple[Naming, ...] = ()
    """Of third-party weights; the first whose marker occurs is used."""
    why_not_torchvision: Callable[[Model, int], str] = lambda spec, channels: "torchvision has no such model"
    """Why torchvision cannot build the model with these settings and channels; empty if it can."""


@runtime_checkable
class LearnsFromImages(Protocol):
    """A model that computes some of its weights from training images before the first step."""

    preparation_images: int

    def prepare(self, images: Tensor) -> str:
        """Set the weights from normalized images [N, channels, H, W]; a note about it."""
        ...


def layout_of(model: nn.Module) -> Layout:
    """The layout of a built model. Of a module without one, all layers are the head."""
    # A module of a user may have a `layout` that is something else.
    known = (getattr(model, name, None) for name in ("outside_layout", "layout"))
    bare = Layout(stem=(), stages=(), blocks=(), classifier="")
    return next((layout for layout in known if isinstance(layout, Layout)), bare)


def name_of(model: nn.Module) -> str:
    """The name of a built model for a message."""
    return str(getattr(model, "catalogue_name", "")) or f"this {type(model).__name__}"
