"""Describes a set of shapes: how many images, of which size and kind, from which seed.

Names the files; drawing and writing them is up to the other modules.
"""

from typing import Literal

from vernier.frozen import frozen

from .outlines import CLASSES

SPLITS = ("train", "val")
_DEFAULT_PX = {"classify": 64, "detect": 160}


@frozen
class ShapesSpec:
    """Describes a set: equal specs give equal files. `vernier data make` checks the ranges."""

    kind: Literal["classify", "detect"] = "classify"
    train: int = 8000
    val: int = 1000
    size_px: int = 0
    """Side of the square images; 0 stands for the default of the kind: 64 to classify, 160 to detect."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size_px == 0:
            object.__setattr__(self, "size_px", _DEFAULT_PX[self.kind])

    @property
    def folder_name(self) -> str:
        """The name of the set's folder in the data home."""
        return f"shapes-{self.kind}-{self.size_px}px-{self.train}+{self.val}-seed{self.seed}"

    def images(self, split: str) -> int:
        """The number of images of a split."""
        return self.train if split == "train" else self.val

    def file_name(self, index: int) -> str:
        """The path of image `index`, relative to the folder of its split."""
        if self.kind == "detect":
            return f"{index + 1:06d}.jpg"
        name = CLASSES[index % len(CLASSES)]
        return f"{name}/{name}_{index // len(CLASSES) + 1:05d}.jpg"
