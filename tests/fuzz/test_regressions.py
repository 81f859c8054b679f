"""Inputs that once failed: with an error of the wrong kind, for too long, or with too much memory.

Each stands for a defect that the fuzzers found. `python -m tests.fuzz` minimises new ones; add them here once repaired.
"""

import struct
import tarfile
import zlib
from pathlib import Path

from .targets import TARGETS
from .targets.base import Case
from .test_fuzz import run_fuzzers

DIGITS, MORE_DIGITS = b"9" * 400, b"9" * 5000
"""More than a float holds, and more than Python turns into a number."""
DEEP = b'{"a":' * 100_000
TIMM = b'{"architecture":"resnet8_small","pretrained_cfg":{"input_size":[3,%b,8],"crop_pct":%b,"mean":[],"std":[%b]}}'


def _changed(target: str, example: str, path: str, old: bytes, new: bytes) -> Case:
    """A sound file with one part replaced."""
    content = TARGETS[target].sound[example][path]
    assert old in content, "the example has changed"
    return Case(target, example, path, content.replace(old, new, 1))


def _png(width: int, height: int, depth: int) -> bytes:
    """A PNG that claims any size, and has next to no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, depth, 2 if depth == 8 else 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(300))) + chunk(b"IEND", b"")
    )


def _tar_header(name: str, size: int) -> bytes:
    header = tarfile.TarInfo(name)
    header.size = size
    return header.tobuf(tarfile.GNU_FORMAT)


def _settings() -> dict[str, Case]:
    return {
        "digits in --set": Case("config", "settings", "set.txt", b"data.mean=[" + MORE_DIGITS + b"]"),
        "digits in JSON": Case("config", "old", "recipe.json", MORE_DIGITS),
        "a list of floats": Case("config", "shapes-quick", "recipe.toml", b"[schedule]\nmilestones=[" + DIGITS + b"]"),
        "a whole number": Case("config", "old", "recipe.json", b'{"schema":3,"recipe":{"seed":' + DIGITS + b"}}"),
        "endless epochs": Case("config", "settings", "set.txt", b"schedule.epochs=1e308\n"),
        "nesting": Case("config", "old", "recipe.json", DEEP),
        "nesting that json still reads": Case(
            "config", "old", "recipe.json", b'{"schema":1,"":' + b'{"":' * 700 + b"0" + b"}" * 701
        ),
    }


def _logs() -> dict[str, Case]:
    return {
        "DLLogger, nested": Case("logs", "dllogger-json", "log.jsonl", b"DLLL " + DEEP),
        "DLLogger, 400 digits": Case(
            "logs", "dllogger-json", "log.jsonl", b'DLLL {"step":[0,3],"data":{"train.loss":' + DIGITS + b"}}"
        ),
        "raport, an object for a number": Case(
            "logs", "raport", "log.json", b'{"iter":{"val.it":[{"":null}],"val.x":[[0],[]]},"epoch":{}}'
        ),
        "raport, an endless iteration": Case(
            "logs", "raport", "log.json", b'{"iter":{"it":[[Infinity]],"x":[[0.1]]},"epoch":{}}'
        ),
        "raport, a text for a number": Case(
            "tables", "raport", "log.json", b'{"iter":{"it":[[1,""]],"x":[[0,0.1]]},"epoch":{}}'
        ),
        "raport, a number for a list": Case("logs", "raport", "log.json", b'{"iter":{"x":[[0]]},"epoch":{"ep":3}}'),
        "MLPerf, nested": Case("logs", "mllog", "log.jsonl", b':::MLLOG {"key":"a","value":' + DEEP),
        "MLPerf, no time": Case(
            "logs",
            "mllog",
            "log.jsonl",
            b':::MLLOG {"time_ms":NaN,"key":"run_start"}\n:::MLLOG {"time_ms":9,"key":"run_stop"}',
        ),
        "iteration durations": Case("tables", "iterations", "log.log", b"Iteration Duration 2 1 : e\n" * 3),
        "a cell of 200,000 characters": Case("tables", "sc22", "table.csv", b"a,b\n1," + b"x" * 200_000),
        "a cell of 400 digits": _changed("tables", "sc22", "table.csv", b"120.5", DIGITS),
    }


def _runs() -> dict[str, Case]:
    return {
        "half a character": _changed("run", "current", "environment.json", b'"here"', b'"\\ud800"'),
        "telemetry of 400 digits": _changed(
            "run", "profile", "telemetry.jsonl", b'"own_pct": ', b'"own_pct": ' + DIGITS + b', "x": '
        ),
        "telemetry of a list": Case("run", "classifier", "telemetry.jsonl", b'{"kind":[]}'),
        "a start that is no time": _changed("trace", "two", "events.jsonl", b'"time": "2', b'"time": "x'),
        "half a character in a study": _changed(
            "study", "study", "study/simulated-000/repeat-0/repeat.json", b'"simulated-000"', b'"\\ud800"'
        ),
        "steps that took no time": _changed("trace", "two", "events.jsonl", b'"step_s": [9.0', b'"step_s": [0.0'),
        "a baseline whose noise is endless": _changed(
            "study", "baseline", "baseline.json", b'"noise_sd": ', b'"noise_sd": 235, "x": '
        ),
        "calls without a device": Case("trace", "two", "traces/calls.rank1.csv", b"name\nsgemm\n"),
        "a kernel without a time": Case("trace", "two", "traces/calls.rank1.csv", b"start_ms,device,name\n,x,sgemm\n"),
        "endless seconds": _changed("run", "classifier", "run.json", b'"total": ', b'"total": 1e999, "x": '),
        "images without channels": _changed("run", "profile", "config.json", b'"mean": [', b'"mean": [], "x": ['),
        "a recipe that is a number": Case("run", "current", "config.json", b'{"recipe":3}'),
        "a machine that is a list": Case("bench", "bench-train", "config.json", b'{"schema":1,"machine":[]}'),
        "endless settings of a study": _changed(
            "study", "study", "study.json", b'"settings": {', b'"settings": {"x": 1e999, '
        ),
        "a loss that is a list": _changed("run", "current", "config.json", b'"kind": "cross-entropy"', b'"kind": [1]'),
        "half a character in a hash": _changed(
            "shards", "ours", "train.shards.json", b'"sha256": "', b'"sha256": "\\udd14'
        ),
        "a name without end": Case(
            "tables", "dllogger-text", "log.log", b"DLL 2024-01-02 03:04:06.6 - " + b"[" * 100_000
        ),
        "a kernel that never ends": Case(
            "tables",
            "nvprof",
            "log.log",
            b'"Start","Duration",,"Device",,"Name"\ns,s\n1,2,,"(0)",,3\n6,1e400,," (0)",,s',
        ),
        "latencies without a median": _changed("bench", "current", "bench.json", b'"p50"', b'"p5"'),
        "weights of another network": _changed(
            "checkpoint",
            "classifier-rehashed",
            "checkpoints/step-00000004/ema.safetensors",
            b"bn1.num_batches_tracked",
            b"bn1.num_batches_trackex",
        ),
    }


def _weights() -> dict[str, Case]:
    return {
        "timm's size is endless": Case("safetensors", "few", "config.json", TIMM % (b"Infinity", b"1", b"1")),
        "timm's share of 400 digits": Case("safetensors", "few", "config.json", TIMM % (b"8", DIGITS, b"1")),
        "timm's share is no number": Case("safetensors", "few", "config.json", TIMM % (b"8", b"NaN", b"1")),
        "timm's deviation of 400 digits": Case("safetensors", "few", "config.json", TIMM % (b"8", b"1", DIGITS)),
        "TensorFlow's note is no text": Case("tensorflow", "resnet", "checkpoint", b"\xd0"),
        "a zip without its parts": Case(
            "torch", "few", "model.pth", b"PK\x05\x06" + bytes.fromhex("00000000 0800 0800 0b020000 23030000 0000")
        ),
        "a zip whose directory lies elsewhere": Case(
            "torch", "few", "model.pth", b"PK\x03\x04" + bytes(40) + TARGETS["torch"].sound["few"]["model.pth"][:-30]
        ),
    }


def _images() -> dict[str, Case]:
    return {
        "168 million pixels in 100 bytes": Case("image", "png", "image.png", _png(20, 1 << 23, 8)),
        "168 million pixels of 16 bits": Case("image", "png-16", "image.png", _png(20, 1 << 23, 16)),
    }


def _sets() -> dict[str, Case]:
    return {
        "a member of 2^63 bytes": Case(
            "imagenet", "labels", "val.tar", _tar_header("ILSVRC2012_val_00000001.JPEG", 2**63 - 1)
        ),
        "a label of 2^63": Case("imagenet", "labels", "truth.txt", b"9223372036854775808\n5"),
        "YAML, nested": Case("yolo", "splits", "data.yaml", b"names: " + b"[" * 100_000),
        "shards without images": Case(
            "shards",
            "ours",
            "train.shards.json",
            b'{"format":"vernier-shards","version":1,"classes":[],"shards":[]}',
        ),
        "an endless area": _changed(
            "coco", "splits", "annotations/instances_train2017.json", b'"area": 11.5', b'"area": "1e999"'
        ),
    }


def test_what_failed_once_is_read_or_refused(tmp_path: Path) -> None:
    cases = {**_settings(), **_logs(), **_runs(), **_weights(), **_images(), **_sets()}
    for name, case in cases.items():
        (tmp_path / f"{name}.json").write_text(case.to_text())
    done = run_fuzzers("--replay", *(str(tmp_path / f"{name}.json") for name in cases))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == len(cases)
