"""Describes a set of shapes: how many images, of which size and kind, from which seed.

Checks the values and names the files; drawing and writing them is up to the other modules.
"""

from typing import Literal

from vernier.errors import ConfigError
from vernier.frozen import frozen

from .outlines import CLASSES

SPLITS = ("train", "val")
MIN_PX, MAX_PX = 16, 1024
DEFAULT_PX = {"classify": 64, "detect": 160}


@frozen
class ShapesSpec:
    """Describes a set: equal specs give equal files. Raises ConfigError for a set that cannot be made."""

    kind: Literal["classify", "detect"] = "classify"
    train: int = 8000
    val: int = 1000
    size_px: int = 0
    """Side of the square images; 0 stands for the default of the kind: 64 to classify, 160 to detect."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("classify", "detect"):
            raise ConfigError(f"shapes: kind is {self.kind!r}; use 'classify' or 'detect'")
        for name in ("train", "val", "size_px", "seed"):
            if not isinstance(getattr(self, name), int) or isinstance(getattr(self, name), bool):
                raise ConfigError(f"shapes: {name} is {getattr(self, name)!r}; use a whole number")
        if self.size_px == 0:
            object.__setattr__(self, "size_px", DEFAULT_PX[self.kind])
        for name in SPLITS:
            if getattr(self, name) < 1:
                raise ConfigError(f"shapes: {name} is {getattr(self, name)} images; use 1 or more")
        if not MIN_PX <= self.size_px <= MAX_PX:
            raise ConfigError(f"shapes: size_px is {self.size_px}; use {MIN_PX} to {MAX_PX} pixels")
        if self.seed < 0:
            raise ConfigError(f"shapes: seed is {self.seed}; use 0 or more")

    @property
    def folder_name(self) -> str:
        """The name of the set's folder in the data home."""
        return f"shapes-{self.kind}-{self.size_px}px-{self.train}+{self.val}-seed{self.seed}"

    def images(self, split: str) -> int:
        """The number of images of a split. Raises ConfigError for an unknown split."""
        if split not in SPLITS:
            raise ConfigError(f"shapes: split is {split!r}; use one of {', '.join(SPLITS)}")
        return self.train if split == "train" else self.val

    def file_name(self, index: int) -> str:
        """The path of image `index`, relative to the folder of its split."""
        if self.kind == "detect":
            return f"{index + 1:06d}.jpg"
        name = CLASSES[index % len(CLASSES)]
        return f"{name}/{name}_{index // len(CLASSES) + 1:05d}.jpg"
