"""What lies in a folder of photographs: classes or boxes, how many, how large.

Layouts are recognised in `data.sources`.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vernier.data.decoding.decode import BadImage
from vernier.data.overview import count_classes, glance_at_some
from vernier.data.sources import Source, open_boxes, open_split
from vernier.data.sources.base import BoxSource, count_validation
from vernier.data.sources.folder import explain_content
from vernier.data.sources.opening import recognise_folder
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.references import command, use
from vernier.wording import plural

_SAMPLED_IMAGES = 300
_FEWEST_IMAGES = 4
_CHECKED_IMAGES = 2_000  # reading their files takes seconds


@frozen
class BoxSides:
    """Sides of the boxes as shares of the image (square root of the area): the small, the middle and the large ones."""

    small: float
    middle: float
    large: float


@frozen
class Survey:
    """A folder of photographs, as far as the settings of a training depend on it."""

    folder: str
    boxes: bool
    """Images with boxes; otherwise images with one class each."""
    layout: str
    both: bool = False
    """There are class folders and boxes; the other one is not used."""
    splits: tuple[str, ...]
    classes: tuple[str, ...]
    images: int
    """For training, before a part of them is held out."""
    per_class: tuple[int, ...]
    """Images of each class; with boxes: its objects."""
    width_px: int
    height_px: int
    """Medians over up to 300 images."""
    box_sides: BoxSides | None = None
    unusable: tuple[str, ...] = ()
    """Training images that cannot be used, with the reason; sets of more than 2,000 are not checked."""

    def describe(self) -> str:
        """One line about what was found."""
        what = "images with boxes" if self.boxes else "images"
        fewest, most = min(self.per_class), max(self.per_class)
        amount = f"{fewest:,} to " if fewest < most else ""
        counts = f"{amount}{plural(most, 'box' if self.boxes else 'image')} per class"
        task = "classes" if self.boxes else "boxes"
        other = f". It has {task} too: {use('task', task)}" if self.both else ""
        return (
            f"{self.images:,} {what} of {plural(len(self.classes), 'class')} ({self.layout}), {counts}, "
            f"{self.width_px} x {self.height_px} pixels{other}"
        )

    def count_held_out(self, share: float) -> int:
        """How many images are held out: a share of each class, or with boxes of the whole set."""
        groups = (self.images,) if self.boxes else self.per_class
        return sum(count_validation(count, share) for count in groups)


def survey(folder: str, boxes: bool | None = None, *, exif: bool = True) -> Survey:
    """Look at a folder; `boxes` decides where it has both. Raises ConfigError where nothing can be trained there."""
    content = recognise_folder(folder, boxes)
    boxes, splits = content.boxes, content.splits
    # Without splits all images: how many are held out depends on how many each class has.
    source: Source = (open_boxes if boxes else open_split)(folder, "train", whole=not splits, exif=exif)
    counts = count_classes(source)
    sizes = [each.size for each in glance_at_some(source, _SAMPLED_IMAGES) if each.size]
    checked = glance_at_some(source, _CHECKED_IMAGES) if len(source) <= _CHECKED_IMAGES else []
    unusable = tuple(each.problem for each in checked if each.problem)
    _refuse_too_little(folder, source, sizes, boxes)
    return Survey(
        folder=folder,
        boxes=boxes,
        layout=content.layout,
        both=content.both,
        splits=splits,
        classes=source.classes,
        images=len(source),
        unusable=unusable,
        per_class=tuple(counts),
        width_px=int(np.median([width for width, _ in sizes])),
        height_px=int(np.median([height for _, height in sizes])),
        box_sides=_box_sides(source) if isinstance(source, BoxSource) else None,
    )


def _refuse_too_little(folder: str, source: Source, sizes: Sequence[tuple[int, int]], boxes: bool) -> None:
    if len(source) < _FEWEST_IMAGES:
        raise ConfigError(
            f"{folder} has {plural(len(source), 'training image')}. Fine-tuning needs at least {_FEWEST_IMAGES}, and "
            "gives useful results from about 20 per class on."
        )
    if not boxes and len(source.classes) < 2:
        raise ConfigError(
            f"{folder} has one class ({source.classes[0]}). A classifier needs at least two: one folder per class."
            f"{explain_content(Path(folder))}"
        )
    if not sizes:
        raise ConfigError(
            f"{folder}: none of the first images could be read. {command('data verify', folder)} lists what is wrong."
        )


def _box_sides(source: BoxSource) -> BoxSides:
    """Quantiles 5, 50 and 95 % of the sides of all boxes of up to 300 images."""
    sides: list[float] = []
    for index in range(0, len(source), max(1, len(source) // _SAMPLED_IMAGES)):
        try:
            # Only some layouts state the size; otherwise the image is decoded.
            width, height = source.size(index) or source.image(index).shape[1::-1]
        except (BadImage, OSError):
            continue  # counted among the unusable images
        ltrb = source.boxes(index).ltrb
        sides += np.sqrt((ltrb[:, 2:] - ltrb[:, :2]).prod(axis=1) / (width * height)).tolist()
    small, middle, large = np.quantile(sides, (0.05, 0.5, 0.95)).tolist() if sides else (0.1, 0.2, 0.5)
    return BoxSides(small=small, middle=middle, large=large)
