"""rgpu in tests: a device that queues, whose tensors live in a server process (`tests/rgpu_plugin`).

It is present where the folder `.venv/rgpu` exists, or the one that VERNIER_TEST_RGPU names:
`pip install --no-deps --target .venv/rgpu rgpu ./tests/rgpu_plugin`. It is never imported into pytest's own process:
tests run `python -m vernier ...` or small scripts with the environment of the fixture `rgpu_environment`.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[1]
START_S = 60.0


def rgpu_folder() -> Path:
    """Where rgpu and its plug-in are installed; the folder need not exist."""
    return Path(os.environ.get("VERNIER_TEST_RGPU") or REPO / ".venv" / "rgpu").absolute()


def why_absent() -> str:
    """Why rgpu cannot be used here; empty if it can."""
    if (rgpu_folder() / "rgpu").is_dir():
        return ""
    install = "pip install --no-deps --target .venv/rgpu rgpu ./tests/rgpu_plugin"
    return f"rgpu is not in {rgpu_folder()} (set VERNIER_TEST_RGPU, or: {install})"


class RgpuServer:
    """A server process on this machine's CPU, with one thread; `environment` leads other processes to it."""

    def __init__(self) -> None:
        self._log = tempfile.NamedTemporaryFile(prefix="rgpu-server-", suffix=".log")  # noqa: SIM115
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rgpu.server", "--device", "cpu", "--port", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            # Some virtual machines list AMX and kill what uses it.
            env={**self.environment, "OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"},
        )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process that uses this server."""
        path = [str(rgpu_folder()), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in path if p),
            "RGPU_OPSERVER": f"127.0.0.1:{self.port}",
            "RGPU_ALLOW_VERSION_MISMATCH": "1",
            "RGPU_RECONNECT_SECONDS": "2",
        }

    def _wait(self) -> None:
        log, limit_s = Path(self._log.name), time.monotonic() + START_S
        while "serving" not in log.read_text():
            assert self.process.poll() is None, f"rgpu's server ended: {log.read_text()}"
            assert time.monotonic() < limit_s, f"rgpu's server does not start: {log.read_text()}"
            time.sleep(0.02)

    def stop(self) -> None:
        """End the process at once; every tensor on it is lost."""
        self.process.kill()
        self.process.wait()
        self._log.close()


@pytest.fixture(scope="session")
def rgpu_server() -> Iterator[RgpuServer]:
    """A server that all tests of this session share."""
    if why := why_absent():
        pytest.skip(why)
    server = RgpuServer()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def rgpu_environment(rgpu_server: RgpuServer) -> dict[str, str]:
    """The environment for processes that use rgpu: `subprocess.run(..., env=rgpu_environment)`."""
    return rgpu_server.environment


@pytest.fixture
def on_rgpu(rgpu_environment: dict[str, str]) -> Callable[..., Any]:
    """`on_rgpu(script, *arguments)`: the JSON that a Python script prints last, run in a process that uses rgpu."""

    def run(script: str, *arguments: object, timeout: float = 300) -> Any:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=REPO, timeout=timeout, env=rgpu_environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run
