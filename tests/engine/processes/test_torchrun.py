"""torchrun's exit code, with real processes."""

import subprocess
import sys

import pytest

from vernier.engine.processes.torchrun import _common_code

SCRIPT = """
from vernier.engine.processes.torchrun import _main
for code in (0, 75, 1):
    print(code, _main(["--nproc-per-node=2", "--monitor-interval=0.1", "--no-python", "sh", "-c", f"exit {code}"]))
"""


def test_processes_that_agree_give_their_code() -> None:
    assert [_common_code(codes) for codes in ([75, 75], [2], [75, 1], [-9], [])] == [75, 2, 1, 1, 1]


@pytest.mark.slow
def test_torchrun_ends_as_its_processes_do() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300)
    assert done.stdout.split("\n")[:3] == ["0 0", "75 75", "1 1"], done.stderr
