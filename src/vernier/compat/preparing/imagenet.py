"""ImageNet as its publishers give it: the tars are read in place, never unpacked first.

A member of a tar inside a tar is a range of bytes, which `sources.containers.shard_index` reads. Labels of the
validation images come from the devkit or from a file with one line per image. The devkit has one class number from 1 to
1000 per line, and the synset of each number in `meta.mat`, a MATLAB file that scipy reads. It does so in a process of
its own, because a damaged file can end the process that reads it.
"""

import importlib.util
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from vernier.data.downloads import Progress
from vernier.data.sources.base import EncodedSource, Files, Indices, NamedSource, Names, OpenFiles
from vernier.data.sources.containers.shard_index import TAR_ERRORS, read_members
from vernier.data.sources.values import read_lines
from vernier.errors import ConfigError, RunFailed
from vernier.references import use

OFFICIAL_COUNTS = (1000, 1_281_167, 50_000)
"""Classes, training images, validation images."""
_SYNSET = re.compile(r"n\d{8}")


class TarImages(EncodedSource, NamedSource):
    """Images of a tar, or of tars inside it. `ranges` has the position and length of each image in bytes."""

    def __init__(
        self, path: Path, ranges: list[tuple[int, int]], names: list[str], labels: Indices, classes: tuple[str, ...]
    ) -> None:
        self._path, self._ranges, self._names = path, ranges, Names.of(names)
        self.labels, self.classes = labels, classes
        self._files = OpenFiles()

    def read(self, index: int) -> bytes:
        return self._files.read(str(self._path), *self._ranges[index])

    def name(self, index: int) -> str:
        return self._names[index]

    def describe(self, index: int) -> str:
        return f"{self._path}:{self._names[index]}"

    def files(self) -> Files:
        return 1, lambda _: str(self._path)


def open_imagenet(
    archives: list[Path],
    val_labels: str | None = None,
    counts: tuple[int, int, int] = OFFICIAL_COUNTS,
    progress: Progress | None = None,
) -> dict[str, EncodedSource]:
    """The splits of ImageNet, from archives that have 'train', 'val' or 'devkit' in their names.

    Raises ConfigError where one is missing, RunFailed where it does not have the expected counts.
    """
    # By name, since all of them are tars and reading one to recognize it takes minutes.
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
    source = _open_train(train, counts[0], counts[1], progress)
    splits: dict[str, EncodedSource] = {"train": source}
    if val is not None and labels is not None:
        splits["val"] = _open_val(val, Path(labels).expanduser(), source.classes, counts[2])
    return splits


def _open_train(path: Path, classes: int, samples: int, progress: Progress | None = None) -> TarImages:
    """ILSVRC2012_img_train.tar: a tar of one tar per synset."""
    ranges: list[tuple[int, int]] = []
    names: list[str] = []
    synsets: list[str] = []
    with _open_tar(path) as outer, path.open("rb") as f:
        for inner in read_members(outer):
            if progress:
                progress(f"reading {path.name}", inner.offset_data, path.stat().st_size)
            if not inner.isfile() or not (match := _SYNSET.search(inner.name)) or not inner.name.endswith(".tar"):
                continue
            # Opened where it begins: positions of its members are then positions in the outer file.
            f.seek(inner.offset_data)
            with tarfile.open(fileobj=f, mode="r:") as tar:
                for member in read_members(tar):
                    # An inner tar without its closing zero blocks would go on into the next one.
                    if member.offset_data >= inner.offset_data + inner.size:
                        break
                    if _is_image(path, member):
                        ranges.append((member.offset_data, member.size))
                        names.append(Path(member.name).name)
                        synsets.append(match.group())
    # Sorted, as torchvision and all published weights number ImageNet's classes.
    class_names = tuple(sorted(set(synsets)))
    check_count(path, "classes", len(class_names), classes)
    check_count(path, "images", len(ranges), samples)
    number = {name: i for i, name in enumerate(class_names)}
    return TarImages(path, ranges, names, np.array([number[s] for s in synsets], dtype=np.int64), class_names)


def _open_val(path: Path, truth: Path, synsets: tuple[str, ...], samples: int) -> TarImages:
    """ILSVRC2012_img_val.tar with its labels: the devkit's, or one line per image in order of file name.

    Such a line is a synset or its position in sorted order.
    """
    with _open_tar(path) as tar:
        # The labels are in the order of names, and a tar has members in any order.
        members = sorted((m for m in read_members(tar) if _is_image(path, m)), key=lambda m: m.name)
    check_count(path, "images", len(members), samples)
    # The last word: a line may have the file name before its label.
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


# --------------------------------------------------------------------------------------------------------------- labels


TRUTH, META = "ILSVRC2012_validation_ground_truth.txt", "meta.mat"
_LARGEST_BYTES = 64 << 20
_LONGEST_S = 60
_READER = """
import io, json, resource, sys
import numpy as np
from scipy.io import loadmat
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
most = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (16 << 30 if most < 0 else min(16 << 30, most), most))
try:
    rows = loadmat(io.BytesIO(sys.stdin.buffer.read()), variable_names="synsets", squeeze_me=True)["synsets"]
    synsets = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in np.atleast_1d(rows)}
    sys.stdout.write(json.dumps({"synsets": synsets}))
except Exception as error:
    sys.stdout.write(json.dumps({"problem": repr(error)[:200]}))
"""


def validation_synsets(path: Path) -> list[str] | None:
    """The synset of each validation image, from the devkit (its tar, its folder, or its list of numbers); None for any
    other file. Raises ConfigError."""
    if path.is_dir():
        truth = next(iter(sorted(path.rglob(TRUTH))), None)
        if truth is None:
            raise ConfigError(f"{path} is not an ImageNet devkit: it has no {TRUTH}.")
        path = truth
    if path.name == TRUTH:
        meta = path.with_name(META)
        if not meta.is_file():
            raise ConfigError(
                f"{path} has the devkit's own class numbers, but the file {META} that names them is not beside it. "
                "Give the whole devkit instead: ILSVRC2012_devkit_t12.tar.gz."
            )
        return _name_labels(path.read_bytes(), meta.read_bytes(), str(path))
    return _read_tar(path) if path.name.endswith((".tar.gz", ".tgz", ".tar")) else None


def _read_tar(path: Path) -> list[str]:
    content: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as tar:
            for member in read_members(tar):
                name = member.name.rpartition("/")[2]
                # By the end of its name: a devkit that was packed again has other folders.
                if member.isfile() and name in (TRUTH, META) and member.size <= _LARGEST_BYTES:
                    file = tar.extractfile(member)
                    assert file is not None
                    content[name] = file.read()
    except TAR_ERRORS as error:
        raise ConfigError(f"{path} is not a readable tar file: {error}.") from None
    if len(content) < 2:
        raise ConfigError(f"{path} is not an ImageNet devkit: it has no {TRUTH} or no {META}.")
    return _name_labels(content[TRUTH], content[META], str(path))


def _name_labels(truth: bytes, meta: bytes, where: str) -> list[str]:
    if importlib.util.find_spec("scipy") is None:
        raise ConfigError(
            f"Reading the devkit's {META} needs scipy: pip install 'vernier[devkit]'. "
            f"Or give {use('val_labels', slot='FILE')} with one synset per line."
        )
    try:
        reader = subprocess.run(
            [sys.executable, "-c", _READER], input=meta, capture_output=True, timeout=_LONGEST_S, check=True
        )
        answer = json.loads(reader.stdout)
        problem = answer.get("problem", "")
    except (subprocess.SubprocessError, ValueError) as error:
        # Without the command, which contains the whole program.
        problem = str(error).partition("]' ")[2] or type(error).__name__
    if problem:
        raise ConfigError(f"{where}: {META} is not a MATLAB 5 file with the devkit's synsets ({problem}).")
    synsets = {int(number): synset for number, synset in answer["synsets"].items()}
    try:
        return [synsets[int(line)] for line in truth.split()]
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{where}: {error.args[0]!r} is not a class number in {META}.") from None
