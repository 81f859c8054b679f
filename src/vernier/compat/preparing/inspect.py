"""Describes and draws a data set: `vernier data inspect`. Counts, sizes, class balance, a contact sheet."""

from pathlib import Path

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw

from vernier.data.augment.crop_flip import resize
from vernier.data.decoding.decode import BadImage, Image
from vernier.data.overview import count_classes, glance_at_some, outline_boxes
from vernier.data.sources import Source
from vernier.data.sources.base import BoxSource, spread_evenly
from vernier.frozen import frozen
from vernier.records.codec import omitted

_THUMB, _GAP, _CAPTION = 128, 6, 14  # pixels


@frozen
class _ImagesPerClass:
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
    per_class: _ImagesPerClass
    rarest: tuple[str, ...] | None = omitted()
    """The three rarest classes, where they are not all equally frequent."""
    median_size: str | None = omitted()
    smallest_side_px: int | None = omitted()
    largest_side_px: int | None = omitted()
    sizes_from: int | None = omitted()
    """The number of images whose size was read."""
    turned_by_exif: int | None = omitted()
    """How many of these EXIF turns upright; None if there is none."""
    notes: tuple[str, ...] | None = omitted()
    """What is special about the split: the order of its classes, what was left out, where it is from."""


def describe(splits: dict[str, Source], sample: int = 500) -> dict[str, SplitFacts]:
    """Counts, sizes and class balance per split; sizes from `sample` images."""
    return {split: _describe_split(source, sample) for split, source in splits.items()}


def _describe_split(source: Source, sample: int) -> SplitFacts:
    glances = glance_at_some(source, sample)
    sizes = [each.size for each in glances if each.size]
    sides = [side for size in sizes for side in size]
    counts = count_classes(source)
    boxes = source if isinstance(source, BoxSource) else None
    # Of a balanced set the three rarest are any three.
    balanced = min(counts) == max(counts)
    widths, heights = zip(*sizes, strict=True) if sizes else ((), ())
    return SplitFacts(
        images=len(source),
        classes=len(source.classes),
        boxes=sum(counts) if boxes else None,
        boxes_cut_at_the_edge=boxes.cut_boxes if boxes else None,
        boxes_without_area_dropped=boxes.dropped_boxes if boxes else None,
        images_without_boxes=boxes.without_boxes if boxes else None,
        per_class=_ImagesPerClass(fewest=min(counts), median=float(np.median(counts)), most=max(counts)),
        # stable: equally rare classes appear in the order of the set.
        rarest=None if balanced else tuple(source.classes[i] for i in np.argsort(counts, kind="stable")[:3]),
        median_size=f"{int(np.median(widths))} x {int(np.median(heights))}" if sizes else None,
        smallest_side_px=min(sides) if sizes else None,
        largest_side_px=max(sides) if sizes else None,
        sizes_from=len(sizes) or None,
        turned_by_exif=sum(each.turned for each in glances) or None,
        notes=source.notes or None,
    )


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
        try:
            thumbnail, caption = _thumbnail(source, index)
            sheet.paste(Pillow.fromarray(thumbnail), (x, y))
        except (BadImage, OSError):
            caption = "unreadable"
            draw.rectangle((x, y, x + _THUMB, y + _THUMB), outline=(200, 0, 0))
        draw.text((x, y + _THUMB + 1), caption[:20], fill=(40, 40, 40))
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, "PNG")


def _thumbnail(source: Source, index: int) -> tuple[Image, str]:
    """A small image with its boxes, and its caption."""
    image = source.image(index)
    height, width = image.shape[:2]
    scale = _THUMB / max(height, width)
    # The short side of a very long image would round to 0.
    small = np.array(resize(image, max(1, round(width * scale)), max(1, round(height * scale))))
    small = np.repeat(small, 3, axis=2) if small.shape[2] == 1 else small
    if not isinstance(source, BoxSource):
        return small, source.classes[int(source.labels[index])]
    boxes = source.boxes(index)
    shares = (boxes.ltrb / [width, height, width, height]).astype(np.float32)
    outline_boxes(small[None], shares[None], boxes.classes[None] + 1)
    return small, ", ".join(dict.fromkeys(source.classes[k] for k in boxes.classes.tolist())) or "no boxes"
