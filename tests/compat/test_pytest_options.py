"""The suite of contracts as an outside package runs it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .models import my_models


@pytest.mark.slow
def test_the_suite_runs_from_an_outside_folder(tmp_path: Path) -> None:
    shutil.copy(Path(my_models.__file__), tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "vernier.contracts"]
    names = ["--vernier-model", "my_models:Net", "--vernier-model", "my_models:MapsOfFeatures"]
    done = subprocess.run([*command, *names], cwd=tmp_path, capture_output=True, text=True)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "one score per image and class" in done.stdout
