"""Loaders of others, as loader.py measures them: PyTorch's DataLoader over Pillow, and NVIDIA DALI.

`pillow_batches` is PyTorch's DataLoader as a torchvision user writes it (torchvision itself is not needed);
`dali_batches` is DALI's fused random-crop decoder on the CPU. Both read an image folder, and do RandomResizedCrop,
bilinear resizing and flips. Imports are inside the functions: only the measured processes need them.
"""

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from loading import BATCH, PREFETCH

from vernier.config import Config, Recipe

if TYPE_CHECKING:
    import torch


def pillow_batches(config: Config) -> Iterator[int]:
    """Load batches with DataLoader and Pillow for ever; yields their sizes."""
    from torch.utils.data import DataLoader

    paths = _image_paths(config)
    loader: Any = DataLoader(
        _PillowFolder(paths, config.recipe),  # type: ignore[arg-type]
        batch_size=min(BATCH, len(paths)),
        shuffle=True,
        drop_last=True,
        num_workers=config.machine.workers,
        persistent_workers=True,
        prefetch_factor=PREFETCH,
    )
    while True:
        for images, _ in loader:
            yield len(images)


def dali_batches(config: Config) -> Iterator[int]:
    """Load batches with DALI for ever; yields their sizes."""
    from nvidia.dali import fn, types
    from nvidia.dali.pipeline import pipeline_def

    paths, augment, px = _image_paths(config), config.recipe.augment, config.recipe.data.image_px

    @pipeline_def(  # type: ignore[untyped-decorator]
        batch_size=min(BATCH, len(paths)),
        num_threads=config.machine.workers,
        device_id=None,
        seed=0,
        prefetch_queue_depth=2,
    )
    def train_pipeline() -> Any:
        encoded, _ = fn.readers.file(files=paths, random_shuffle=True, name="files")
        images = fn.decoders.image_random_crop(
            encoded,
            device="cpu",
            output_type=types.RGB,
            random_area=list(augment.area),
            random_aspect_ratio=list(augment.ratio),
            num_attempts=10,
        )
        resized = fn.resize(images, resize_x=px, resize_y=px, interp_type=types.INTERP_LINEAR, antialias=True)
        return fn.flip(resized, horizontal=fn.random.coin_flip(probability=0.5))

    pipeline = train_pipeline()
    pipeline.build()
    while True:
        (images,) = pipeline.run()
        yield len(images)


def _image_paths(config: Config) -> list[str]:
    from vernier.data.sources import open_split

    source = open_split(config.recipe.data.source, "train")
    return [source.describe(i) for i in range(len(source))]


class _PillowFolder:
    """The data set of a torchvision user: open, convert, RandomResizedCrop, flip, to a uint8 tensor."""

    def __init__(self, paths: list[str], recipe: Recipe) -> None:
        self._paths, self._px, self._augment = paths, recipe.data.image_px, recipe.augment

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> "tuple[torch.Tensor, int]":
        import numpy as np
        import torch
        from PIL import Image

        with open(self._paths[index], "rb") as f:
            image = Image.open(f).convert("RGB")
        left, top, width, height = self._crop_box(*image.size)
        size = (self._px, self._px)
        image = image.crop((left, top, left + width, top + height)).resize(size, Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1), 0

    def _crop_box(self, width: int, height: int) -> tuple[int, int, int, int]:
        for _ in range(10):
            area = width * height * random.uniform(*self._augment.area)
            aspect = random.uniform(*self._augment.ratio)
            w, h = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
            if 0 < w <= width and 0 < h <= height:
                return random.randint(0, width - w), random.randint(0, height - h), w, h
        return 0, 0, width, height
