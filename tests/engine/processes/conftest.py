from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.engine.processes.running import Running, Start


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts trainings; none outlives the test."""
    running: list[Running] = []

    def begin(arguments: list[str], out: Path) -> Running:
        running.append(Running(arguments, out))
        return running[-1]

    yield begin
    for one in running:
        if one.process.poll() is None:
            for child in psutil.Process(one.process.pid).children(recursive=True):
                child.kill()
            one.process.kill()
