"""A bounded run of all fuzzers, with the same inputs every time: new ones are for `python -m tests.fuzz --seed`.

In a process of its own: the fuzzers fork, and pytest's process has threads by then.
"""

import subprocess
import sys
from pathlib import Path

import pytest

CPU_S = 18
REPOSITORY = Path(__file__).parents[2]


def run_fuzzers(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=1200, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["1", "2"])
def test_no_damaged_file_does_more_than_be_refused(seed: str, tmp_path: Path) -> None:
    done = run_fuzzers("--no-guided", "--seconds", str(CPU_S), "--seed", seed, "--out", str(tmp_path))
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    assert " inputs " in done.stderr


def test_the_compiled_decoder_accepts_no_jpeg_that_libjpeg_refuses() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.acceptance", "--files", "500"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert " accepted by both" in done.stdout
