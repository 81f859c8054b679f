"""Data sets of users: an object with a length, the names of its classes and samples by index becomes a source.

`sample(index)` (or `__getitem__`, as torch's map-style data sets have it) gives an image and its target: encoded bytes,
a uint8 array [height, width, channels], a PIL image or a tensor [channels, height, width]; and a class number, or for
a detector {"boxes": left, top, right, bottom in pixels, "classes": numbers from 0}. Loader threads call it at the same
time. Splits are what the constructor makes for `split=`, the values of a mapping, or parts of one set.
"""

import copy
import inspect
import operator
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from vernier.config.settings import DATA_SOURCES
from vernier.data.decoding.decode import BadImage, Croppable, Image, decode, lazy_image
from vernier.data.sources.base import (
    Boxes,
    BoxSource,
    Indices,
    Source,
    choose_validation,
    spread_evenly,
)
from vernier.errors import ConfigError, NoSuchSplit
from vernier.own_code import OwnPart
from vernier.references import given

_CHECKED = 8
"""Samples in a fingerprint: enough to notice another set, few enough to be read in a moment."""


def open_own(
    text: str, split: str, *, boxes: bool, val_share: float, whole: bool, hold_out: bool, exif: bool
) -> "OwnSource":
    """A split of a user's data set, with the rules of `opening.open_split`."""
    part = OwnPart("data.source", text, DATA_SOURCES, "shapes", instantiate=False)
    name = "train" if hold_out and split != "test" else split
    own, has_splits = part.value, False
    if callable(own):
        has_splits = "split" in part.run(inspect.signature, own).parameters
        own = part.run(own, **({"split": name} if has_splits else {}))
    if isinstance(own, Mapping):
        if name not in own:
            raise NoSuchSplit(f"{given('data.source', text)} has no {name} split. It has: {', '.join(own)}.")
        own, has_splits = own[name], True
    source = (OwnBoxSource if boxes else OwnSource)(part, own, exif=exif)
    if has_splits and not hold_out:
        return source
    if whole:
        source.note_undivided(text)
        return source
    if split == "test":
        raise NoSuchSplit(f"{given('data.source', text)} has no test split. Use train or val.")
    every = np.arange(len(source))
    in_val = np.isin(every, choose_validation([source.name(index) for index in every.tolist()], val_share))
    chosen = source.select(every[in_val if split == "val" else ~in_val])
    chosen.note_held_out(text, split, int(in_val.sum()), len(every), has_splits=has_splits)
    return chosen


class _Labels:
    """Class numbers, known once a sample was read: the loader reads its image first, so nothing is read twice."""

    def __init__(self, source: "OwnSource", size: int) -> None:
        self._source, self.known = source, np.full(size, -1, np.int64)

    def __len__(self) -> int:
        return len(self.known)

    def __getitem__(self, samples: Any) -> Any:
        for index in np.unique(samples).tolist():
            if self.known[index] < 0:
                self._source.read(index)
        return self.known[samples]


class OwnSource(Source):
    """Samples of a user's object. Raises ConfigError for one that has none, RunFailed for wrong ones."""

    labels: _Labels

    def __init__(self, part: OwnPart, own: Any, *, exif: bool) -> None:
        self._part, self._own, self._exif = part, own, exif
        part.passing = (*part.passing, OSError, BadImage)  # of a sample: a bad image
        self._sample = getattr(own, "sample", None) or getattr(own, "__getitem__", None)
        if self._sample is None or not hasattr(own, "__len__") or not hasattr(own, "classes"):
            raise ConfigError(
                f"{given('data.source', part.text)} gave {type(own).__name__}, which is no data set: it needs "
                "__len__(), sample(index), and classes, the names of its classes."
            )
        self.classes = tuple(map(str, own.classes))
        self._length = part.run(len, own)
        if not self._length:
            raise ConfigError(f"{given('data.source', part.text)} has no samples.")
        self._numbers = np.arange(self._length)
        self.labels = _Labels(self, self._length)
        self._last = threading.local()  # a detector asks for an image, then for its boxes
        self.channels = 0  # until there is an image
        first = self.image(0)
        self.channels = first.shape[2]
        self._repeats = np.array_equal(first, self.image(0))
        if not self._repeats:
            self.notes += (f"{part.text} gives other pixels each time, so runs cannot be repeated exactly",)

    def select(self, numbers: Indices) -> "OwnSource":
        """Some of the samples."""
        part = copy.copy(self)
        part._numbers, part.labels = numbers, _Labels(part, len(numbers))
        return part

    def read(self, index: int) -> tuple[Any, Any]:
        """An image and its target as the object gives them. An OSError in it is a bad image, anything else an error."""
        number, length = int(self._numbers[index]), self._part.run(len, self._own)
        if length != self._length:
            raise self._part.wrong(f"had {self._length} samples at first and has {length} now; it must keep its length")
        try:
            sample = self._part.run(self._sample, number)
        except OSError as error:
            raise BadImage(str(error)) from error
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise self._part.wrong(f"gave {type(sample).__name__} as sample {number}; it is an image and its target")
        self._note_target(index, sample[1])
        return sample[0], sample[1]

    def _note_target(self, index: int, target: Any) -> None:
        self.labels.known[index] = self._class_number(target, index)

    def _class_number(self, target: Any, index: int) -> int:
        try:
            number = operator.index(target)
        except TypeError:
            number = -1
        if not 0 <= number < len(self.classes):
            raise self._part.wrong(
                f"gave class {target!r} for sample {self.name(index)}; it is a whole number from 0 to "
                f"{len(self.classes) - 1}"
            )
        return number

    def image(self, index: int) -> Image:
        image, _ = self.read(index)
        return decode(image, exif=self._exif) if isinstance(image, bytes) else self._pixels(image, index)

    def lazy_image(self, index: int) -> Croppable:
        image, _ = self.read(index)
        return lazy_image(image, exif=self._exif) if isinstance(image, bytes) else self._pixels(image, index)

    def _pixels(self, image: Any, index: int) -> Image:
        if hasattr(image, "convert"):  # PIL; some sets mix gray and color images
            gray = self.channels == 1 or (not self.channels and image.mode in ("1", "L"))
            image = image.convert("L" if gray else "RGB")
        if isinstance(image, torch.Tensor):
            # torchvision's ToTensor divides bytes by 255; normalizing is up to data.mean and data.std.
            if image.is_floating_point() and float(image.min()) >= 0 and float(image.max()) <= 1:
                image = (image * 255).round().to(torch.uint8)
            image = image.movedim(0, -1) if image.ndim == 3 else image
        pixels = np.ascontiguousarray(image)
        pixels = pixels[..., None] if pixels.ndim == 2 else pixels
        if (
            pixels.dtype != np.uint8
            or pixels.ndim != 3
            or pixels.shape[2] not in (self.channels or 1, self.channels or 3)
        ):
            raise self._part.wrong(
                f"gave {pixels.dtype} {list(pixels.shape)} as image of sample {self.name(index)}; it is encoded bytes, "
                f"or uint8 [height, width, {self.channels or '1 or 3'}], not normalized"
            )
        return pixels

    def describe(self, index: int) -> str:
        return f"{self._part.text}[{int(self._numbers[index])}]"

    def name(self, index: int) -> str:
        return f"{int(self._numbers[index]):08d}"

    def fingerprint(self) -> str:
        chosen = spread_evenly(len(self), _CHECKED) if self._repeats else []
        return self._fingerprint(self._numbers.tobytes(), *map(self._content, chosen))

    def _content(self, index: int) -> bytes:
        try:
            return self.image(index).tobytes() + repr(self.read(index)[1]).encode()
        except BadImage:
            return b""


class OwnBoxSource(OwnSource, BoxSource):
    """The same for a detector."""

    def __init__(self, part: OwnPart, own: Any, *, exif: bool) -> None:
        super().__init__(part, own, exif=exif)
        self.category_ids = tuple(range(1, len(self.classes) + 1))

    def _note_target(self, index: int, target: Any) -> None:
        self._last.sample = int(self._numbers[index]), target

    def boxes(self, index: int) -> Boxes:
        last: tuple[int, Any] = getattr(self._last, "sample", (-1, None))
        target = last[1] if last[0] == self._numbers[index] else self.read(index)[1]
        try:
            ltrb = np.asarray(target["boxes"], np.float64).reshape(-1, 4)
            classes = np.array([self._class_number(each, index) for each in target["classes"]], np.int64)
        except (TypeError, ValueError, LookupError) as error:
            raise self._part.wrong(f"gave boxes of sample {self.name(index)} that cannot be read: {error!r}") from None
        if len(ltrb) != len(classes) or not np.isfinite(ltrb).all():
            raise self._part.wrong(f"gave {len(ltrb)} boxes and {len(classes)} classes for sample {self.name(index)}")
        areas = (ltrb[:, 2:] - ltrb[:, :2]).prod(axis=1)
        return Boxes(ltrb, classes, np.zeros(len(ltrb), np.bool_), areas)
