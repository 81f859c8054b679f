"""That the tracer sees what `strace` sees, and does to a process what it is asked for."""

import errno
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from .tracing import REPO, Operation, missing, read_trace, tracer

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

SAVING = """
import ctypes, os, sys, threading
from pathlib import Path
import numpy as np
from safetensors.numpy import save_file
from vernier.store import write_json

ctypes.CDLL(None).prctl(*(ctypes.c_ulong(int(word, 0)) for word in sys.argv[2:]))
folder = Path(sys.argv[1])
(folder / "new").mkdir()
save_file({"a": np.arange(9000.0)}, folder / "new" / "a.safetensors")
thread = threading.Thread(target=lambda: write_json(folder / "new" / "b.json", {"b": 1}))
thread.start()
thread.join()
os.link(folder / "new" / "b.json", folder / "c.json")
if os.fork() == 0:
    (folder / "new").rename(folder / "old")
    os._exit(0)
os.wait()
(folder / "c.json").unlink()
(folder / "old" / "a.safetensors").unlink()
with (folder / "log").open("a") as f:
    f.write("x" * 100)
"""
RECORD = ["0x56524E02", "16383", "0", "0", "0"]
NAMES = {"openat": "open-write", "renameat": "rename", "fsync": "sync", "ftruncate": "truncate", "unlinkat": "unlink"}


def _saving(folder: Path, request: list[str]) -> list[str]:
    folder.mkdir()
    return [sys.executable, "-c", SAVING, str(folder), *request]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPO / "src"), "PYTHONDONTWRITEBYTECODE": "1"}


def _name(path: str) -> str:
    return re.sub(r"\.tmp.*", ".tmp", Path(path).name)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_it_records_every_change_that_strace_sees(tmp_path: Path) -> None:
    trace, log = tmp_path / "trace", tmp_path / "strace"
    command = _saving(tmp_path / "ours", RECORD)
    subprocess.run([tracer(), str(tmp_path / "ours"), str(trace), *command], check=True, env=_environment())
    ours = Counter((r.operation, _name(r.other or r.path)) for r in read_trace(trace) if r.result >= 0)
    calls = "openat,open,write,writev,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,fsync,ftruncate"
    strace = ["strace", "-f", "-y", "-s", "0", "-o", str(log), "-e", f"trace={calls}"]
    subprocess.run([*strace, *_saving(tmp_path / "theirs", RECORD)], check=True, env=_environment())
    theirs: Counter[tuple[str, str]] = Counter()
    for line in log.read_text().splitlines():
        call = re.match(r"\d+ +(\w+)\((.*)(?:\) += \d| <unfinished)", line)
        if call and str(tmp_path / "theirs") in call[2] and not ("openat" in line and "O_RDONLY" in line):
            theirs[NAMES.get(call[1], call[1]), _name(re.findall(rf"{tmp_path}/theirs[^\">]*", call[2])[-1])] += 1
    seen = {key: n for key, n in ours.items() if key[0] not in ("read", "open-read", "close", "list")}
    assert dict(theirs) == seen
    assert len(seen) > 12


@pytest.mark.parametrize(
    ("operation", "message"),
    [(Operation.RENAME, "SafetensorError"), (Operation.MKDIR, "mkdir"), (Operation.SYNC, "in sync_to_disk")],
)
def test_an_operation_fails_as_asked(tmp_path: Path, operation: Operation, message: str) -> None:
    fault = ["0x56524E01", str(int(operation)), str(1 << 16 | errno.EIO), "1", "1"]
    command = _saving(tmp_path / "run", fault)
    done = subprocess.run(
        [tracer(), str(tmp_path / "run"), str(tmp_path / "trace"), *command],
        env=_environment(),
        capture_output=True,
        text=True,
    )
    assert "nput/output error" in done.stderr
    assert message in done.stderr
    (first, *_) = read_trace(tmp_path / "trace")
    assert (first.operation, first.error) == (str(operation.name).lower(), "EIO")
