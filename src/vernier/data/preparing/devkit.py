"""The validation labels of ImageNet as its publishers give them: the devkit's numbers and the meta.mat that explains them.

`ILSVRC2012_validation_ground_truth.txt` has a number from 1 to 1000 a line; which synset that is stands in `meta.mat`, a
MATLAB file (version 5) with one array of structures. Reads just that: numbers and words of a structure, nothing else.
"""

import struct
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError

TRUTH, META = "ILSVRC2012_validation_ground_truth.txt", "meta.mat"
_LARGEST_BYTES = 64 << 20
_COMPRESSED, _MATRIX = 15, 14
_NUMBERS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}
_TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_STRUCT_CLASS, _CHAR_CLASS = 2, 4


def validation_synsets(path: Path) -> list[str] | None:
    """The synset of each validation image, from the devkit (its tar, its folder, or its list of numbers); None for anything else."""
    if path.is_dir():
        found = next(iter(sorted(path.rglob(TRUTH))), None)
        if found is None:
            raise ConfigError(f"{path} is no ImageNet devkit: there is no {TRUTH} in it.")
        path = found
    if path.name == TRUTH:
        meta = path.with_name(META)
        if not meta.is_file():
            raise ConfigError(
                f"{path} has the devkit's own numbers; the file {META} that explains them is not beside it. "
                "Give the whole devkit instead: ILSVRC2012_devkit_t12.tar.gz."
            )
        return _translated(path.read_bytes(), meta.read_bytes(), str(path))
    return _from_tar(path) if path.name.endswith((".tar.gz", ".tgz", ".tar")) else None


def _from_tar(path: Path) -> list[str]:
    content: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as tar:
            for member in tar:
                name = member.name.rpartition("/")[2]
                if member.isfile() and name in (TRUTH, META) and member.size <= _LARGEST_BYTES:
                    file = tar.extractfile(member)
                    assert file is not None
                    content[name] = file.read()
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise ConfigError(f"{path} is not a readable tar file: {error}.") from None
    if len(content) < 2:
        raise ConfigError(f"{path} is no ImageNet devkit: {TRUTH} or {META} is not in it.")
    return _translated(content[TRUTH], content[META], str(path))


def _translated(truth: bytes, meta: bytes, where: str) -> list[str]:
    try:
        synsets = {int(s["ILSVRC2012_ID"]): str(s["WNID"]) for s in structures(meta, "synsets")}
    except (ValueError, KeyError, IndexError, TypeError, struct.error, zlib.error) as error:
        raise ConfigError(f"{where}: {META} is not a MATLAB 5 file with the devkit's synsets ({error!r}).") from None
    try:
        return [synsets[int(line)] for line in truth.split()]
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{where}: {error.args[0]!r} is no number that {META} explains.") from None


# ------------------------------------------------------------------------------------------------------- MATLAB files


def structures(data: bytes, name: str) -> Iterator[dict[str, Any]]:
    """The structures of the array called `name`: numbers and words by field, other fields as None."""
    if data[126:128] not in (b"IM", b"MI"):
        raise ValueError("not a MATLAB 5 file")
    order = "<" if data[126:128] == b"IM" else ">"
    for kind, content in _elements(data[128:], order):
        if kind == _COMPRESSED:
            unpacker = zlib.decompressobj()
            plain = unpacker.decompress(content, _LARGEST_BYTES)
            if unpacker.unconsumed_tail:
                raise ValueError("an element of more than 64 MiB")
            ((kind, content),) = _elements(plain, order)
        if kind == _MATRIX:
            (_, flags), _, (_, called), *rest = _elements(content, order)
            if called == name.encode() and struct.unpack_from(order + "I", flags)[0] & 0xFF == _STRUCT_CLASS:
                yield from _structures(rest, order)
                return
    raise ValueError(f"no structures called {name}")


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Kind and content, one after the other; short ones keep their content inside the tag."""
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from(order + "II", data, at)
        if kind >> 16:
            kind, size, begin, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        else:
            begin = at + 8
            end = begin + size + (0 if kind == _COMPRESSED else -size % 8)
        if begin + size > len(data):
            raise ValueError("the file ends early")
        yield kind, data[begin : begin + size]
        at = end


def _structures(rest: list[tuple[int, bytes]], order: str) -> Iterator[dict[str, Any]]:
    (_, length), (_, joined), *values = rest
    (width,) = struct.unpack_from(order + "i", length)
    fields = [joined[i : i + width].split(b"\0")[0].decode() for i in range(0, len(joined), width)]
    for at in range(0, len(values), len(fields)):
        yield dict(zip(fields, (_value(content, order) for _, content in values[at : at + len(fields)]), strict=True))


def _value(matrix: bytes, order: str) -> float | str | None:
    parts = list(_elements(matrix, order))
    if len(parts) < 4:
        return None
    kind, content = parts[3]
    if struct.unpack_from(order + "I", parts[0][1])[0] & 0xFF == _CHAR_CLASS:
        suffix = ("-le" if order == "<" else "-be") if _TEXT[kind] in ("utf-16", "utf-32") else ""
        return content.decode(_TEXT[kind] + suffix)
    if kind in _NUMBERS and len(content) == struct.calcsize(_NUMBERS[kind]):
        return float(struct.unpack(order + _NUMBERS[kind], content)[0])
    return None
