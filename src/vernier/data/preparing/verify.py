"""`vernier data verify` and `inspect`: what is in a set, whether every image can be read, and what it looks like."""

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vernier.data.augment.crop_flip import resize
from vernier.data.decoding.decode import BadImage, Image, decode_strictly, read_size
from vernier.data.preparing.pack import in_order
from vernier.data.sources import (
    BUILT_IN,
    ArraySource,
    BoxSource,
    EncodedSource,
    ShardSource,
    Source,
    open_boxes,
    open_split,
)
from vernier.data.sources.boxes.layouts import has_boxes
from vernier.data.sources.folder import has_class_folders
from vernier.errors import ConfigError, NoSuchSplit

Progress = Callable[[int, int], None]
_THUMB, _GAP, _CAPTION = 128, 6, 14
_COLOURS = ((230, 60, 60), (60, 160, 230), (80, 190, 90), (235, 170, 40), (170, 90, 210), (40, 190, 190))


def open_splits(path: str, val_share: float) -> tuple[dict[str, Source], dict[str, str]]:
    """The splits of a set, with whole-image labels or with boxes, and why one is not there. Raises ConfigError for a damaged one."""
    found: dict[str, Source] = {}
    missing: dict[str, str] = {}
    for split in ("train", "val"):
        try:
            found[split] = _open_either(path, split, val_share)
        except NoSuchSplit as error:
            missing[split] = str(error)
    if not found:
        raise ConfigError(missing["train"])
    return found, missing


def _open_either(path: str, split: str, val_share: float) -> Source:
    """With boxes where there are any, also when the images lie in class folders; a built-in name is never a folder."""
    if path not in BUILT_IN:
        try:
            return open_boxes(path, split, val_share=val_share)
        except ConfigError:
            root = Path(path).expanduser()
            if has_boxes(root) and not ((root / split).is_dir() and has_class_folders(root / split)):
                raise  # what is wrong with its annotations is what a person has to know
    return open_split(path, split, val_share=val_share)


# -------------------------------------------------------------------------------------------------------------- verify


@dataclass
class Verdict:
    """What was found wrong."""

    images: dict[str, int] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    """Images that are in both splits, to the byte."""
    repeated: dict[str, int] = field(default_factory=dict)
    """Images that occur more than once in a split."""

    @property
    def sound(self) -> bool:
        return not self.bad


def verify(splits: dict[str, Source], workers: int, progress: Progress | None = None) -> Verdict:
    """Decode everything strictly, check the hashes of shards, and look for the same image in both splits."""
    verdict = Verdict(bad=_different_classes(splits))
    seen: dict[bytes, tuple[str, int]] = {}
    total, done = sum(len(s) for s in splits.values()), 0
    for split, source in splits.items():
        verdict.images[split] = len(source)
        verdict.repeated[split] = 0
        for index, digest, problem in _examined(source, workers):
            if index is None:
                verdict.bad.append(problem)
                continue
            done += 1
            if problem:
                verdict.bad.append(f"{source.describe(index)}: {problem}")
            elif digest in seen:
                other, earlier = seen[digest]
                if other == split:
                    verdict.repeated[split] += 1
                else:
                    verdict.duplicates.append(f"{source.describe(index)} = {splits[other].describe(earlier)}")
            else:
                seen[digest] = (split, index)
            if progress:
                progress(done, total)
    return verdict


def _examined(source: Source, workers: int) -> Iterator[tuple[int | None, bytes, str]]:
    """Every image's index, hash and what is wrong with it; before those of a shard, without an index, what is wrong with the shard."""

    def examined(index: int) -> tuple[int, bytes, str]:
        return index, *_examine(source, index)

    if not isinstance(source, ShardSource):
        yield from in_order(examined, range(len(source)), workers)
        return
    for which, (begin, end) in enumerate(itertools.pairwise(source.starts.tolist())):
        if why := source.verify_shard(which):
            yield None, b"", f"{source.shards[which].name}: {why}"
        yield from in_order(examined, range(begin, end), workers)


def _different_classes(splits: dict[str, Source]) -> list[str]:
    """What would keep the splits from being trained on together."""
    named = [source.classes for source in splits.values()]
    if len(set(named)) < 2:
        return []
    apart = sorted(set(named[0]) ^ set(named[1]))
    return [f"the splits have different classes; not in both: {', '.join(apart[:5]) or 'none, the order differs'}"]


def _examine(source: Source, index: int) -> tuple[bytes, str]:
    """A hash of the image, and what is wrong with it."""
    try:
        if isinstance(source, EncodedSource):
            encoded = source.read(index)
            decode_strictly(encoded)
            return hashlib.sha256(encoded).digest(), ""
        return hashlib.sha256(np.ascontiguousarray(source.image(index)).data).digest(), ""
    except (BadImage, OSError) as error:
        return b"", str(error)


# ------------------------------------------------------------------------------------------------------------- inspect


def describe(splits: dict[str, Source], sample: int = 500) -> dict[str, Any]:
    """Counts, sizes and class balance by split."""
    return {split: _describe_split(source, sample) for split, source in splits.items()}


def _describe_split(source: Source, sample: int) -> dict[str, Any]:
    chosen = np.unique(np.linspace(0, len(source) - 1, min(sample, len(source))).astype(int)).tolist()
    sizes = [s for s in (_size(source, i) for i in chosen) if s is not None]
    classes: Counter[int] = Counter()
    facts: dict[str, Any] = {"images": len(source), "classes": len(source.classes)}
    if isinstance(source, BoxSource):
        for i in range(len(source)):
            classes.update(source.boxes(i).classes.tolist())
        facts["boxes"] = classes.total()
        facts["boxes_cut_at_the_edge"] = source.cut_boxes
        facts["boxes_without_area_dropped"] = source.dropped_boxes
        facts["images_without_boxes"] = source.without_boxes
    else:
        classes.update(source.all_labels().tolist())
    counts = [classes.get(i, 0) for i in range(len(source.classes))]
    facts["per_class"] = {"fewest": min(counts), "median": float(np.median(counts)), "most": max(counts)}
    if min(counts) < max(counts):
        facts["rarest"] = [source.classes[i] for i in np.argsort(counts, kind="stable")[:3]]
    if sizes:
        widths, heights = zip(*sizes, strict=True)
        facts["median_size"] = f"{int(np.median(widths))} x {int(np.median(heights))}"
        facts["smallest_side_px"], facts["largest_side_px"] = min(widths + heights), max(widths + heights)
        facts["sizes_from"] = len(sizes)
    return facts


def _size(source: Source, index: int) -> tuple[int, int] | None:
    try:
        if isinstance(source, EncodedSource):
            return read_size(source.read(index))
        height, width = source.image(index).shape[:2]
        return width, height
    except (BadImage, OSError):
        return None


def contact_sheet(source: Source, path: Path, columns: int = 8, rows: int = 5) -> None:
    """A PNG with images spread over the set, their classes below them, and boxes where there are any."""
    from PIL import Image as Pillow
    from PIL import ImageDraw

    count = min(columns * rows, len(source))
    cell_w, cell_h = _THUMB + _GAP, _THUMB + _GAP + _CAPTION
    sheet = Pillow.new("RGB", (columns * cell_w + _GAP, -(-count // columns) * cell_h + _GAP), (250, 250, 250))
    draw = ImageDraw.Draw(sheet)
    for place, index in enumerate(np.linspace(0, len(source) - 1, count).astype(int).tolist()):
        x, y = _GAP + place % columns * cell_w, _GAP + place // columns * cell_h
        caption = _paste(sheet, draw, source, index, x, y)
        draw.text((x, y + _THUMB + 1), caption[:20], fill=(40, 40, 40))
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, "PNG")


def _paste(sheet: Any, draw: Any, source: Source, index: int, x: int, y: int) -> str:
    from PIL import Image as Pillow

    try:
        image = source.image(index)
    except (BadImage, OSError):
        draw.rectangle((x, y, x + _THUMB, y + _THUMB), outline=(200, 0, 0))
        return "unreadable"
    scale = _THUMB / max(image.shape[:2])
    width, height = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    small = resize(image, width, height)
    sheet.paste(Pillow.fromarray(np.repeat(small, 3, axis=2) if small.shape[2] == 1 else small), (x, y))
    if not isinstance(source, BoxSource):
        return source.classes[int(source.labels[index])]
    boxes = source.boxes(index)
    for (left, top, right, bottom), kind in zip(boxes.ltrb.tolist(), boxes.classes.tolist(), strict=True):
        colour = _COLOURS[kind % len(_COLOURS)]
        edges = [x + left * scale, y + top * scale, x + right * scale - 1, y + bottom * scale - 1]
        draw.rectangle((*edges[:2], max(edges[0], edges[2]), max(edges[1], edges[3])), outline=colour)
    return ", ".join(dict.fromkeys(source.classes[k] for k in boxes.classes.tolist())) or "no boxes"


def compare_backends(source: Source, sample: int = 50) -> list[dict[str, Any]]:
    """How far the pixels of other decoders are from the native one's."""
    if isinstance(source, ArraySource) or not isinstance(source, EncodedSource):
        raise ConfigError("Comparing decoders needs encoded images; this set is decoded already.")
    chosen = np.unique(np.linspace(0, len(source) - 1, min(sample, len(source))).astype(int)).tolist()
    encoded, ours = _readable(source, chosen)
    if not ours:
        raise ConfigError(
            f"Not one of the {len(chosen)} images that were tried can be read: vernier data verify says why."
        )
    rows = [_difference("pillow", ours, [_pillow(e) for e in encoded])]
    try:
        from vernier.data.loading.dali import decode_bytes

        rows.append(_difference("dali-cpu", ours, decode_bytes(encoded)))
    except ConfigError as error:
        rows.append({"backend": "dali-cpu", "images": 0, "note": str(error)})
    return rows


def _readable(source: EncodedSource, chosen: list[int]) -> tuple[list[bytes], list[Image]]:
    """Those of the chosen images that can be read, as files and as pixels."""
    encoded: list[bytes] = []
    pixels: list[Image] = []
    for index in chosen:
        try:
            content = source.read(index)
            pixels.append(decode_strictly(content))
        except (BadImage, OSError):
            continue
        encoded.append(content)
    return encoded, pixels


def _pillow(encoded: bytes) -> Image:
    import io

    from PIL import Image as Pillow

    with Pillow.open(io.BytesIO(encoded)) as image:
        return np.asarray(image.convert("RGB"))


def _difference(name: str, ours: list[Image], theirs: list[Image]) -> dict[str, Any]:
    gaps = [np.abs(a.astype(np.int16) - b.astype(np.int16)) for a, b in zip(ours, theirs, strict=True)]
    return {
        "backend": name,
        "images": len(gaps),
        "mean_levels": round(float(np.mean([g.mean() for g in gaps])), 4),
        "largest_level": int(max(g.max() for g in gaps)),
        "identical_images": sum(not g.any() for g in gaps),
    }
