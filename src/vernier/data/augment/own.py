"""Transforms of users (augment.extra): the last to change a training image, after crop, flip and policies.

`f(image, target, rng)` gets the uint8 image [height, width, channels] as the network will get it, and returns one of
the same size. `target` is the class number; of a detector, the boxes as fractions of the image. The random generator
is a function of (seed, epoch, sample): any worker, process or restart gets the same numbers.
"""

from typing import Any

import numpy as np

from vernier.config import Augment
from vernier.config.settings import TRANSFORMS
from vernier.data.decoding.decode import Image
from vernier.own_code import OwnPart
from vernier.randomness import Stream, key


class OwnTransforms:
    """All of a recipe, in order. False if there are none."""

    def __init__(self, augment: Augment, seed: int) -> None:
        self._parts = [OwnPart("augment.extra", text, TRANSFORMS) for text in augment.extra]
        self._seed = seed

    def __bool__(self) -> bool:
        return bool(self._parts)

    def __call__(self, epoch: int, index: int, image: Image, target: Any) -> None:
        """Change the image, which is a row of the batch."""
        for number, part in enumerate(self._parts):
            # One stream per transform: another one in front does not change what this one draws.
            at = key(Stream.OWN_TRANSFORM, self._seed, epoch, index, number)
            changed = part(image, target, np.random.Generator(np.random.Philox(key=at)))
            if not isinstance(changed, np.ndarray) or (changed.shape, changed.dtype) != (image.shape, image.dtype):
                got = type(changed).__name__
                if isinstance(changed, np.ndarray):
                    got = f"{changed.dtype} {list(changed.shape)}"
                raise part.wrong(f"returned {got}; a transform returns the image as it got it: uint8 {[*image.shape]}")
            if changed is not image:
                image[...] = changed
