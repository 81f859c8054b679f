"""What `operations` traces: the `vernier` commands, and the two kinds of caches, as a module for `traced_server`."""

import hashlib
import json
import os
from importlib import import_module
from pathlib import Path

import torch

from tests.data.archives import tar_bytes
from vernier.cli import main as vernier
from vernier.compat.preparing import fetch
from vernier.data.trusted import SealedFolder, cached_file, is_trusted

from .fork_server import PRELOADED

MIRROR = "VERNIER_TEST_MIRROR"
"""A folder with the files of a small set, which `data get cifar10` then means."""
CONTENT = bytes(range(256)) * 64
LIBRARIES = {f"{number}/kernel.so": CONTENT[number:] for number in range(3)}


def make_mirror(folder: Path, files: int = 4) -> None:
    """A set of a tar and a plain file, and what it is."""
    folder.mkdir(parents=True)
    members = [(f"cifar-10-batches-bin/data_batch_{number}.bin", CONTENT[number:]) for number in range(1, 1 + files)]
    contents = {"cifar-10-binary.tar": tar_bytes(members), "labels.bin": CONTENT}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    sums = {name: hashlib.md5(content, usedforsecurity=False).hexdigest() for name, content in contents.items()}
    (folder / "sets.json").write_text(json.dumps(sums))


def use_test_sets() -> None:
    """Let `data get cifar10` mean the small set."""
    file = Path(os.environ.get(MIRROR, "")) / "sets.json"
    if file.is_file():
        sums = json.loads(file.read_text())
        files = (fetch.File(f"http://x/{name}", md5, unpack=name.endswith(".tar")) for name, md5 in sums.items())
        fetch.SETS["cifar10"] = tuple(files)


def load_cached(home: Path) -> bool:
    """Use a network of the cache as an engine does; whether it is as it was made."""
    path = cached_file(home / "engines" / "network.onnx", lambda temporary: _write_in_parts(temporary))
    return path.read_bytes() == CONTENT


def _write_in_parts(path: Path) -> None:
    with path.open("wb") as f:
        for begin in range(0, len(CONTENT), 4096):
            f.write(CONTENT[begin : begin + 4096])
            f.flush()


def load_sealed(home: Path) -> bool:
    """Use libraries of a folder as PyTorch's compiler does; whether all that it finds are as they were made."""
    sealed = SealedFolder(home / "inductor")
    sound = True
    for name, content in LIBRARIES.items():
        path = home / "inductor" / name
        if path.exists():
            sound = sound and is_trusted(path) and path.read_bytes() == content
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
    sealed.seal()
    os.close(sealed._in_use)
    return sound


for _name in (*PRELOADED, "rich.live", "rich.progress", "vernier.compat.preparing.commands"):
    import_module(_name)  # once, instead of in every fork
CACHES = {"engine": load_cached, "inductor": load_sealed}


def main(arguments: list[str]) -> int:
    """A command line of `vernier`, or a cache and its folder."""
    torch.set_num_threads(1)
    if arguments[0] in CACHES:
        try:
            return 0 if CACHES[arguments[0]](Path(arguments[1])) else 1
        except OSError:  # which every command words as an error of the machine
            return 2
    use_test_sets()
    return vernier(arguments)
