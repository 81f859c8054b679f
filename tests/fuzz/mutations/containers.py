"""Damage inside a format: a part is damaged, and lengths and checksums around it are made right again.

Otherwise almost every damaged file would fail at its checksum, and nothing behind it would ever be tried. Each function
gives None where the bytes are not of its format any more.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from random import Random

from vernier.compat.protobuf import crc32c, mask_crc, read_varint, varint

from .raw import NUMBERS, damage_bytes
from .text import damage_text
from .trees import damage_json

_BLOCK = 512


def _part(random: Random, content: bytes) -> bytes:
    return damage_bytes(random, content, ())


# ------------------------------------------------------------------------------------------------------------------ tar


def damage_tar(random: Random, content: bytes) -> bytes | None:
    """A field of one header, or the content of one member."""
    starts = _tar_headers(content)
    if not starts:
        return None
    at = random.choice(starts)
    header = bytearray(content[at : at + _BLOCK])
    fields = {
        "name": (0, 100),
        "mode": (100, 108),
        "size": (124, 136),
        "type": (156, 157),
        "link": (157, 257),
        "prefix": (345, 500),
    }
    start, stop = fields[random.choice(("name", "name", "size", "size", "type", "type", *fields))]
    if random.random() < 0.3:  # not always a field that the format knows
        start = random.randrange(_BLOCK)
        stop = min(_BLOCK, start + random.choice((1, 4, 12)))
    header[start:stop] = _tar_field(random, bytes(header[start:stop]), stop - start)
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    return content[:at] + bytes(header) + content[at + _BLOCK :]


def _tar_field(random: Random, old: bytes, size: int) -> bytes:
    octal = b"%0*o" % (max(1, size - 1), random.choice((*NUMBERS[:12], 511, 513, 10**6, 10**9)))
    values = (
        *(
            octal,
            octal,
            b"\x80" + random.choice(NUMBERS).to_bytes(11, "big"),
            b"\xff" * size,
            b"-1",
            b" ",
            b"",
            b"9" * size,
        ),
        *(
            b"LKxgS1257V"[random.randrange(10) :][:1],
            b"../../etc/x",
            b"/abs",
            b"a/b.cls",
            b"no-ending",
            b".jpg",
            b"x.cls",
            b"\xff\xfe.jpg",
        ),
        *(_part(random, old), _part(random, old)),
    )
    return random.choice(values)[:size].ljust(size, b"\0")


def _tar_headers(content: bytes) -> list[int]:
    starts, at = [], 0
    while at + _BLOCK <= len(content) and any(content[at : at + _BLOCK]) and len(starts) < 100:
        starts.append(at)
        try:
            size = int(content[at + 124 : at + 136].rstrip(b"\0 ") or b"0", 8)
        except ValueError:
            break
        at += _BLOCK + -(-max(0, size) // _BLOCK) * _BLOCK
    return starts


# ------------------------------------------------------------------------------------------------- TensorFlow's formats


def damage_tfrecord(random: Random, content: bytes) -> bytes | None:
    """The message of one record, or its length."""
    records, at = [], 0
    while at + 16 <= len(content):
        size = struct.unpack_from("<Q", content, at)[0]
        if at + 16 + size > len(content):
            return None
        records.append(content[at + 12 : at + 12 + size])
        at += 16 + size
    if not records:
        return None
    number, lie = random.randrange(len(records)), random.random() < 0.1
    records[number] = damage_message(random, records[number])
    parts = []
    for i, record in enumerate(records):
        length = struct.pack("<Q", random.choice(NUMBERS) if lie and i == number else len(record))
        parts += [length, _masked(length), record, _masked(record)]
    return b"".join(parts)


def _masked(content: bytes) -> bytes:
    return struct.pack("<I", mask_crc(crc32c()(content)))


def damage_message(random: Random, message: bytes) -> bytes:
    """A protobuf message: bytes of it, or a field inside of it with all lengths around it made right."""
    fields = _message_fields(message)
    if not fields or random.random() < 0.25:
        return _part(random, message)
    start, stop, tag = random.choice(fields)
    change = random.randrange(6)
    if change == 0:
        return message[:start] + message[stop:]
    if change == 1:
        return message[:stop] + message[start:stop] * random.choice((1, 3)) + message[stop:]
    if tag & 7 == 2:
        _, at = read_varint(message, start)
        size, at = read_varint(message, at)
        inner = message[at : at + size]
        inner = damage_message(random, inner) if change < 5 else _part(random, inner)
        return message[:start] + varint(tag) + varint(len(inner)) + inner + message[stop:]
    if tag & 7 == 0:
        value = varint(random.choice(NUMBERS)) if change < 5 else b"\xff" * 11
        return message[:start] + varint(tag) + value + message[stop:]
    return message[:start] + varint(tag ^ random.randrange(8)) + message[stop:]


def _message_fields(message: bytes) -> list[tuple[int, int, int]]:
    """Start, end and tag of every field; empty for what is no message."""
    fields, at = [], 0
    try:
        while at < len(message):
            start = at
            tag, at = read_varint(message, at)
            if tag & 7 == 2:
                size, at = read_varint(message, at)
                at += size
            elif tag & 7 == 0:
                _, at = read_varint(message, at)
            else:
                at += {1: 8, 5: 4}[tag & 7]
            if tag == 0 or at > len(message):
                return []
            fields.append((start, at, tag))
    except (ValueError, IndexError, KeyError):
        return []
    return fields


def damage_table(random: Random, content: bytes) -> bytes | None:
    """A block of LevelDB's table, which the index of a TensorFlow checkpoint is."""
    if len(content) < 60:
        return None
    footer, at, handles = content[-48:], 0, []
    try:
        for _ in range(2):
            offset, at = read_varint(footer, at)
            size, at = read_varint(footer, at)
            handles.append((offset, size))
    except (ValueError, IndexError):
        return None
    if random.random() < 0.6 and handles[0][0] > 8:
        handles.append((0, handles[0][0] - 5))  # the first block, where there is one alone
    offset, size = random.choice(handles)
    if offset + size + 5 > len(content) or size < 1:
        return None
    block = _part(random, content[offset : offset + size])[:size].ljust(size, b"\0")
    if random.random() < 0.5 and size > 4:
        block = block[:-4] + content[offset + size - 4 : offset + size]  # the restarts are at the end
    kind = content[offset + size : offset + size + 1]
    return content[:offset] + block + kind + _masked(block + kind) + content[offset + size + 5 :]


# --------------------------------------------------------------------------------------------------------------- images


def damage_png(random: Random, content: bytes) -> bytes | None:
    """One chunk, its checksum made right; of pixels also what is compressed in them."""
    chunks, at = [], 8
    while at + 12 <= len(content):
        size = struct.unpack_from(">I", content, at)[0]
        if at + 12 + size > len(content):
            return None
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + size]))
        at += 12 + size
    if not chunks:
        return None
    number = random.randrange(len(chunks))
    kind, data = chunks[number]
    change = random.randrange(8)
    if change == 0:
        del chunks[number]
    elif change == 1:
        chunks.insert(random.randrange(len(chunks) + 1), (kind, data))
    elif change == 2:
        chunks[number] = (
            random.choice((b"tEXt", b"zTXt", b"iTXt", b"PLTE", b"acTL", b"fcTL", b"tRNS", b"iCCP", b"eXIf", b"IDAT")),
            data,
        )
    elif kind == b"IDAT" and change < 6:
        chunks[number] = (kind, zlib.compress(_part(random, _inflated(data))))
    else:
        chunks[number] = (kind, _part(random, data))
    body = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return content[:8] + body


def _inflated(data: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, 1 << 20)
    except zlib.error:
        return data


def damage_jpeg(random: Random, content: bytes) -> bytes | None:
    """A segment of the header: its content, its length, its kind; or restart markers in the stream."""
    segments, at = [], 2
    while at + 4 <= len(content) and content[at] == 0xFF and content[at + 1] not in (0xD9, 0xDA):
        size = struct.unpack_from(">H", content, at + 2)[0]
        segments.append((at, min(len(content), at + 2 + size)))
        at += 2 + size
    if not segments:
        return None
    start, stop = random.choice(segments)
    change = random.randrange(7)
    if change == 0:
        return content[:start] + content[stop:]
    if change == 1:
        return content[:stop] + content[start:stop] + content[stop:]
    if change == 2:
        kind = random.choice(
            (0xC0, 0xC1, 0xC2, 0xC4, 0xDB, 0xDD, 0xE0, 0xE1, 0xEE, 0xFE, 0xD8, 0x01, random.randrange(256))
        )
        return content[: start + 1] + bytes([kind]) + content[start + 2 :]
    if change == 3 and at < len(content):
        where = random.randrange(at, len(content))
        return (
            content[:where]
            + bytes([0xFF, random.choice((0xD0, 0xD3, 0xD7, 0xD9, 0xDA, 0, 0xFF))])
            + content[where + random.choice((0, 2)) :]
        )
    body = _part(random, content[start + 4 : stop])
    return content[: start + 2] + struct.pack(">H", min(65535, len(body) + 2)) + body + content[stop:]


# -------------------------------------------------------------------------------------------------------------- weights


def damage_safetensors(random: Random, content: bytes) -> bytes | None:
    """The JSON header, with its length made right."""
    if len(content) < 8:
        return None
    size = struct.unpack_from("<Q", content)[0]
    header = damage_json(random, content[8 : 8 + size]) if size < len(content) else None
    if header is None:
        return None
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def damage_zip(random: Random, content: bytes) -> bytes | None:
    """One file of an archive; its name, its content, or whether it is there."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            files = [(name, archive.read(name)) for name in archive.namelist()]
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, KeyError, NotImplementedError, RuntimeError, zlib.error):
        return None
    if not files:
        return None
    number = next((i for i, (name, _) in enumerate(files) if name.endswith(".pkl")), 0)
    if random.random() < 0.4:
        number = random.randrange(len(files))
    name, data = files[number]
    change = random.randrange(10)
    if change == 0:
        del files[number]
    elif change == 1:
        files[number] = (random.choice((f"{name}x", "../x", name.rpartition("/")[2], "a/data.pkl", "a/version")), data)
    elif change < 5 and name.endswith(".pkl"):
        files[number] = (name, damage_text(random, data, ()))
    else:
        files[number] = (name, _part(random, data))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files:
            archive.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


def damage_matlab(random: Random, content: bytes) -> bytes | None:
    """An element of a MATLAB 5 file, inside its compression."""
    if len(content) < 136:
        return None
    kind, size = struct.unpack_from("<II", content, 128)
    if kind != 15 or 136 + size > len(content):
        return None
    inner = zlib.compress(_part(random, _inflated(content[136 : 136 + size])))
    return content[:128] + struct.pack("<II", 15, len(inner)) + inner + content[136 + size :]


def damage_gzip(random: Random, content: bytes) -> bytes | None:
    """What a gzip file holds."""
    try:
        plain = zlib.decompressobj(31).decompress(content, 1 << 20)
    except zlib.error:
        return None
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(_part(random, plain)) + packer.flush()


FORMATS: dict[str, Callable[[Random, bytes], bytes | None]] = {
    "tar": damage_tar,
    "tfrecord": damage_tfrecord,
    "png": damage_png,
    "jpg": damage_jpeg,
    "safetensors": damage_safetensors,
    "index": damage_table,
    "pth": damage_zip,
    "onnx": damage_message,
    "mat": damage_matlab,
    "gz": damage_gzip,
}
"""By the ending of a file's name."""
