"""A network as it is exported: it takes decoded pixels and normalizes them itself. And the proof that another runtime
computes what PyTorch computes, on real images.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from vernier.data.augment.normalize import Normalizer
from vernier.data.loading.loader import Reader
from vernier.data.sources.base import Indices
from vernier.engine.inference.model_file import Outputs
from vernier.engine.inference.trained import Trained
from vernier.errors import ConfigError, RunFailed
from vernier.records.run import ExportCheck
from vernier.references import use
from vernier.tasks import task_of
from vernier.wording import plural

_OUTPUTS = {"classify": ("logits",), "detect": ("offsets", "logits")}
"""The names of a network's outputs, by task."""
_CHECK_IMAGES = 64
_TOLERANCE = 1e-3
"""Largest difference between a runtime's output and PyTorch's, as a share of the largest output."""


class ExportedNetwork(nn.Module):
    """A network as it is exported: normalisation in front unless its users do it, outputs of no class cut off."""

    def __init__(self, trained: Trained, normalized_input: bool) -> None:
        super().__init__()
        self.model = trained.model.eval()
        task = task_of(trained.config.recipe)
        # TensorFlow's recipes have a background class that the data does not have.
        self._classes = len(trained.classes) if task.name == "classify" else None
        data = trained.config.recipe.data
        self._normalize = Normalizer(data, torch.device("cpu"))
        self._normalized_input = normalized_input
        self.names = _OUTPUTS[task.name]
        self.takes = "uint8 [batch, channels, height, width], pixels from 0 to 255; the network normalises them"
        if normalized_input:
            scaling = f"(pixel / 255 - {list(data.mean)}) / {list(data.std)}"
            self.takes = f"float32 [batch, channels, height, width], already {scaling}"

    def forward(self, images: torch.Tensor) -> Any:
        outputs = self.model(images if self._normalized_input else self._normalize(images))
        return outputs if self._classes is None else outputs[:, : self._classes]

    def prepare_input(self, pixels: torch.Tensor) -> torch.Tensor:
        """uint8 images in the form this network takes."""
        return self._normalize(pixels) if self._normalized_input else pixels


def real_images(trained: Trained, data: str | None) -> torch.Tensor:
    """Validation images as the network sees them in evaluation, uint8 [images, channels, height, width]."""
    recipe = trained.config.recipe
    if data is not None:
        recipe = replace(recipe, data=replace(recipe.data, source=data))
    task = task_of(recipe, trained.config.machine)
    try:
        source = task.open("val")
    except ConfigError as error:
        raise ConfigError(
            f"{error.message} The exported model is checked on real images: give {use('data.source', slot='PATH')}."
        ) from None
    images, _ = read_images(task.eval_reader(source), spread_indices(len(source), _CHECK_IMAGES))
    if images.shape[1] != trained.channels:
        raise ConfigError(
            f"The model takes images of {plural(trained.channels, 'channel')}, the data has {images.shape[1]}."
        )
    return images


def spread_indices(samples: int, count: int) -> Indices:
    """The positions of at most `count` samples, spread evenly over all of them."""
    return np.linspace(0, samples - 1, min(count, samples)).astype(np.int64)


def read_images(reader: Reader, indices: Indices) -> tuple[torch.Tensor, Any]:
    """Images as evaluation prepares them, uint8 [images, channels, height, width], and their targets."""
    # Readers fill arrays in the loader's layout, channels last.
    pixels = torch.zeros((len(indices), *reader.shape), dtype=torch.uint8)
    filled = reader.fill(0, indices, pixels.numpy())
    return pixels.permute(0, 3, 1, 2).contiguous(), reader.targets(indices, [filled])


_REMOVED = f"The file was removed; try {use('format', 'safetensors')}."


def compare_outputs(
    expected: Outputs, outputs: Outputs, runtime: str, data: str, *, then: str = _REMOVED
) -> ExportCheck:
    """Compare a runtime's outputs with PyTorch's on the same images. Raises RunFailed when they differ too much.

    `then` is the end of its message: what happens now, and what to do.
    """
    if [e.shape for e in expected] != [o.shape for o in outputs]:
        raise RunFailed(f"{runtime} gives outputs of other shapes than PyTorch. {then}")
    difference = max(float((e - o).abs().max()) for e, o in zip(expected, outputs, strict=True))
    largest = max(float(e.abs().max()) for e in expected)
    images, same, classes = len(expected[0]), None, ""
    if len(expected) == 1 and expected[0].dim() == 2:  # a classifier
        same = int((expected[0].argmax(1) == outputs[0].argmax(1)).sum())
        classes = f"; the same class for {same} of {images} images"
    # `not ... <=`: NaN is a difference, too.
    if not difference <= _TOLERANCE * max(largest, 1.0) or same not in (None, images):
        raise RunFailed(
            f"{runtime} does not compute what PyTorch does: largest difference {difference:.3g} of outputs up to "
            f"{largest:.3g}{classes}. {then}"
        )
    return ExportCheck(
        against=runtime, images=images, data=data, max_difference=difference, largest_output=largest, same_top1=same
    )


def as_tuple(outputs: Any) -> Outputs:
    """A network's outputs as a tuple, also where it has only one."""
    return tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)


@contextmanager
def quiet_exporters() -> Iterator[None]:
    """Without the exporters' messages about optional packages and their own deprecations."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(logging.NOTSET)
