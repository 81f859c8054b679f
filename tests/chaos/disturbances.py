"""Faults that a training may meet and must outlive: kills, stops, a full or slow disk, a slow rank, a clock that jumps.

Each is a context: it begins when entered and has ended when left. The wall clock of the machine is never set: the
program sees another one through `disturbed.c`.
"""

import contextlib
import os
import random
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .fork_server import Session, kill, send

DISK_BYTES = 192 * 1024**2


class CannotDisturb(Exception):
    """What this machine lacks to make the faults."""


@dataclass(frozen=True)
class Stage:
    """Where a training under faults runs: a small disk of its own, and the library that slows and shifts it."""

    folder: Path
    disk: Path
    library: Path

    @property
    def control(self) -> Path:
        return self.folder / "control"

    def environ(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(self.library), "DISTURBED_CONTROL": str(self.control)}

    def disturb(self, *, delay_us: int | None = None, offset_s: int | None = None) -> None:
        """Change how slow the disk and how wrong the clock is; what is left out stays."""
        now = struct.unpack("<qq", self.control.read_bytes())
        numbers = (now[0] if delay_us is None else delay_us, now[1] if offset_s is None else offset_s)
        with self.control.open("r+b") as f:  # in place: it is mapped by the processes
            f.write(struct.pack("<qq", *numbers))


@contextlib.contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Mount the disk and build the library. Raises CannotDisturb."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise CannotDisturb("a C compiler (cc, gcc) is needed for the slow disk and the clock")
    if os.geteuid() != 0:
        raise CannotDisturb("root is needed to mount the small disk that is filled")
    disk, library = folder / "disk", folder / "disturbed.so"
    disk.mkdir(parents=True)
    source = Path(__file__).with_suffix("").with_name("disturbed.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        raise CannotDisturb("a tmpfs cannot be mounted here")
    (folder / "control").write_bytes(struct.pack("<qq", 0, 0))
    try:
        yield Stage(folder, disk, library)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=False)


@dataclass(frozen=True)
class Scene:
    """What a fault acts on."""

    stage: Stage
    session: Session
    dice: random.Random
    seconds: float
    """How long a fault lasts that has a length."""


def kill_rank(scene: Scene) -> None:
    if ranks := scene.session.ranks():
        kill(scene.dice.choice(ranks))


def kill_all(scene: Scene) -> None:
    kill(*scene.session.processes())


def stop_and_continue(scene: Scene) -> None:
    """As a scheduler suspends a job."""
    processes = scene.session.processes()
    send(signal.SIGSTOP, *processes)
    time.sleep(scene.seconds)
    send(signal.SIGCONT, *processes)


def fill_disk(scene: Scene) -> None:
    filler = scene.stage.disk / "filler"
    try:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as f:
            while f.write(b"\0" * 65536):
                pass
        deadline_s = time.monotonic() + scene.seconds
        while time.monotonic() < deadline_s:  # what is freed meanwhile is taken too
            with contextlib.suppress(OSError), filler.open("ab", buffering=0) as f:
                f.write(b"\0" * 4096)
            time.sleep(0.05)
    finally:
        filler.unlink(missing_ok=True)


def slow_disk(scene: Scene) -> None:
    scene.stage.disturb(delay_us=50_000)
    time.sleep(scene.seconds)
    scene.stage.disturb(delay_us=0)


def slow_rank(scene: Scene) -> None:
    """One rank gets a fifth of the time."""
    if not (ranks := scene.session.ranks()):
        return
    rank, deadline_s = scene.dice.choice(ranks), time.monotonic() + scene.seconds
    while time.monotonic() < deadline_s:
        send(signal.SIGSTOP, rank)
        time.sleep(0.2)
        send(signal.SIGCONT, rank)
        time.sleep(0.05)


def clock_jump(scene: Scene) -> None:
    """To within an hour before or after the right time; it stays so until the next jump."""
    scene.stage.disturb(offset_s=scene.dice.randrange(-3600, 3600))


FAULTS: dict[str, Callable[[Scene], None]] = {
    "kill of a rank": kill_rank,
    "kill of all processes": kill_all,
    "stop and continue": stop_and_continue,
    "disk full": fill_disk,
    "slow disk": slow_disk,
    "slow rank": slow_rank,
    "clock jump": clock_jump,
}
