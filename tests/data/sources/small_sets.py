"""Writes small data sets for the tests of sources: images, folders, tars, and annotations of every format."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vernier.compat.preparing.packing import PackedSplit, pack_shards
from vernier.data.decoding.decode import read_size
from vernier.data.sources import BoxSource, EncodedSource, FolderSource, Source, open_split


def write_image(path: Path, color: tuple[int, int, int] = (200, 10, 10)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (10, 8), color).save(path)


def encode_png(shade: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (20, 16), (shade, 0, 0)).save(out, "PNG")
    return out.getvalue()


def write_tar(path: Path, samples: list[tuple[str, bytes]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in samples:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def pack_shapes(shapes: Path, out: Path, *, restarts: bool, shard_bytes: int = 60_000) -> list[PackedSplit]:
    done = []
    for split in ("train", "val"):
        source = open_split(str(shapes), split)
        assert isinstance(source, EncodedSource)
        done.append(pack_shards(source, out, split, shard_bytes=shard_bytes, restarts=restarts, workers=2))
    return done


def by_name(source: Source) -> dict[str, int]:
    if isinstance(source, FolderSource):
        return {source.name(i): i for i in range(len(source))}
    return {source.describe(i).rpartition(":")[2].rpartition("(")[2].rstrip(")"): i for i in range(len(source))}


def coco_tree(count: int, *, file_name: str = "{}.jpg", box: tuple[float, ...] = (2, 3, 10, 5)) -> dict[str, Any]:
    """COCO instances with one box per image, of categories 7 and 3 in turn."""
    return {
        "images": [{"id": 100 + i, "file_name": file_name.format(i), "width": 40, "height": 30} for i in range(count)],
        "annotations": [
            {"id": i, "image_id": 100 + i, "category_id": (7, 3)[i % 2], "bbox": list(box), "area": 11.5, "iscrowd": 0}
            for i in range(count)
        ],
        "categories": [{"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}],
    }


def write_images(folder: Path, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        Image.new("RGB", (40, 30), (12 * i, 0, 0)).save(folder / f"{i}.jpg")


def voc_xml(box: tuple[int, ...] = (5, 5, 20, 20), size: bool = True) -> str:
    edges = "".join(f"<{k}>{v}</{k}>" for k, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
    about = "<size><width>40</width><height>30</height><depth>3</depth></size>" if size else ""
    return f"<annotation>{about}<object><name>cat</name><bndbox>{edges}</bndbox></object></annotation>"


def write_unsplit(root: Path, kind: str, count: int) -> None:
    if kind == "coco":
        write_images(root / "images", count)
        (root / "annotations.json").write_text(json.dumps(coco_tree(count)))
    elif kind == "voc":
        write_images(root / "JPEGImages", count)
        (root / "Annotations").mkdir()
        for i in range(count):
            (root / f"Annotations/{i}.xml").write_text(voc_xml())
    else:
        write_images(root / "images", count)
        (root / "labels").mkdir()
        (root / "classes.txt").write_text("cat\n")
        for i in range(count):
            (root / f"labels/{i}.txt").write_text("0 0.5 0.5 0.2 0.2\n")


def all_boxes_inside(source: BoxSource) -> bool:
    """Whether every box lies in its image, give or take a pixel."""
    assert isinstance(source, EncodedSource)
    for i in range(len(source)):
        width, height = read_size(source.read(i))
        ltrb = source.boxes(i).ltrb
        limits = np.array([width, height, width, height]) + 1
        if not ((ltrb >= 0).all() and (ltrb <= limits).all()):
            return False
    return True
