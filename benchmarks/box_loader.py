"""The detector's reader beside code in torchvision's style: PyTorch's DataLoader over Pillow with SSD's augmentation.

The peer does what MLPerf's PyTorch reference does (SSDCropping, flip, resize to 300 pixels, torchvision's ColorJitter),
written out here with the operations that torchvision calls, so that torchvision itself is not needed. Both give uint8
images and boxes as shares of the image, in batches of 32. They take turns, each in a process of its own. Usage:

    python benchmarks/box_loader.py [COCO] [--workers 1] [--rounds 12] [--images 250] [--json]

COCO is any detection set that `vernier train` takes (default: the photographs of the tests).
"""

import argparse
import json
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from loader import loading_config, show
from loading import (
    BATCH,
    NATIVE,
    PREFETCH,
    LoaderSpec,
    measure_loaders,
    summarize_loaders,
)

from vernier import recipes
from vernier.config import Config, Recipe
from vernier.records.codec import encode

OVERLAPS = (None, 0.1, 0.3, 0.5, 0.7, 0.9, float("-inf"))
"""The modes of SSDCropping: the whole image, or a window that every box overlaps by more than this."""
BRIGHTNESS, CONTRAST, SATURATION, HUE = 0.125, 0.5, 0.5, 0.05


def overlaps(ltrb: Any, window: Any) -> Any:
    """IoU of each box with a window, as the reference's calc_iou_tensor."""
    import torch

    shared = (torch.min(ltrb[:, 2:], window[2:]) - torch.max(ltrb[:, :2], window[:2])).clamp(min=0).prod(1)
    areas = (ltrb[:, 2:] - ltrb[:, :2]).prod(1)
    return shared / (areas + (window[2:] - window[:2]).prod() - shared)


def ssd_crop(image: Any, ltrb: Any, labels: Any) -> tuple[Any, Any, Any]:
    """MLPerf's SSDCropping with one trial per mode."""
    import torch

    while (least := random.choice(OVERLAPS)) is not None:
        w, h = random.uniform(0.3, 1.0), random.uniform(0.3, 1.0)
        if not 0.5 <= w / h <= 2:
            continue
        left, top = random.uniform(0, 1 - w), random.uniform(0, 1 - h)
        window = torch.tensor([left, top, left + w, top + h])
        if not (overlaps(ltrb, window) > least).all():
            continue
        centre = (ltrb[:, :2] + ltrb[:, 2:]) / 2
        inside = ((centre > window[:2]) & (centre < window[2:])).all(1)
        if not inside.any():
            continue
        size = torch.tensor([w, h, w, h])
        ltrb = ((ltrb[inside] - window[:2].repeat(2)) / size).clamp(0, 1)
        edges = [int(share * side) for share, side in zip(window.tolist(), image.size * 2, strict=True)]
        return image.crop(edges), ltrb, labels[inside]
    return image, ltrb, labels


def colour_jitter(image: Any) -> Any:
    """torchvision's ColorJitter: Pillow's enhancers and a hue in 8-bit HSV, in random order."""
    from PIL import ImageEnhance

    def enhance(kind: Any, most: float) -> Any:
        return lambda image: kind(image).enhance(random.uniform(1 - most, 1 + most))

    changes = [
        enhance(ImageEnhance.Brightness, BRIGHTNESS),
        enhance(ImageEnhance.Contrast, CONTRAST),
        enhance(ImageEnhance.Color, SATURATION),
        turn_hue,
    ]
    for change in random.sample(changes, len(changes)):
        image = change(image)
    return image


def turn_hue(image: Any) -> Any:
    from PIL import Image

    hue, saturation, value = image.convert("HSV").split()
    turned = np.array(hue) + np.uint8(int(random.uniform(-HUE, HUE) * 255) % 256)
    return Image.merge("HSV", (Image.fromarray(turned), saturation, value)).convert("RGB")


class PillowBoxes:
    """The data set of a torchvision user: image and target in, augmented tensors out."""

    def __init__(self, config: Config) -> None:
        from vernier.data.sources.opening import open_boxes

        self._source = open_boxes(config.recipe.data.source, "train")
        self._px, self._augment = config.recipe.data.image_px, config.recipe.augment

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> tuple[Any, Any, Any]:
        import torch
        from PIL import Image

        boxes = self._source.boxes(index)
        with open(self._source.describe(index), "rb") as f:
            image = Image.open(f).convert("RGB")
        real = ~boxes.crowd
        ltrb = torch.from_numpy(boxes.ltrb[real]).float() / torch.tensor([*image.size, *image.size])
        image, ltrb, labels = ssd_crop(image, ltrb, torch.from_numpy(boxes.classes[real]) + 1)
        image = image.resize((self._px, self._px), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            ltrb = torch.stack([1 - ltrb[:, 2], ltrb[:, 1], 1 - ltrb[:, 0], ltrb[:, 3]], dim=1)
        if self._augment.jitter != "none":
            image = colour_jitter(image)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1), ltrb, labels


def collate(samples: list[tuple[Any, Any, Any]]) -> tuple[Any, list[Any], list[Any]]:
    """One tensor of images; boxes and classes as lists, as detection references do."""
    import torch

    images, boxes, labels = zip(*samples, strict=True)
    return torch.stack(images), list(boxes), list(labels)


def pillow_box_batches(config: Config) -> Iterator[int]:
    """Load batches with DataLoader and Pillow for ever; yields their sizes."""
    from torch.utils.data import DataLoader

    loader: Any = DataLoader(
        PillowBoxes(config),  # type: ignore[arg-type]
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=config.machine.workers,
        persistent_workers=True,
        prefetch_factor=PREFETCH,
        collate_fn=collate,
    )
    while True:
        for images, _, _ in loader:
            yield len(images)


def plan(path: str, workers: int, recipe: Recipe) -> tuple[list[LoaderSpec], list[tuple[str, str]]]:
    """Both loaders with the recipe's augmentation, and without its colour jitter."""
    plain = replace(recipe, augment=replace(recipe.augment, jitter="none"))
    specs = [
        LoaderSpec(name=f"{name}{suffix}", loader=loader, config=loading_config(path, workers, chosen))
        for suffix, chosen in ((" with jitter", recipe), (" without", plain))
        for name, loader in (("vernier", NATIVE), ("pillow", "box_loader:pillow_box_batches"))
    ]
    return specs, [(specs[0].name, specs[1].name), (specs[2].name, specs[3].name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("VERNIER_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data") / "coco"
    parser.add_argument("folder", type=Path, nargs="?", default=default, metavar="COCO")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--images", type=int, default=250, help="per round")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    specs, pairs = plan(str(arguments.folder), arguments.workers, recipes.get("mlperf-ssd"))
    loaders = measure_loaders(specs, rounds=arguments.rounds, images=arguments.images)
    report = summarize_loaders(loaders, pairs, ("passed", "processor"))
    print(json.dumps(encode(report), indent=1)) if arguments.json else show(report)


if __name__ == "__main__":
    main()
