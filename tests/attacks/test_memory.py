"""The kernel kills one process of a run because memory ran out: named, without orphans, and resumed."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import command
from tests.engine.processes.running import Start, arguments

MEMORY = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group that may be given too little memory."""
    folder = MEMORY / f"vernier-{uuid.uuid4().hex}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("no control group for memory (version 1) can be made here")
    yield folder
    folder.rmdir()


@pytest.mark.slow
def test_a_rank_that_the_kernel_kills_is_named_and_the_same_command_resumes(
    shapes: Path,
    tmp_path: Path,
    start: Start,
    group: Path,
) -> None:
    out = tmp_path / "runs"
    run = start(command(*arguments(shapes, out, "--procs", "2")), out)
    pids = run.under_way()
    # What it touches from now on counts for the group: without swap, a megabyte is soon too little.
    (group / "memory.limit_in_bytes").write_text(str(1 << 20))
    (group / "cgroup.procs").write_text(str(pids[1]))
    code, output = run.wait()
    assert code == 1, output
    assert "rank 1" in output
    assert "SIGKILL" in output, output
    assert run.status()["status"] == "crashed"
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists() and os.getpgid(pid)]
    again = start(
        command(*arguments(shapes, out, "--procs", "1", "--max-steps", str(run.events("step")[-1]["step"] + 5))), out
    )
    code, output = again.wait()
    assert code == 0, output
    assert again.events("start")[-1]["resumed_from"] is not None
