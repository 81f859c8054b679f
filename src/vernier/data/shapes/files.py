"""The embedded data set: little lit scenes of ten shapes, drawn from a seed and kept as real JPEG files.

Owns the files on disk (`make`, `cached`) and where they are kept (`default_root`); what is in a picture is decided by
`data.shapes_layout` and painted by `data.shapes_paint`. What it writes is an ordinary image folder with COCO boxes beside
it; reading it back is up to the folder and COCO sources.

Every image is a function of (seed, split, index, kind, size) alone: in any order, by any number of processes, the files
come out the same to the byte on one machine (another CPU or numpy version may round a pixel differently). Colour,
place, size, rotation, texture, light and clutter are drawn without looking at the class: only the outline tells it.

    classify: train/disc/disc_00001.jpg ...      one labelled object an image, behind clutter and in front of more
    detect:   train/000001.jpg ...               one to five labelled objects, which may overlap
    both:     annotations/instances_train.json, annotations/instances_val.json, and shapes.json, which is written last
"""

import contextlib
import errno
import glob
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import socket
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import simplejpeg

from vernier.cores import allowed_cores
from vernier.data.shapes.layout import CLASSES, SPLITS, ShapesSpec
from vernier.data.shapes.paint import Rendered, render
from vernier.errors import ConfigError
from vernier.folders import data_home

__all__ = ["CLASSES", "Rendered", "ShapesSpec", "cached", "default_root", "make", "render"]

FORMAT = 1  # of the files and of the drawing: a change in either takes a new number, lest an old set pass for a new one
JPEG_QUALITY = 90
SPEC_FILE = "shapes.json"

# --- Files: drawn in chunks into a folder beside the final one, which gets its name only when it is complete.

_CHUNK = 250  # images: about a third of a second of work, so that progress moves and processes finish together
_Record = tuple[int, list[list[float]], list[int], list[int]]  # index, boxes, classes, areas


def default_root() -> Path:
    """The folder in which `cached` keeps its sets: the data home."""
    return data_home()


def cached(spec: ShapesSpec, *, progress: Callable[[int, int], None] | None = None, workers: int | None = None) -> Path:
    """The folder of this set under `default_root`; made first where it is missing."""
    return make(default_root() / spec.folder_name, spec, progress=progress, workers=workers)


def make(
    out: Path, spec: ShapesSpec, *, progress: Callable[[int, int], None] | None = None, workers: int | None = None
) -> Path:
    """Writes the set into the folder `out` and returns it; at once, if it is there already.

    `progress` is called with (images done, images in all). `workers` is the number of processes; by default one a core
    for a set that is worth it. Raises ConfigError if `out` holds anything else, and leaves that alone.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"shapes: workers is {workers}; use 1 or more, or leave it out for one a core")
    target = Path(out).resolve()
    if _holds(target, spec):
        return out
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target)
    partial = target.with_name(f"{_partial_prefix(target)}{os.getpid()}-{uuid.uuid4().hex[:8]}")
    try:
        _write(partial, spec, progress, workers)
        _rename(partial, target, spec)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return out


def _holds(target: Path, spec: ShapesSpec) -> bool:
    """Whether the folder is this set. Raises ConfigError if it is anything else that a new set would have to replace."""
    try:
        found = json.loads((target / SPEC_FILE).read_text())
    except (FileNotFoundError, NotADirectoryError):
        if target.is_dir() and not any(target.iterdir()):
            return False
        if target.exists():
            raise ConfigError(f"shapes: {target} exists and is no shapes set; choose a new or empty folder") from None
        return False
    except ValueError:
        found = None
    if found == _identity(spec):
        return True
    have = found.get("spec") if isinstance(found, dict) else None
    version = found.get("format") if isinstance(found, dict) else None
    raise ConfigError(
        f"shapes: {target} holds another set (format {version}: {have}) than the one asked for "
        f"(format {FORMAT}: {asdict(spec)}); choose another folder, or delete this one first"
    )


def _identity(spec: ShapesSpec) -> dict[str, Any]:
    return {"format": FORMAT, "spec": asdict(spec), "classes": list(CLASSES)}


def _partial_prefix(target: Path) -> str:
    return f".{target.name}.partial-{socket.gethostname()}-"


def _sweep(target: Path) -> None:
    """Removes what makers of this set left behind when they were killed on this host."""
    for left in target.parent.glob(f"{glob.escape(_partial_prefix(target))}*"):
        pid = left.name.removeprefix(_partial_prefix(target)).split("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _rename(partial: Path, target: Path, spec: ShapesSpec) -> None:
    """Gives the finished folder its name, unless somebody else just did: then theirs is as good."""
    try:
        partial.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES) or not _holds(target, spec):
            raise


def _write(folder: Path, spec: ShapesSpec, progress: Callable[[int, int], None] | None, workers: int | None) -> None:
    for split in SPLITS:
        for name in CLASSES if spec.kind == "classify" else ("",):
            (folder / split / name).mkdir(parents=True, exist_ok=True)
    records: dict[str, list[_Record]] = {split: [] for split in SPLITS}
    done, total = 0, spec.train + spec.val
    for split, drawn in _draw_all(folder, spec, workers):
        records[split] += drawn
        done += len(drawn)
        if progress:
            progress(done, total)
    (folder / "annotations").mkdir()
    for split in SPLITS:
        text = json.dumps(_instances(spec, split, sorted(records[split])))
        (folder / "annotations" / f"instances_{split}.json").write_text(text)
    (folder / SPEC_FILE).write_text(json.dumps(_identity(spec), indent=2) + "\n")


def _draw_all(folder: Path, spec: ShapesSpec, workers: int | None) -> Iterator[tuple[str, list[_Record]]]:
    """Draws everything, in this process or in several, and yields each chunk as it is finished."""
    chunks = [
        (split, range(start, min(start + _CHUNK, spec.images(split))))
        for split in SPLITS
        for start in range(0, spec.images(split), _CHUNK)
    ]
    processes = _processes(spec, workers, len(chunks))
    if processes == 1:
        for split, indices in chunks:
            yield split, _draw(folder, spec, split, indices)
        return
    with _pool(processes) as pool:
        waiting = {pool.submit(_draw, folder, spec, split, indices): split for split, indices in chunks}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def _draw(folder: Path, spec: ShapesSpec, split: str, indices: Iterable[int]) -> list[_Record]:
    records: list[_Record] = []
    for index in indices:
        drawn = render(spec, split, index)
        data = simplejpeg.encode_jpeg(drawn.image, JPEG_QUALITY, "RGB", "420", fastdct=False)
        (folder / split / spec.file_name(index)).write_bytes(data)
        records.append((index, drawn.boxes_xywh.tolist(), drawn.classes.tolist(), drawn.areas_px.tolist()))
    return records


def _instances(spec: ShapesSpec, split: str, records: list[_Record]) -> dict[str, Any]:
    """The boxes of a split in COCO's instances format; ids count from 1."""
    annotation_id = itertools.count(1)
    return {
        "info": {"description": f"Vernier shapes, {split}", "version": str(FORMAT)},
        "images": [
            {"id": index + 1, "file_name": spec.file_name(index), "width": spec.size_px, "height": spec.size_px}
            for index, *_ in records
        ],
        "annotations": [
            {
                "id": next(annotation_id),
                "image_id": index + 1,
                "category_id": label + 1,
                "bbox": box,
                "area": float(area),
                "iscrowd": 0,
            }
            for index, boxes, labels, areas in records
            for box, label, area in zip(boxes, labels, areas, strict=True)
        ],
        "categories": [{"id": k + 1, "name": name, "supercategory": "shape"} for k, name in enumerate(CLASSES)],
    }


def _processes(spec: ShapesSpec, workers: int | None, chunks: int) -> int:
    """How many processes draw. Only Linux forks safely, and a daemon may not fork at all: one does it elsewhere."""
    if sys.platform != "linux" or multiprocessing.current_process().daemon:
        return 1
    if workers is None:
        small = (spec.train + spec.val) * spec.size_px**2 < 2000 * 64**2
        workers = 1 if small else len(allowed_cores())
    return min(workers, chunks)


@contextlib.contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Forked: any other way to start runs the caller's main module again. The children draw and write files, no more."""
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), initializer=_begin_child)
    try:
        with warnings.catch_warnings():  # Python 3.12 warns of the caller's threads; drawing takes none of their locks
            warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
            pool.submit(os.getpid).result()
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_child() -> None:
    """Ctrl-C is for the parent to handle; and a parent that was killed must not leave children waiting for work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None, "this runs in the children of the pool only"
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
