"""Writes TensorFlow's checkpoints from the description of their formats: LevelDB's table, and tensor_bundle.proto."""

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vernier.compat.protobuf import crc32c, length_delimited, mask_crc, varint

Values = dict[str, npt.NDArray[np.generic]]
TYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "float16": 19, "bool": 10}


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(entries: list[tuple[bytes, bytes]], interval: int = 16) -> bytes:
    """Keys share their beginnings, anew after every `interval` entries."""
    content, restarts, last = bytearray(), [], b""
    for position, (key, value) in enumerate(entries):
        shared = 0
        if position % interval == 0:
            restarts.append(len(content))
        else:
            while shared < min(len(last), len(key)) and last[shared] == key[shared]:
                shared += 1
        content += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    restarts = restarts or [0]
    return bytes(content) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def table(entries: list[tuple[bytes, bytes]], per_block: int) -> bytes:
    """Blocks with their trailers, an index of them, and the footer."""
    content, handles = bytearray(), []

    def add(part: bytes) -> bytes:
        handle = varint(len(content)) + varint(len(part))
        content.extend(part + b"\0" + struct.pack("<I", mask_crc(crc32c()(part + b"\0"))))
        return handle

    for start in range(0, len(entries), per_block):
        own = entries[start : start + per_block]
        handles.append((own[-1][0], add(block(own))))
    footer = add(block([])) + add(block(handles, interval=1))
    return bytes(content) + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def write_checkpoint(prefix: Path, values: Values, *, per_block: int = 7, shards: int = 2) -> None:
    """`prefix.index` and `prefix.data-*`, the variables spread over the data files in turn."""
    data = [bytearray() for _ in range(shards)]
    entries = [(b"", number(1, shards))]
    for turn, name in enumerate(sorted(values)):
        value, shard = values[name], turn % shards
        content = value.tobytes()
        shape = b"".join(length_delimited(2, number(1, side) if side else b"") for side in value.shape)
        crc = varint(6 << 3 | 5) + struct.pack("<I", mask_crc(crc32c()(content)))
        parts = [number(1, TYPES[value.dtype.name]), length_delimited(2, shape), number(3, shard) if shard else b""]
        position = number(4, len(data[shard])) if data[shard] else b""
        entries.append((name.encode(), b"".join([*parts, position, number(5, len(content)), crc])))
        data[shard] += content
    prefix.with_name(f"{prefix.name}.index").write_bytes(table(entries, per_block))
    for shard, part in enumerate(data):
        prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}").write_bytes(part)


def resnet_variables(blocks: tuple[int, ...], widths: tuple[int, ...], *, bottleneck: bool = False) -> Values:
    """The variables of a ResNet as tf.layers creates and numbers them: a projection before the block it belongs to."""
    random = np.random.default_rng(1)
    kernels = [(7, 3, widths[0])]
    inner, channels = [(1, 1), (3, 1), (1, 4)] if bottleneck else [(3, 1), (3, 1)], widths[0]
    for stage, (count, width) in enumerate(zip(blocks, widths, strict=True)):
        for index in range(count):
            expanded = width * inner[-1][1]
            if index == 0 and (bottleneck or stage > 0):
                kernels.append((1, channels, expanded))
            for side, factor in inner:
                kernels.append((side, channels, width * factor))
                channels = width * factor
    values: Values = {"global_step": np.array(28152, dtype=np.int64)}
    for index, (side, source, target) in enumerate(kernels):
        suffix = f"_{index}" if index else ""
        kernel = random.normal(size=(side, side, source, target)).astype(np.float32)
        values[f"conv2d{suffix}/kernel"] = kernel
        values[f"conv2d{suffix}/kernel/Momentum"] = kernel * 0
        for part in ("gamma", "beta", "moving_mean", "moving_variance"):
            values[f"batch_normalization{suffix}/{part}"] = np.abs(random.normal(size=target)).astype(np.float32)
    values["dense/kernel"] = random.normal(size=(channels, 10)).astype(np.float32)
    values["dense/bias"] = random.normal(size=10).astype(np.float32)
    return values
