"""TensorFlow's checkpoints (`model.ckpt-28152.index` and `.data-00000-of-00001`), read without TensorFlow.

The index is a sorted table in LevelDB's format: one entry per variable with type, shape and position in the data
files. The layers of a ResNet that was built with tf.layers have no names of their own, only numbers in the order of
their creation (`conv2d_7/kernel`); `resnet_state` gives them torchvision's names. Checkpoints of Keras objects have
other names and are refused.
"""

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.models.naming import State, join_some
from vernier.models.resnet import HEAD
from vernier.models.weights import WeightFormat

from .protobuf import crc32c, mask_crc, read_fields, read_varint, to_signed

# LevelDB's table format. The footer is two block handles in 40 bytes, padded with zeros, and the magic number.
_MAGIC = 0xDB4775248B80FB57
_FOOTER_BYTES = 48
_TRAILER_BYTES = 5  # of a block: kind of compression, checksum
# Numbers of TensorFlow's enumeration DataType.
_TYPES = {1: torch.float32, 2: torch.float64, 3: torch.int32, 9: torch.int64, 14: torch.bfloat16, 19: torch.float16}
_SUFFIX = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_SCOPE = re.compile(r"^resnet\d+/")  # of a whole detector
_SLOTS = ("/Momentum", "/ExponentialMovingAverage", "/Adam", "/Adam_1")


@frozen
class _Entry:
    """Where a variable is."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    sliced: bool


def find_checkpoint(path: Path) -> Path | None:
    """The common start of a checkpoint's file names, from it, one of the files or their folder; None without an index.

    Of several in a folder it is the one that its file `checkpoint` names, TensorFlow's note about the newest.
    """
    if path.is_dir():
        note = path / "checkpoint"
        text = note.read_text(encoding="utf-8", errors="replace") if note.is_file() else ""
        # The note may have the path of the machine that trained: only the file name counts.
        newest = re.search(r'^model_checkpoint_path: "([^"]+)"', text, re.M)
        indices = sorted(path.glob("*.index"))
        names = [newest[1].rpartition("/")[2]] if newest else [p.stem for p in indices[:1] if len(indices) == 1]
        return next((p for name in names if (p := find_checkpoint(path / name))), None)
    prefix = path.with_name(_SUFFIX.sub("", path.name))
    return prefix if prefix.with_name(f"{prefix.name}.index").is_file() else None


def read_checkpoint(prefix: Path) -> State:
    """The variables of a checkpoint by name. Raises ConfigError for damaged or missing files."""
    index = prefix.with_name(f"{prefix.name}.index")
    try:
        shards, entries = _read_index(index.read_bytes())
    except (ValueError, IndexError, KeyError, struct.error) as error:
        raise ConfigError(f"{index} is not the index of a TensorFlow checkpoint: {error}.") from None
    variables: State = {}
    for name, entry in entries.items():
        # Texts, such as the graph of objects, are no weights; the entry of a partitioned variable lists slices only.
        if entry.dtype in _TYPES and not entry.sliced:
            variables[name] = _read_variable(_data_file(prefix, entry.shard, shards), name, entry)
    return variables


def _data_file(prefix: Path, shard: int, shards: int) -> Path:
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}")


def _read_variable(path: Path, name: str, entry: _Entry) -> Tensor:
    dtype = _TYPES[entry.dtype]
    try:
        with path.open("rb") as file:
            file.seek(entry.offset)
            content = file.read(entry.size)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}. A checkpoint needs all of its files.") from None
    expected = dtype.itemsize * torch.Size(entry.shape).numel()
    if not len(content) == entry.size == expected or mask_crc(crc32c()(content)) != entry.crc:
        raise ConfigError(f"{path} is damaged or truncated: {name} is not what the index says. Download it again.")
    # frombuffer refuses an empty buffer. It shares memory, hence a bytearray, which can be written to.
    if not content:
        return torch.zeros(entry.shape, dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=dtype).reshape(entry.shape)


# ----------------------------------------------------------------------------------------------------------- the table


def _read_index(table: bytes) -> tuple[int, dict[str, _Entry]]:
    """The number of data files, and the variables. Raises ValueError and its like for anything else."""
    if len(table) < _FOOTER_BYTES or struct.unpack("<Q", table[-8:])[0] != _MAGIC:
        raise ValueError("its last eight bytes are not LevelDB's")
    # Two handles, each a position and a size: that of the meta blocks, which are not needed, and that of the index.
    at, numbers = len(table) - _FOOTER_BYTES, []
    for _ in range(4):
        number, at = read_varint(table, at)
        numbers.append(number)
    shards, entries = 0, {}
    for _, handle in _read_block(table, *numbers[2:]):
        block_offset, at = read_varint(handle, 0)
        for key, value in _read_block(table, block_offset, read_varint(handle, at)[0]):
            # The entry without a name is the header; its field 1 is the number of data files.
            if key:
                entries[key.decode()] = _read_entry(value)
            else:
                shards = _first_number(value, 0, len(value))
    if not shards:
        raise ValueError("it has no header")
    return shards, entries


def _read_block(table: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a block: a key shares its beginning with the one before it."""
    block, trailer = table[offset : offset + size], table[offset + size : offset + size + _TRAILER_BYTES]
    if len(trailer) < _TRAILER_BYTES or mask_crc(crc32c()(block + trailer[:1])) != struct.unpack("<I", trailer[1:])[0]:
        raise ValueError(f"the checksum of its block at byte {offset:,} is wrong")
    if trailer[0]:
        raise ValueError("it is compressed, which TensorFlow's own are not")
    # Positions for a binary search, and their count, end the block. A scan from the start does not need them.
    restarts = struct.unpack("<I", block[-4:])[0]
    at, end, key = 0, len(block) - 4 * (restarts + 1), b""
    while at < end:
        shared, at = read_varint(block, at)
        unshared, at = read_varint(block, at)
        length, at = read_varint(block, at)
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + length]
        at += length


def _read_entry(message: bytes) -> _Entry:
    # BundleEntryProto: dtype 1, shape 2, shard 3, offset 4, size 5, checksum 6, slices 7. A zero is not stored.
    fields = {number: (start, stop) for number, _, start, stop in read_fields(message, 0, len(message))}
    # A field that is a number has it in place of its position.
    dtype, shard, offset, size = (fields.get(number, (0, 0))[0] for number in (1, 3, 4, 5))
    shape = tuple(
        to_signed(_first_number(message, a, b))
        for field, _, a, b in read_fields(message, *fields.get(2, (0, 0)))
        if field == 2
    )
    crc = struct.unpack("<I", message[slice(*fields[6])])[0] if 6 in fields else 0
    return _Entry(dtype=dtype, shape=shape, shard=shard, offset=offset, size=size, crc=crc, sliced=7 in fields)


def _first_number(message: bytes, start: int, stop: int) -> int:
    """Field 1 of a message: a dimension's size, or the number of data files; 0 if it is not stored."""
    return next((value for field, _, value, _ in read_fields(message, start, stop) if field == 1), 0)


# --------------------------------------------------------------------------------------------------------------- names


def resnet_state(variables: Mapping[str, Tensor]) -> State:
    """The weights of a ResNet under torchvision's names, in PyTorch's order of axes. Raises ConfigError for others.

    A detector's variables outside of its backbone are left out, and those of the optimiser.
    """
    scoped = any(_SCOPE.match(name) for name in variables)
    plain = {_SCOPE.sub("", name): value for name, value in variables.items() if not scoped or _SCOPE.match(name)}
    plain = {name: value for name, value in plain.items() if not name.endswith(_SLOTS)}
    kernels = _numbered(plain, "conv2d", "kernel")
    norms = _numbered(plain, "batch_normalization", "gamma")
    if not kernels or len(kernels) != len(norms):
        raise ConfigError(
            "The TensorFlow checkpoint is not that of a ResNet built with tf.layers (conv2d/kernel, "
            f"batch_normalization/gamma, ...); it has {join_some(variables)}."
        )
    sides = [kernel.shape[0] for _, kernel in kernels]
    if (names := _names_in_order(sides)) is None:
        raise ConfigError(f"The TensorFlow checkpoint is no ResNet: kernels of {join_some(map(str, sides), limit=12)}.")
    state: State = {}
    for layer, norm, kernel, gamma in zip(*names, kernels, norms, strict=True):
        # TensorFlow has height, width, inputs, outputs.
        state[f"{layer}.weight"] = kernel[1].permute(3, 2, 0, 1).contiguous()
        parts = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
        for our_part, part in parts.items():
            if (value := plain.get(f"{gamma[0]}/{part}")) is None:
                raise ConfigError(f"The TensorFlow checkpoint has no {gamma[0]}/{part}.")
            state[f"{norm}.{our_part}"] = value
    if "dense/kernel" in plain:
        state |= {f"{HEAD}.weight": plain["dense/kernel"].t().contiguous(), f"{HEAD}.bias": plain["dense/bias"]}
    return state


def _numbered(variables: Mapping[str, Tensor], kind: str, part: str) -> list[tuple[str, Tensor]]:
    """The layers `kind`, `kind_1`, `kind_2`, ... with one of their variables, in the order of their creation."""
    matches = [(m, v) for name, v in variables.items() if (m := re.fullmatch(rf"({kind}(?:_(\d+))?)/{part}", name))]
    # By number, since as texts conv2d_10 would come before conv2d_2.
    return [(m[1], value) for m, value in sorted(matches, key=lambda pair: int(pair[0][2] or 0))]


def _names_in_order(sides: Sequence[int]) -> tuple[list[str], list[str]] | None:
    """Names of convolutions and norms, from the sides of the kernels in TensorFlow's order of creation.

    A stage begins with a projection, 1x1, which is created before the block it belongs to; the first stage of
    models with basic blocks has none. None for kernels that are not those of a residual model.
    """
    basic = list(sides[1:2]) == [3]
    block_sides = [3, 3] if basic else [1, 3, 1]
    convolutions, norms = ["conv1"], ["bn1"]
    # A projection starts a stage, so bottlenecks start before the first one and basic blocks are in it already.
    stage, block, at = (1, 0, 1) if basic else (0, 0, 1)
    while at < len(sides):
        if list(sides[at : at + len(block_sides)]) != block_sides:
            stage, block = stage + 1, 0
            convolutions.append(f"layer{stage}.0.downsample.0")
            norms.append(f"layer{stage}.0.downsample.1")
            at += 1
        if list(sides[at : at + len(block_sides)]) != block_sides:
            return None
        for number in range(1, len(block_sides) + 1):
            convolutions.append(f"layer{stage}.{block}.conv{number}")
            norms.append(f"layer{stage}.{block}.bn{number}")
        at, block = at + len(block_sides), block + 1
    return convolutions, norms


FORMAT = WeightFormat(
    about="TensorFlow checkpoint",
    find=find_checkpoint,
    read=lambda prefix: resnet_state(read_checkpoint(prefix)),
    padding="tf",
)
