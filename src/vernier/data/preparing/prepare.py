"""`vernier data prepare`: from what publishers give to what is trained on.

ImageNet's tars are read in place, never unpacked first: a member of a tar inside a tar is a range of bytes. Whatever the
origin, the result is written by `data.pack` (shards, raw) or as folders, here.
"""

import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from vernier.data.preparing.devkit import validation_synsets
from vernier.data.preparing.fetch import Progress as BytesProgress
from vernier.data.preparing.fetch import unpack
from vernier.data.preparing.pack import Packed, Progress, pack_raw, pack_shards, read
from vernier.data.sources import open_split
from vernier.data.sources.base import VAL_SHARE, EncodedSource
from vernier.data.sources.boxes.annotated import AnnotatedSource
from vernier.data.sources.boxes.layouts import open_folder
from vernier.data.sources.containers.tar import TarImages
from vernier.errors import ConfigError, NoSuchSplit, RunFailed

IMAGENET_SAMPLES = {"train": 1_281_167, "val": 50_000}
IMAGENET_CLASSES = 1000
COCO_IMAGES = {"train": 118_287, "val": 5_000}
_SYNSET = re.compile(r"n\d{8}")
SplitProgress = Callable[[str], Progress | None]


def prepare_split(
    source: EncodedSource, out: Path, split: str, *, layout: str, short_side_px: int, shard_mb: int, restarts: bool, workers: int,
    progress: Progress | None = None,
) -> Packed:  # fmt: skip
    """Write one split as `folders`, `shards` or `raw`."""
    if layout == "shards":
        return pack_shards(
            source, out, split, shard_bytes=shard_mb << 20, restarts=restarts, workers=workers, progress=progress
        )
    if layout == "raw":
        return pack_raw(source, out, split, short_side_px=short_side_px, workers=workers, progress=progress)
    return write_folders(source, out / split, split, progress)


def open_encoded(path: str, split: str, val_share: float) -> EncodedSource | None:
    """A split that keeps encoded images; None when the set has no such split."""
    try:
        source = open_split(path, split, val_share=val_share)
    except NoSuchSplit:
        if split == "val":
            return None
        raise
    if not isinstance(source, EncodedSource):
        raise ConfigError(f"{path} holds decoded images already; there is nothing to prepare.")
    return source


def write_folders(source: EncodedSource, out: Path, split: str, progress: Progress | None) -> Packed:
    """One folder per class. A file that is there with its full size is left alone, so an interrupted run goes on.

    Raises ConfigError before anything is written when a class has no image, a name cannot be a file's, or two images of a
    class have the same.
    """
    done, targets = Packed(split), _targets(source, out)
    for name in source.classes:
        if "/" in name or name in (".", ".."):
            raise ConfigError(f"The class {name!r} cannot be the name of a folder.")
        (out / name).mkdir(parents=True, exist_ok=True)
    for index in range(len(source)):
        encoded, target = read(source, index), targets[index]
        if not target.is_file() or target.stat().st_size != len(encoded):
            partial = target.with_name(f".{target.name}.part")
            partial.write_bytes(encoded)
            partial.replace(target)
        done.samples += 1
        done.bytes += len(encoded)
        if progress:
            progress(done.samples, len(source))
    return done


def _targets(source: EncodedSource, out: Path) -> list[Path]:
    labels, found = source.all_labels().tolist(), []
    if empty := [source.classes[i] for i in sorted(set(range(len(source.classes))) - set(labels))]:
        raise ConfigError(
            f"No image in {out.name} for {', '.join(empty[:5])}: a folder needs one. Choose --format shards."
        )
    for index in range(len(source)):
        name = source.name(index).rpartition("/")[2]
        if name.strip(".") == "":
            raise ConfigError(f"{source.describe(index)}: {name!r} cannot be the name of a file.")
        found.append(out / source.classes[labels[index]] / (name if "." in name else f"{name}.jpg"))
    if len(set(found)) < len(found):
        twice = next(path for path, count in Counter(found).items() if count > 1)
        raise ConfigError(f"More than one image would be written as {twice}. Choose --format shards.")
    return found


# ------------------------------------------------------------------------------------------------------------ ImageNet


def imagenet_train(
    path: Path, classes: int = IMAGENET_CLASSES, samples: int = IMAGENET_SAMPLES["train"], progress: BytesProgress | None = None
) -> TarImages:  # fmt: skip
    """ILSVRC2012_img_train.tar: a tar of one tar per synset."""
    places: list[tuple[int, int]] = []
    names: list[str] = []
    synset_of: list[str] = []
    with _opened(path) as outer, path.open("rb") as f:
        for inner in outer:
            if progress:
                progress(f"reading {path.name}", inner.offset_data, path.stat().st_size)
            if not inner.isfile() or not (match := _SYNSET.search(inner.name)) or not inner.name.endswith(".tar"):
                continue
            f.seek(inner.offset_data)
            with tarfile.open(fileobj=f, mode="r:") as tar:
                for member in tar:
                    if member.offset_data >= inner.offset_data + inner.size:
                        break
                    if _is_image(path, member):
                        places.append((member.offset_data, member.size))
                        names.append(Path(member.name).name)
                        synset_of.append(match.group())
    found = tuple(sorted(set(synset_of)))
    _check_count(path, "classes", len(found), classes)
    _check_count(path, "images", len(places), samples)
    number = {name: i for i, name in enumerate(found)}
    return TarImages(path, places, names, np.array([number[s] for s in synset_of], dtype=np.int64), found)


def imagenet_val(
    path: Path, truth: Path, synsets: tuple[str, ...], samples: int = IMAGENET_SAMPLES["val"]
) -> TarImages:
    """ILSVRC2012_img_val.tar with its ground truth: the devkit's, or a line an image in order of file name.

    Such a line is a synset or its position in sorted order.
    """
    with _opened(path) as tar:
        members = sorted((m for m in tar if _is_image(path, m)), key=lambda m: m.name)
    _check_count(path, "images", len(members), samples)
    lines = validation_synsets(truth) or _lines(truth)
    _check_count(truth, "labels", len(lines), len(members))
    number = {name: i for i, name in enumerate(synsets)}
    try:
        labels = np.array([number[v] if v in number else int(v) for v in lines], dtype=np.int64)
    except ValueError as error:
        raise ConfigError(
            f"{truth}: {error}; a line is a synset such as n01440764 or its position 0 to {len(synsets) - 1}."
        ) from None
    if labels.min() < 0 or labels.max() >= len(synsets):
        raise ConfigError(
            f"{truth} has labels {labels.min()} to {labels.max()}; positions in the sorted synsets run from 0 to {len(synsets) - 1}. "
            "The devkit's own numbers 1 to 1000 are in another order: give the devkit itself, ILSVRC2012_devkit_t12.tar.gz."
        )
    places = [(m.offset_data, m.size) for m in members]
    return TarImages(path, places, [Path(m.name).name for m in members], labels, synsets)


def _lines(truth: Path) -> list[str]:
    try:
        return [line.split()[-1] for line in truth.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read the labels in {truth}: {error}.") from None


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    """Also while it is read: a tar that ends early opens like any other."""
    try:
        with tarfile.open(path, "r:") as tar:
            yield tar
    except (OSError, tarfile.TarError) as error:
        raise ConfigError(f"{path} is not a readable tar file: {error}.") from None


def _is_image(path: Path, member: tarfile.TarInfo) -> bool:
    """Whether a member is a file; one that wants to be elsewhere than in its tar is refused."""
    if member.islnk() or member.issym() or member.name.startswith("/") or ".." in member.name.split("/"):
        raise RunFailed(f"{path} was refused: its member {member.name} leads out of it.")
    return member.isfile()


def _check_count(path: Path, what: str, found: int, expected: int) -> None:
    if found != expected:
        raise RunFailed(
            f"{path} holds {found:,} {what}, {expected:,} were expected. It is incomplete, or not what it should be."
        )


# ---------------------------------------------------------------------------------------------------------------- COCO


def prepare_coco(
    archives: list[Path], out: Path, expected: dict[str, int] | None = None, progress: BytesProgress | None = None
) -> dict[str, int]:
    """Unpack COCO's zips side by side and check that every annotated image is there. Gives the images by split."""
    for archive in archives:
        unpack(archive, out, progress)
    if not (out / "annotations").is_dir():
        raise RunFailed(
            f"There is no annotations/ in {out}: give annotations_trainval2017.zip too, beside the zips of images."
        )
    counts = {}
    for split, wanted in (COCO_IMAGES if expected is None else expected).items():
        source = open_folder(out, split, VAL_SHARE)
        assert isinstance(source, AnnotatedSource)
        missing = [source.describe(i) for i in range(len(source)) if not Path(source.describe(i)).is_file()]
        if missing:
            raise RunFailed(
                f"{out}: {len(missing):,} annotated images of {split} are missing, the first is {missing[0]}."
            )
        counts[split] = len(source) + (source.without_boxes if split == "train" else 0)
        _check_count(out, f"{split} images", counts[split], wanted)
    return counts
