"""TFRecord files as a layout of data sets: the entry point `tfrecord` of `vernier.data_layouts`."""

from pathlib import Path

from vernier.data.sources.base import BoxSource, DataLayout, Source

from .reading import TFRecordBoxSource, TFRecordSource, find_tfrecords
from .writing import pack_tfrecord


def _open_classes(root: Path, split: str) -> Source | None:
    records = find_tfrecords(root, split)
    return TFRecordSource(records, find_tfrecords(root, "val" if split == "train" else "train")) if records else None


def _open_boxes(root: Path, split: str) -> BoxSource | None:
    records = find_tfrecords(root, split)
    if not records:
        return None
    # Classes are numbered over all splits, or train and val might disagree.
    others = [path for other in ("train", "val", "test") if other != split for path in find_tfrecords(root, other)]
    return TFRecordBoxSource(records, others, only_with_boxes=split == "train")


LAYOUT = DataLayout(
    open_classes=_open_classes,
    open_boxes=_open_boxes,
    write=pack_tfrecord,
    # The numbers of files that the original scripts write and their readers expect.
    files={"imagenet": {"train": 1024, "val": 128}, "coco": {"train": 256, "val": 32}},
)
