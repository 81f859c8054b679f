"""Writes a split as TFRecord files, for TensorFlow's systems: `vernier data prepare ... --format tfrecord`.

File names and features are those of Habana's preprocess_imagenet.py (ImageNet) and of the TPU tools'
create_coco_tf_record.py (COCO); `reading` reads them back. A file appears under its name when it is
whole, so an interrupted run resumes after its last whole file.
"""

import hashlib
import io
import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from vernier.compat.preparing.packing import Origin, PackedSplit, Progress, pack_order, read_encoded
from vernier.compat.preparing.threads import map_in_order
from vernier.compat.protobuf import crc32c, length_delimited, mask_crc, packed_floats, varint
from vernier.data.decoding.decode import BadImage, decode, read_orientation
from vernier.data.decoding.jpeg_slicing import SOI
from vernier.data.sources.base import BoxSource, EncodedSource
from vernier.errors import ConfigError, RunFailed
from vernier.store.durable import replaced_atomically, write_atomically

_IMAGES_PER_FILE = 1000
"""Of other sets."""
Values = Sequence[bytes] | Sequence[float] | Sequence[int]


class _Jpeg(NamedTuple):
    content: bytes
    width: int
    height: int
    converted: bool


# -------------------------------------------------------------------------------------------------------------- bytes


def encode_example(features: dict[str, Values]) -> bytes:
    """An Example message. Whole numbers, floats or byte strings; a feature without values is left out."""
    # Fields of TensorFlow's example.proto: Example.features is 1, a map of entries 1 with key 1 and value 2.
    entries = [
        length_delimited(1, length_delimited(1, name.encode()) + length_delimited(2, _encode_values(values)))
        for name, values in features.items()
        if len(values)
    ]
    return length_delimited(1, b"".join(entries))


def _encode_values(values: Values) -> bytes:
    # A Feature is a bytes_list (1), float_list (2) or int64_list (3), each with its values in field 1.
    if isinstance(values[0], bytes):
        return length_delimited(1, b"".join(length_delimited(1, value) for value in values if isinstance(value, bytes)))
    if isinstance(values[0], float):
        return length_delimited(2, length_delimited(1, packed_floats(map(float, values))))
    return length_delimited(3, length_delimited(1, b"".join(varint(int(value)) for value in values)))


def encode_record(content: bytes, checksum: Callable[[bytes], int]) -> bytes:
    """A record: the length, its checksum, the content and its checksum."""
    length = struct.pack("<Q", len(content))
    length_crc, content_crc = (struct.pack("<I", mask_crc(checksum(part))) for part in (length, content))
    return length + length_crc + content + content_crc


# ------------------------------------------------------------------------------------------------------------- images


def _as_jpeg(source: EncodedSource, index: int) -> _Jpeg:
    """The image as it is, or as an upright RGB JPEG of quality 100 if it is none: these readers decode nothing else."""
    encoded = read_encoded(source, index)
    try:
        # ImageNet has a PNG and 22 CMYK files, on which TensorFlow's JPEG decoder would stop. It ignores EXIF, too.
        if encoded[:2] == SOI and read_orientation(encoded) == 1:
            with Image.open(io.BytesIO(encoded)) as image:
                if image.format == "JPEG" and image.mode in ("RGB", "L"):
                    return _Jpeg(encoded, *image.size, converted=False)
        pixels = decode(encoded)
    except (OSError, SyntaxError, ValueError, BadImage, Image.DecompressionBombError) as error:
        raise RunFailed(f"{source.describe(index)} cannot be read: {error}. Repair or remove it.") from None
    content = io.BytesIO()
    # subsampling=0: chroma at full resolution.
    Image.fromarray(np.ascontiguousarray(pixels)).save(content, "JPEG", quality=100, subsampling=0)
    return _Jpeg(content.getvalue(), pixels.shape[1], pixels.shape[0], converted=True)


def _imagenet_features(source: EncodedSource, index: int, image: _Jpeg) -> dict[str, Values]:
    """An image with one class. Labels count from 1, as 0 is TensorFlow's background."""
    label = int(source.labels[index])
    return {
        "image/height": [image.height],
        "image/width": [image.width],
        "image/colorspace": [b"RGB"],
        "image/channels": [3],
        "image/class/label": [label + 1],
        "image/class/synset": [source.classes[label].encode()],
        "image/format": [b"JPEG"],
        "image/filename": [source.name(index).rpartition("/")[2].encode()],
        "image/encoded": [image.content],
    }


def _coco_features(source: BoxSource, index: int, image: _Jpeg) -> dict[str, Values]:
    """An image with boxes: edges as shares of the image, labels are the annotations' own category ids."""
    boxes = source.boxes(index)
    classes = boxes.classes.tolist()
    left, top, right, bottom = (boxes.ltrb / [image.width, image.height, image.width, image.height]).T.tolist()
    return {
        "image/height": [image.height],
        "image/width": [image.width],
        "image/filename": [Path(source.describe(index)).name.encode()],
        "image/source_id": [str(source.image_id(index)).encode()],
        "image/key/sha256": [hashlib.sha256(image.content).hexdigest().encode()],
        "image/encoded": [image.content],
        "image/format": [b"jpeg"],
        "image/object/bbox/xmin": left,
        "image/object/bbox/xmax": right,
        "image/object/bbox/ymin": top,
        "image/object/bbox/ymax": bottom,
        "image/object/class/text": [source.classes[c].encode() for c in classes],
        "image/object/class/label": [source.category_ids[c] for c in classes],
        "image/object/is_crowd": [int(crowd) for crowd in boxes.crowd.tolist()],
        "image/object/area": boxes.areas.tolist(),
    }


# -------------------------------------------------------------------------------------------------------------- files


def file_names(split: str, files: int, *, boxes: bool) -> list[str]:
    """`train/train-00000-of-01024` and `validation/...`; with boxes `train-00000-of-00256.tfrecord` and `val-...`."""
    if boxes:
        return [f"{split}-{number:05d}-of-{files:05d}.tfrecord" for number in range(files)]
    folder = "validation" if split == "val" else split
    return [f"{folder}/{folder}-{number:05d}-of-{files:05d}" for number in range(files)]


def pack_tfrecord(
    source: EncodedSource, out: Path, split: str, *, files: int | None, workers: int, progress: Progress | None = None
) -> PackedSplit:
    """Write a split as so many files; by default one per thousand images. Training images are shuffled."""
    checksum = crc32c()  # refuses at once where its package is missing
    boxes, order = isinstance(source, BoxSource), pack_order(source, split)
    files = files or -(-len(order) // _IMAGES_PER_FILE)
    paths = [out / name for name in file_names(split, files, boxes=boxes)]
    whole = _begin(out, split, paths, {"source": source.fingerprint(), "files": files})
    done = earlier = converted = 0

    def encode(index: int) -> tuple[bytes, bool]:
        image = _as_jpeg(source, index)
        if isinstance(source, BoxSource):
            return encode_example(_coco_features(source, index, image)), image.converted
        return encode_example(_imagenet_features(source, index, image)), image.converted

    # The last files may be empty. They are written all the same: each name has the number of files.
    size = -(-len(order) // files)
    for number, path in enumerate(paths):
        part = order[number * size : (number + 1) * size]
        done += len(part)
        if path in whole:
            earlier += len(part)
            continue
        with replaced_atomically(path) as temporary, temporary.open("wb") as file:
            for content, encoded_again in map_in_order(encode, part, workers):
                file.write(encode_record(content, checksum))
                converted += encoded_again
        if progress:
            progress(done, len(order))
    return PackedSplit(
        split=split,
        samples=len(order),
        bytes=sum(path.stat().st_size for path in paths),
        files=files,
        converted=converted,
        continued_after=earlier,
    )


def _begin(out: Path, split: str, paths: list[Path], origin: Origin) -> set[Path]:
    """Make the folders; the files that an interrupted run with the same source and settings has written."""
    note = out / f".{split}.tfrecord.progress"
    # Any number of files: two sets in one folder would be read as one.
    there = set(paths[0].parent.glob(f"{paths[0].name.partition('-')[0]}-*-of-*"))
    same = note.is_file() and note.read_text() == json.dumps(origin)
    if there and not same:
        raise ConfigError(
            f"{min(there)} exists already, of another source or other settings. Remove it or choose another folder."
        )
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    for left_over in paths[0].parent.glob(".*.tmp-*"):  # of a killed run
        left_over.unlink()
    # Before the first file: files without this note count as those of another source.
    write_atomically(note, json.dumps(origin))
    return there & set(paths)
