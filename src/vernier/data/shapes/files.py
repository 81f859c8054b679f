"""The files of the built-in data set: scenes of ten shapes, drawn from a seed and written as JPEG files.

Owns the files on disk (`make_shapes`, `make_cached_shapes`). The result is an ordinary image folder with COCO boxes
beside it, which the folder and COCO sources read.

Every image is a function of (seed, split, index, kind, size) alone: in any order, with any number of processes, the
files are the same to the byte on one machine (another CPU or numpy version may round a pixel differently). Colour,
position, size, rotation, texture, light and clutter do not depend on the class: only the outline shows it.

    classify: train/disc/disc_00001.jpg ...      one labelled object per image, with clutter before and behind it
    detect:   train/000001.jpg ...               one to five labelled objects, which may overlap
    both:     annotations/instances_train.json, annotations/instances_val.json, and shapes.json, which is written last
"""

import contextlib
import glob
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import simplejpeg

from vernier.cores import allowed_cores
from vernier.data.trusted import private_folder
from vernier.data.unfinished import locked_file
from vernier.errors import ConfigError
from vernier.folders import data_home

from .drawing import render
from .outlines import CLASSES
from .spec import SPLITS, ShapesSpec

FORMAT = 1  # a change of the files or of the drawing needs a new number, so that old sets are told from new ones
JPEG_QUALITY = 90
SPEC_FILE = "shapes.json"

_CHUNK = 250  # images: about a third of a second of work, so that progress moves and processes finish together
Progress = Callable[[int, int], None]
"""Called with the number of images that are done and the total."""


class _Record(NamedTuple):
    """The objects of one image; a tuple, so that records sort by position."""

    position: int
    boxes_xywh: list[list[float]]
    classes: list[int]
    areas_px: list[int]


def make_cached_shapes(spec: ShapesSpec) -> Path:
    """The folder of this set in the data home; the set is made first if it is not there."""
    return make_shapes(private_folder(data_home()) / spec.folder_name, spec)


def make_shapes(out: Path, spec: ShapesSpec, *, progress: Progress | None = None, workers: int | None = None) -> Path:
    """Write the set into the folder `out` and return the folder; at once if it has this set already.

    The set is drawn into a folder beside `out` and renamed when it is complete. `workers` is the number of processes,
    by default one per core for a large set. Raises ConfigError if `out` has anything else, and does not change that.
    """
    target = Path(out).resolve()
    if _contains_set(target, spec):
        return out
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked_file(target.parent / f".{target.name}.lock") as locked:
        # Without a lock, another process may be drawing there right now.
        for leftover in target.parent.glob(f".{glob.escape(target.name)}.partial-*") if locked else ():
            shutil.rmtree(leftover, ignore_errors=True)
        partial = target.parent / f".{target.name}.partial-{uuid.uuid4().hex[:8]}"
        try:
            if not _contains_set(target, spec):  # again: another process was faster
                _write(partial, spec, progress, workers)
                partial.rename(target)
        except OSError:  # without locks, another process may have made the same set meanwhile
            if not _contains_set(target, spec):
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return out


def _contains_set(target: Path, spec: ShapesSpec) -> bool:
    """Whether the folder has this set. Raises ConfigError if it has anything else that a new set would replace."""
    try:
        identity = json.loads((target / SPEC_FILE).read_text())
    except (FileNotFoundError, NotADirectoryError):
        if target.is_dir() and not any(target.iterdir()):
            return False
        if target.exists():
            raise ConfigError(
                f"shapes: {target} exists and is not a set of shapes; choose a new or empty folder"
            ) from None
        return False
    except ValueError:
        identity = None
    if identity == _identify(spec):
        return True
    existing = identity if isinstance(identity, dict) else {}
    raise ConfigError(
        f"shapes: {target} has another set (format {existing.get('format')}: {existing.get('spec')}) than the "
        f"requested one (format {FORMAT}: {asdict(spec)}); choose another folder, or delete this one first"
    )


def _identify(spec: ShapesSpec) -> dict[str, object]:
    """The content of SPEC_FILE."""
    return {"format": FORMAT, "spec": asdict(spec), "classes": list(CLASSES)}


def _write(folder: Path, spec: ShapesSpec, progress: Progress | None, workers: int | None) -> None:
    for split in SPLITS:
        for name in CLASSES if spec.kind == "classify" else ("",):
            (folder / split / name).mkdir(parents=True, exist_ok=True)
    records: dict[str, list[_Record]] = {split: [] for split in SPLITS}
    done, total = 0, spec.train + spec.val
    for split, chunk in _draw_all(folder, spec, workers):
        records[split] += chunk
        done += len(chunk)
        if progress:
            progress(done, total)
    (folder / "annotations").mkdir()
    for split in SPLITS:
        text = json.dumps(_to_coco(spec, split, sorted(records[split])))
        (folder / "annotations" / f"instances_{split}.json").write_text(text)
    (folder / SPEC_FILE).write_text(json.dumps(_identify(spec), indent=2) + "\n")


def _draw_all(folder: Path, spec: ShapesSpec, workers: int | None) -> Iterator[tuple[str, list[_Record]]]:
    """Draw everything, in this process or in several, and yield each chunk when it is finished."""
    chunks = [
        (split, range(start, min(start + _CHUNK, spec.images(split))))
        for split in SPLITS
        for start in range(0, spec.images(split), _CHUNK)
    ]
    processes = _count_processes(spec, workers, len(chunks))
    if processes == 1:
        for split, indices in chunks:
            yield split, _draw(folder, spec, split, indices)
        return
    with _pool(processes) as pool:
        futures = {pool.submit(_draw, folder, spec, split, indices): split for split, indices in chunks}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _draw(folder: Path, spec: ShapesSpec, split: str, indices: Iterable[int]) -> list[_Record]:
    records: list[_Record] = []
    for index in indices:
        rendered = render(spec, split, index)
        # The accurate DCT, as in decoding.
        encoded = simplejpeg.encode_jpeg(rendered.image, JPEG_QUALITY, "RGB", "420", fastdct=False)
        (folder / split / spec.file_name(index)).write_bytes(encoded)
        boxes, classes, areas = rendered.boxes_xywh.tolist(), rendered.classes.tolist(), rendered.areas_px.tolist()
        records.append(_Record(index, boxes, classes, areas))
    return records


def _to_coco(spec: ShapesSpec, split: str, records: list[_Record]) -> dict[str, object]:
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


def _count_processes(spec: ShapesSpec, workers: int | None, chunks: int) -> int:
    """The number of processes that draw. Forking is safe only on Linux, and a daemon may not fork: one process then."""
    if sys.platform != "linux" or multiprocessing.current_process().daemon:
        return 1
    if workers is None:
        small = (spec.train + spec.val) * spec.size_px**2 < 2000 * 64**2
        workers = 1 if small else len(allowed_cores())
    return min(workers, chunks)


@contextlib.contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of forked processes: other ways to start them would run the caller's main module again."""
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), initializer=_prepare_child)
    try:
        with warnings.catch_warnings():  # Python 3.12 warns of the caller's threads, whose locks drawing does not take
            warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
            pool.submit(os.getpid).result()
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_child() -> None:
    """Leave Ctrl-C to the parent, and exit if the parent is killed: otherwise the child would wait for work forever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None, "this runs in the children of the pool only"
    threading.Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()


def _exit_after(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
