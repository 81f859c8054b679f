"""Data sets of every layout: opened, verified, and read into a batch, as `data verify` and `train` do."""

import contextlib
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tests.compat.tfrecord.examples import encode_example, encode_jpeg, encode_record, write_imagenet
from tests.data.archives import SYNSETS, jpeg_bytes, meta_mat, tar_bytes
from tests.data.sources.small_sets import coco_tree, encode_png, voc_xml, write_images, write_tar, write_unsplit
from vernier.compat.preparing.imagenet import META, TRUTH, open_imagenet, validation_synsets
from vernier.compat.preparing.inspect import describe
from vernier.compat.preparing.packing import pack_shards
from vernier.compat.preparing.verify import open_splits, verify
from vernier.config import Augment, Data
from vernier.data.decoding.decode import BadImage
from vernier.data.loading.readers import BoxEvalReader, BoxTrainReader, EvalReader, TrainReader
from vernier.data.sources import BoxSource, EncodedSource, FolderSource, Source, open_boxes, open_split
from vernier.tasks.detection.task import _ground_truth

from .base import Files, Target
from .files import written
from .images import encoded, picture

_DATA = Data(image_px=32, eval_px=32, eval_short_side_px=32)
_WITH_BOXES = ("boxes", "splits", "unsplit")
_JPEG = encoded(picture(40, 30), "JPEG", restart_marker_blocks=1)


def _shards() -> dict[str, Files]:
    """Ours, with a manifest and a table per shard, and those of others, as WebDataset writes them."""

    def pack(root: Path) -> None:
        folder = root / "images"
        for name in ("a/0.jpg", "a/1.jpg", "b/0.jpg"):
            (folder / "train" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "train" / name).write_bytes(_JPEG)
        source = FolderSource(folder / "train")
        pack_shards(source, root, "train", shard_bytes=10**6, restarts=False, workers=1)

    def foreign(root: Path) -> None:
        samples = [("0.jpg", _JPEG), ("0.cls", b"0"), ("1.png", encode_png(9)), ("1.json", b'{"label": 1}')]
        write_tar(root / "train-000.tar", samples)

    ours = {path: content for path, content in written(pack).items() if not path.startswith("images/")}
    return {"ours": ours, "foreign": written(foreign)}


def _records() -> dict[str, Files]:
    def boxes(root: Path) -> None:
        example = encode_example(
            image__encoded=[encode_jpeg(50)],
            image__height=[20],
            image__width=[40],
            image__source_id=[b"17"],
            image__object__bbox__xmin=[0.1, 0.2],
            image__object__bbox__xmax=[0.5, 0.6],
            image__object__bbox__ymin=[0.1, 0.2],
            image__object__bbox__ymax=[0.7, 0.8],
            image__object__class__label=[3, 7],
            image__object__class__text=[b"cat", b"dog"],
            image__object__is_crowd=[0, 1],
        )
        (root / "train-00000-of-00001.tfrecord").write_bytes(encode_record(example) * 2)

    classes = written(lambda root: write_imagenet(root / "train-00000-of-00001.tfrecord", [1, 2]))
    return {"classes": classes, "boxes": written(boxes)}


def _annotated() -> dict[str, dict[str, Files]]:
    def coco(root: Path) -> None:
        write_images(root / "train2017", 3)
        (root / "annotations").mkdir()
        tree = coco_tree(3)
        tree["annotations"][2]["iscrowd"] = 1
        (root / "annotations/instances_train2017.json").write_text(json.dumps(tree))

    def voc(root: Path) -> None:
        write_images(root / "JPEGImages", 3)
        (root / "Annotations").mkdir()
        for i in range(3):
            (root / f"Annotations/{i}.xml").write_text(voc_xml())
        (root / "ImageSets/Main").mkdir(parents=True)
        (root / "ImageSets/Main/train.txt").write_text("0\n1\n2\n")

    def yolo(root: Path) -> None:
        write_images(root / "images/train", 2)
        (root / "labels/train").mkdir(parents=True)
        for i in range(2):
            (root / f"labels/train/{i}.txt").write_text("0 0.5 0.5 0.2 0.2\n1 0.1 0.1 0.1 0.1\n")
        names = "train: images/train\nval: images/train\nnc: 2\nnames:\n  0: cat\n  1: 'dog: big'\n"
        (root / "data.yaml").write_text(names)

    return {
        "coco": {"splits": written(coco), "unsplit": written(lambda root: write_unsplit(root, "coco", 3))},
        "voc": {"splits": written(voc), "unsplit": written(lambda root: write_unsplit(root, "voc", 3))},
        "yolo": {"splits": written(yolo), "unsplit": written(lambda root: write_unsplit(root, "yolo", 3))},
    }


def _arrays() -> dict[str, Files]:
    def idx(*shape: int) -> bytes:
        header = b"\0\0\x08" + bytes([len(shape)]) + b"".join(side.to_bytes(4, "big") for side in shape)
        return header + bytes(i % 10 for i in range(int(np.prod(shape))))

    mnist = {"train-images-idx3-ubyte": idx(3, 28, 28), "train-labels-idx1-ubyte": idx(3)}
    cifar = {f"data_batch_{i}.bin": bytes([i]) + bytes(3072) for i in range(1, 6)}
    return {"mnist": mnist, "cifar": cifar}


def _archives() -> dict[str, Files]:
    """ImageNet as its publishers give it, in miniature."""
    inner = [(f"{s}.tar", tar_bytes([(f"{s}_{i}.JPEG", jpeg_bytes(20 * i)) for i in range(2)])) for s in SYNSETS]
    val = [(f"ILSVRC2012_val_{i:08d}.JPEG", jpeg_bytes(i)) for i in (1, 2)]
    tars = {"train.tar": tar_bytes(inner), "val.tar": tar_bytes(val)}
    return {"labels": {**tars, "truth.txt": b"n00000007\nn00000005\n"}}


def _read_archives(folder: Path) -> None:
    splits = open_imagenet([folder / "train.tar", folder / "val.tar"], str(folder / "truth.txt"), (2, 4, 2))
    for source in splits.values():
        _check(source)


def _devkits() -> dict[str, Files]:
    meta = meta_mat(list(SYNSETS))
    plain = meta_mat(list(SYNSETS), compressed=False)
    packed = gzip.compress(tar_bytes([(f"data/{TRUTH}", b"1\n2\n"), (f"data/{META}", meta)]), mtime=0)
    return {
        "folder": {TRUTH: b"1\n2\n", META: meta},
        "not-compressed": {TRUTH: b"1\n2\n", META: plain},
        "archive": {"devkit.tar.gz": packed},
    }


def _read_devkit(folder: Path) -> None:
    validation_synsets(folder / "devkit.tar.gz" if folder.name == "archive" else folder)


# -------------------------------------------------------------------------------------------------------------- reading


def _read(folder: Path) -> None:
    if folder.name != "ours":
        for table in folder.rglob("*.table"):
            table.unlink()
    if zlib.crc32(b"".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())) % 8 == 0:
        describe(open_splits(str(folder), 0.3)[0])
    source = (open_boxes if folder.name in _WITH_BOXES else open_split)(str(folder), "train")
    verify({"train": source}, workers=1)
    _check(source)


def _check(source: Source) -> None:
    """Read a batch for training and one for evaluation, and see that every label is that of a class."""
    readers: list[Any]
    if isinstance(source, BoxSource):
        boxes = [source.boxes(i) for i in range(len(source))]
        assert all(np.isfinite(b.ltrb).all() and (b.classes < len(source.classes)).all() for b in boxes)
        json.dumps(_ground_truth(source), allow_nan=False)
        readers = [BoxTrainReader(source, _DATA, Augment(crop="ssd"), 1), BoxEvalReader(source, _DATA)]
    else:
        labels = np.asarray(source.labels)
        assert len(labels) == 0 or 0 <= labels.min() <= labels.max() < len(source.classes), "a label without a class"
        readers = [TrainReader(source, _DATA, Augment(crop="random-resized"), 1), EvalReader(source, _DATA)]
    indices = np.arange(len(source), dtype=np.int64)
    out = np.zeros((len(source), 32, 32, source.channels), np.uint8)
    for reader in readers:
        reader.targets(indices, [reader.fill(0, indices, out)])
    source.fingerprint()
    if isinstance(source, EncodedSource):
        with contextlib.suppress(OSError, BadImage):
            source.read(0)


def _images_in(*folders: str) -> tuple[str, ...]:
    return tuple(f"{folder}/" for folder in folders)


_PICTURES = _images_in("train2017", "JPEGImages", "images")
TARGETS = (
    Target("shards", _shards, _read),
    Target("tfrecord", _records, _read),
    *(
        Target(name, lambda name=name: _annotated()[name], _read, spared=_PICTURES, text=True)  # type: ignore[misc]
        for name in ("coco", "voc", "yolo")
    ),
    Target("arrays", _arrays, _read),
    Target("imagenet", _archives, _read_archives),
    Target("devkit", _devkits, _read_devkit, most=200),
)
