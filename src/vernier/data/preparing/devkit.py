"""The validation labels of ImageNet from its devkit: class numbers in one file, and the meta.mat that names them.

`ILSVRC2012_validation_ground_truth.txt` has one number from 1 to 1000 per line; the synset of each number is in
`meta.mat`, a MATLAB file that scipy reads. It does so in a process of its own, because a damaged file can end the
process that reads it.
"""

import importlib.util
import json
import subprocess
import sys
import tarfile
from pathlib import Path

from vernier.data.sources.containers.tar import TAR_ERRORS
from vernier.errors import ConfigError
from vernier.references import use

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
            for member in tar:
                name = member.name.rpartition("/")[2]
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
    synsets = _read_synsets(meta, where)
    try:
        return [synsets[int(line)] for line in truth.split()]
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{where}: {error.args[0]!r} is not a class number in {META}.") from None


def _read_synsets(meta: bytes, where: str) -> dict[int, str]:
    """The synset of each class number in meta.mat."""
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
        problem = str(error).partition("]' ")[2] or type(error).__name__
    if problem:
        raise ConfigError(f"{where}: {META} is not a MATLAB 5 file with the devkit's synsets ({problem}).")
    return {int(number): synset for number, synset in answer["synsets"].items()}
