"""ImageNet as its publishers give it: the tars are read in place, never unpacked first.

A member of a tar inside a tar is a range of bytes, which `sources.containers.tar` reads. Labels of the validation
images come from the devkit (`devkit`) or from a file with one line per image.
"""

import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from vernier.data.sources.base import EncodedSource
from vernier.data.sources.containers.tar import TAR_ERRORS, TarImages
from vernier.data.sources.values import read_lines
from vernier.errors import ConfigError, RunFailed
from vernier.references import use

from .devkit import validation_synsets
from .fetch import Progress

OFFICIAL_COUNTS = (1000, 1_281_167, 50_000)
"""Classes, training images, validation images."""
_SYNSET = re.compile(r"n\d{8}")


def open_imagenet(
    archives: list[Path],
    val_labels: str | None = None,
    counts: tuple[int, int, int] = OFFICIAL_COUNTS,
    progress: Progress | None = None,
) -> dict[str, EncodedSource]:
    """The splits of ImageNet, from archives that have 'train', 'val' or 'devkit' in their names.

    Raises ConfigError where one is missing, RunFailed where it does not have the expected counts.
    """
    train, val, devkit = (next((p for p in archives if k in p.name), None) for k in ("train", "val", "devkit"))
    if unknown := [str(p) for p in archives if p not in (train, val, devkit)]:
        raise ConfigError(f"{', '.join(unknown)}: a name with 'train', 'val' or 'devkit' in it is expected.")
    labels = val_labels or devkit
    if train is None:
        raise ConfigError("The training tar (a name with 'train' in it) is needed: its synsets are the classes.")
    if val is None and labels is not None:
        raise ConfigError(f"{labels} has the labels of the validation images. Give their tar too (a name with 'val').")
    if val is not None and labels is None:
        raise ConfigError(
            "The validation tar has no labels in it. Give ILSVRC2012_devkit_t12.tar.gz too, or "
            f"{use('val_labels', slot='FILE')} with one synset per line."
        )
    source = open_train(train, counts[0], counts[1], progress)
    splits: dict[str, EncodedSource] = {"train": source}
    if val is not None and labels is not None:
        splits["val"] = open_val(val, Path(labels).expanduser(), source.classes, counts[2])
    return splits


def open_train(path: Path, classes: int, samples: int, progress: Progress | None = None) -> TarImages:
    """ILSVRC2012_img_train.tar: a tar of one tar per synset."""
    ranges: list[tuple[int, int]] = []
    names: list[str] = []
    synsets: list[str] = []
    with _open_tar(path) as outer, path.open("rb") as f:
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
                        ranges.append((member.offset_data, member.size))
                        names.append(Path(member.name).name)
                        synsets.append(match.group())
    class_names = tuple(sorted(set(synsets)))
    check_count(path, "classes", len(class_names), classes)
    check_count(path, "images", len(ranges), samples)
    number = {name: i for i, name in enumerate(class_names)}
    return TarImages(path, ranges, names, np.array([number[s] for s in synsets], dtype=np.int64), class_names)


def open_val(path: Path, truth: Path, synsets: tuple[str, ...], samples: int) -> TarImages:
    """ILSVRC2012_img_val.tar with its labels: the devkit's, or one line per image in order of file name.

    Such a line is a synset or its position in sorted order.
    """
    with _open_tar(path) as tar:
        members = sorted((m for m in tar if _is_image(path, m)), key=lambda m: m.name)
    check_count(path, "images", len(members), samples)
    lines = validation_synsets(truth) or [line.split()[-1] for line in read_lines(truth)]
    check_count(truth, "labels", len(lines), len(members))
    number = {name: i for i, name in enumerate(synsets)}
    try:
        labels = np.array([number[v] if v in number else int(v) for v in lines], dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{truth}: {error}; a line is a synset such as n01440764 or its position 0 to {len(synsets) - 1}."
        ) from None
    if labels.min() < 0 or labels.max() >= len(synsets):
        raise ConfigError(
            f"{truth} has labels {labels.min()} to {labels.max()}; positions in the sorted synsets run from 0 to "
            f"{len(synsets) - 1}. The devkit's own numbers 1 to 1000 are in another order: give the devkit itself, "
            "ILSVRC2012_devkit_t12.tar.gz."
        )
    ranges = [(m.offset_data, m.size) for m in members]
    return TarImages(path, ranges, [Path(m.name).name for m in members], labels, synsets)


@contextmanager
def _open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Raises ConfigError also while the tar is read: one that ends early opens like any other."""
    try:
        with tarfile.open(path, "r:") as tar:
            yield tar
    except ConfigError:
        raise
    except TAR_ERRORS as error:
        raise ConfigError(f"{path} is not a readable tar file: {error}.") from None


def _is_image(path: Path, member: tarfile.TarInfo) -> bool:
    """Whether a member is a file. Raises RunFailed for a link, or a path that leaves the tar."""
    if member.islnk() or member.issym() or member.name.startswith("/") or ".." in member.name.split("/"):
        raise RunFailed(f"{path} was refused: its member {member.name} points outside of the archive.")
    return member.isfile()


def check_count(path: Path, what: str, count: int, expected: int) -> None:
    """Raises RunFailed where an archive does not hold as many as it should."""
    if count != expected:
        raise RunFailed(
            f"{path} has {count:,} {what}, {expected:,} were expected. It is incomplete or the wrong file. "
            f"If it is right, give the counts with {use('expect')}."
        )
