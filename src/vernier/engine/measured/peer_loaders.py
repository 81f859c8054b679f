"""The loaders that `vernier bench data` can measure beside Vernier's: DataLoader over Pillow, and NVIDIA DALI.

`pillow` is PyTorch's DataLoader as a torchvision user writes it (torchvision itself is not needed); `dali` is DALI's
fused random-crop decoder on the CPU. Both read an image folder. `loading` measures them. Imports are inside the
functions: only the measured processes need them.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vernier.config import Augment, Machine, Recipe
from vernier.errors import ConfigError
from vernier.references import given

from .loading import BATCH, PREFETCH, LoaderSpec, native_batches

if TYPE_CHECKING:
    import torch


def pillow_batches(spec: LoaderSpec) -> Iterator[int]:
    """Load batches with DataLoader and Pillow for ever; yields their sizes."""
    from torch.utils.data import DataLoader

    paths = _image_paths(spec)
    loader: Any = DataLoader(
        _PillowFolder(paths, spec.recipe),  # type: ignore[arg-type]
        batch_size=min(BATCH, len(paths)),
        shuffle=True,
        drop_last=True,
        num_workers=spec.workers,
        persistent_workers=True,
        prefetch_factor=PREFETCH,
    )
    while True:
        for images, _ in loader:
            yield len(images)


def dali_batches(spec: LoaderSpec) -> Iterator[int]:
    """Load batches with DALI for ever; yields their sizes."""
    from vernier.data.loading.dali import train_pipeline

    paths = _image_paths(spec)
    batch, augment = min(BATCH, len(paths)), spec.recipe.augment
    pipeline = train_pipeline(
        paths,
        batch=batch,
        threads=spec.workers,
        image_px=spec.recipe.data.image_px,
        area=augment.area,
        ratio=augment.ratio,
    )
    while True:
        (images,) = pipeline.run()
        yield len(images)


def _image_paths(spec: LoaderSpec) -> list[str]:
    from vernier.data.sources import FolderSource, open_split

    source = open_split(spec.path, spec.split)
    if not isinstance(source, FolderSource):
        raise ConfigError(f"{spec.path} is not an image folder, and {spec.name} reads nothing else here.")
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


PEERS = {"compiled": native_batches, "pillow": pillow_batches, "dali": dali_batches}
"""Other loaders, and Vernier's own with machine.backend = compiled."""


def loaders_of_folder(
    path: str, machine: Machine, peers: tuple[str, ...], recipe: Recipe
) -> tuple[list[LoaderSpec], list[tuple[str, str]]]:
    """Vernier's loader of `path` with one worker and with the machine's, the peers with the machine's, and the pairs to
    compare. Raises ConfigError where the peers cannot prepare images as the recipe does."""
    if others := tuple(peer for peer in peers if peer != "compiled"):
        _check_same_work(recipe, others)
    workers = machine.workers
    kinds = {"vernier": native_batches, **{peer: PEERS[peer] for peer in peers}}
    specs = [
        LoaderSpec(
            name=f"{name} x{workers}",
            batches=batches,
            path=path,
            workers=workers,
            recipe=recipe,
            machine=replace(machine, backend="compiled" if name == "compiled" else "native"),
        )
        for name, batches in kinds.items()
    ]
    if workers > 1:
        specs.append(replace(specs[0], name="vernier x1", workers=1))
    return specs, [(specs[0].name, spec.name) for spec in specs[1:]]


def _check_same_work(recipe: Recipe, peers: tuple[str, ...]) -> None:
    augment, plain = recipe.augment, Augment()
    names = ("crop", "flip", "policy", "erase", "jitter", "repeats")
    differing = [f"augment.{n} = {getattr(augment, n)}" for n in names if getattr(augment, n) != getattr(plain, n)]
    if recipe.data.interpolation != "bilinear":
        differing.append(f"data.interpolation = {recipe.data.interpolation}")
    if differing:
        raise ConfigError(
            f"{given('against', peers)}: they do RandomResizedCrop, bilinear resizing and flips only, and the recipe "
            f"{recipe.name} has {', '.join(differing)}. Leave out {given('against')}, or {given('recipe')}."
        )
