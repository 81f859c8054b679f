"""`vernier train` in several processes, watched and disturbed from outside through its run directory."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import TINY, command

PATIENCE_S = 240
"""The longest wait, for a crowded machine; what is waited for takes seconds."""
LONG = [
    *("--epochs", "400", "--set", "eval.every_epochs=0"),
    *("--set", "checkpoint.every_steps=20", "--set", "checkpoint.every_epochs=0"),
]
Start = Callable[[list[str], Path], "Running"]


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    """The first true value; fails when the process ends before, or nothing happens within PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if value := condition():
            return value
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError(f"nothing happened within {PATIENCE_S} s")


def arguments(shapes: Path, out: Path, *more: str) -> list[str]:
    """A tiny training that lasts long enough to be disturbed."""
    return ["train", "--data", str(shapes), "--out", str(out), *TINY, *LONG, *more]


def start_by_hand(start: Start, out: Path, data: list[Path], *more: str) -> list["Running"]:
    """Processes that find each other through variables, each with its own data, as on hosts with their own disks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = [f"WORLD_SIZE={len(data)}", "MASTER_ADDR=127.0.0.1", f"MASTER_PORT={port}"]
    return [
        start(["env", f"RANK={rank}", *variables, *command(*arguments(folder, out, *more))], out)
        for rank, folder in enumerate(data)
    ]


class Running:
    """A training in several processes."""

    def __init__(self, arguments: list[str], out: Path) -> None:
        self.out = out
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(arguments, stdout=pipe, stderr=pipe, text=True, env=environ)

    def run(self) -> Path:
        (path,) = self.out.iterdir()
        return path

    def events(self, kind: str) -> list[dict[str, Any]]:
        if not self.out.is_dir() or not list(self.out.glob("*/events.jsonl")):
            return []
        lines = (self.run() / "events.jsonl").read_text().splitlines()
        return [e for e in (json.loads(line) for line in lines) if e["kind"] == kind]

    def pids(self) -> list[int]:
        started = self.events("start")[-1]["processes"]
        return [p["pid"] for p in started]

    def under_way(self, starts: int = 1) -> list[int]:
        """The process numbers, once this session has done a few steps."""

        def moved() -> bool:
            steps, begun = self.events("step"), self.events("start")
            return len(begun) >= starts and bool(steps) and steps[-1]["step"] > (begun[-1]["resumed_from"] or 0) + 5

        wait_for(moved, self.process)
        return self.pids()

    def wait(self) -> tuple[int, str]:
        """Exit code and output."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out + err

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads((self.run() / "run.json").read_text())
        return status
