"""Describes and draws a data set: `vernier data inspect`. Counts, sizes, class balance, a contact sheet."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow
from PIL import ImageDraw

from vernier.data.augment.crop_flip import resize
from vernier.data.decoding.decode import BadImage, read_size
from vernier.data.sources import EncodedSource, Source
from vernier.data.sources.base import BoxSource, spread_evenly
from vernier.frozen import frozen
from vernier.records.codec import omitted

_THUMB, _GAP, _CAPTION = 128, 6, 14  # pixels
_COLOURS = ((230, 60, 60), (60, 160, 230), (80, 190, 90), (235, 170, 40), (170, 90, 210), (40, 190, 190))


@frozen
class ImagesPerClass:
    """How many images, or boxes, a class has."""

    fewest: int
    median: float
    most: int


@frozen
class SplitFacts:
    """Counts, sizes and class balance of one split. `vernier data inspect --json` prints it."""

    images: int
    classes: int
    boxes: int | None = omitted()
    boxes_cut_at_the_edge: int | None = omitted()
    boxes_without_area_dropped: int | None = omitted()
    images_without_boxes: int | None = omitted()
    per_class: ImagesPerClass
    rarest: tuple[str, ...] | None = omitted()
    """The three rarest classes, where they are not all equally frequent."""
    median_size: str | None = omitted()
    smallest_side_px: int | None = omitted()
    largest_side_px: int | None = omitted()
    sizes_from: int | None = omitted()
    """The number of images whose size was read."""
    notes: tuple[str, ...] | None = omitted()
    """What is special about the split: the order of its classes, what was left out, where it is from."""


def describe(splits: dict[str, Source], sample: int = 500) -> dict[str, SplitFacts]:
    """Counts, sizes and class balance per split; sizes from `sample` images."""
    return {split: _describe_split(source, sample) for split, source in splits.items()}


def _describe_split(source: Source, sample: int) -> SplitFacts:
    sizes = read_sizes(source, sample)
    sides = [side for size in sizes for side in size]
    counts = count_classes(source)
    boxes = source if isinstance(source, BoxSource) else None
    balanced = min(counts) == max(counts)
    widths, heights = zip(*sizes, strict=True) if sizes else ((), ())
    return SplitFacts(
        images=len(source),
        classes=len(source.classes),
        boxes=sum(counts) if boxes else None,
        boxes_cut_at_the_edge=boxes.cut_boxes if boxes else None,
        boxes_without_area_dropped=boxes.dropped_boxes if boxes else None,
        images_without_boxes=boxes.without_boxes if boxes else None,
        per_class=ImagesPerClass(fewest=min(counts), median=float(np.median(counts)), most=max(counts)),
        # stable: equally rare classes appear in the order of the set.
        rarest=None if balanced else tuple(source.classes[i] for i in np.argsort(counts, kind="stable")[:3]),
        median_size=f"{int(np.median(widths))} x {int(np.median(heights))}" if sizes else None,
        smallest_side_px=min(sides) if sizes else None,
        largest_side_px=max(sides) if sizes else None,
        sizes_from=len(sizes) or None,
        notes=source.notes or None,
    )


def read_sizes(source: Source, sample: int) -> list[tuple[int, int]]:
    """Width and height of so many images, evenly spread over a set; unreadable ones are left out."""
    return [s for s in (_size(source, i) for i in spread_evenly(len(source), sample)) if s is not None]


def count_classes(source: Source) -> list[int]:
    """Boxes per class where the source has boxes, otherwise images per class."""
    counts: Counter[int] = Counter()
    if isinstance(source, BoxSource):
        for i in range(len(source)):
            counts.update(source.boxes(i).classes.tolist())
    else:
        counts.update(source.all_labels().tolist())
    # With zeros: a class without images must show up as the rarest.
    return [counts.get(i, 0) for i in range(len(source.classes))]


def _size(source: Source, index: int) -> tuple[int, int] | None:
    try:
        # From the header, without decoding.
        if isinstance(source, EncodedSource):
            return read_size(source.read(index))
        height, width = source.image(index).shape[:2]
        return width, height
    except (BadImage, OSError):
        return None


# ------------------------------------------------------------------------------------------------------- contact sheet


def draw_contact_sheet(source: Source, path: Path, columns: int = 8, rows: int = 5) -> None:
    """Write a PNG with images spread over the set, their classes below them, and boxes where there are any."""
    count = min(columns * rows, len(source))
    cell_w, cell_h = _THUMB + _GAP, _THUMB + _GAP + _CAPTION
    sheet = Pillow.new("RGB", (columns * cell_w + _GAP, -(-count // columns) * cell_h + _GAP), (250, 250, 250))
    draw = ImageDraw.Draw(sheet)
    # Spread, because folders are sorted by class: the first images would all be of one.
    for cell, index in enumerate(spread_evenly(len(source), count)):
        x, y = _GAP + cell % columns * cell_w, _GAP + cell // columns * cell_h
        caption = _paste(sheet, draw, source, index, x, y)
        draw.text((x, y + _THUMB + 1), caption[:20], fill=(40, 40, 40))
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, "PNG")


def _paste(sheet: Pillow.Image, draw: Any, source: Source, index: int, x: int, y: int) -> str:
    """Draw one image with its boxes at (x, y). Returns its caption."""
    try:
        image = source.image(index)
    except (BadImage, OSError):
        draw.rectangle((x, y, x + _THUMB, y + _THUMB), outline=(200, 0, 0))
        return "unreadable"
    scale = _THUMB / max(image.shape[:2])
    # The short side of a very long image would round to 0.
    width, height = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    small = resize(image, width, height)
    sheet.paste(Pillow.fromarray(np.repeat(small, 3, axis=2) if small.shape[2] == 1 else small), (x, y))
    if not isinstance(source, BoxSource):
        return source.classes[int(source.labels[index])]
    boxes = source.boxes(index)
    for (left, top, right, bottom), kind in zip(boxes.ltrb.tolist(), boxes.classes.tolist(), strict=True):
        colour = _COLOURS[kind % len(_COLOURS)]
        # Both ends are part of Pillow's rectangle, and it refuses one that ends before it begins.
        edges = [x + left * scale, y + top * scale, x + right * scale - 1, y + bottom * scale - 1]
        draw.rectangle((*edges[:2], max(edges[0], edges[2]), max(edges[1], edges[3])), outline=colour)
    return ", ".join(dict.fromkeys(source.classes[k] for k in boxes.classes.tolist())) or "no boxes"


def outline_boxes(images: npt.NDArray[np.uint8], ltrb: npt.NDArray[np.float32], classes: npt.NDArray[np.int64]) -> None:
    """Draw the objects of a batch into its images, [samples, height, width, channels]; a class has one colour.

    Boxes [samples, objects, 4] are shares of the image; objects of class 0 are padding.
    """
    height, width, channels = images.shape[1:]
    scale = np.array([width, height, width, height])
    for image, boxes, kinds in zip(images, np.rint(ltrb * scale).astype(int), classes.tolist(), strict=True):
        for box, kind in zip(boxes, kinds, strict=True):
            if not kind:
                continue
            # At least one pixel inside the image, also for a box thinner than that or at the edge.
            left, top = np.clip(box[:2], 0, (width - 1, height - 1))
            right, bottom = np.clip(box[2:] - 1, (left, top), (width - 1, height - 1))
            # Classes count from 1 here and from 0 in `_paste`: a class has the same color in both.
            colour = np.array(_COLOURS[(kind - 1) % len(_COLOURS)], np.uint8)[:channels]
            image[top : bottom + 1, [left, right]] = colour
            image[[top, bottom], left : right + 1] = colour
