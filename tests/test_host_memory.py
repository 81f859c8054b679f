"""Free memory of the host, of control groups and of limits."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from vernier.host_memory import available_bytes, resident_bytes


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A process in /job/step, with no limits of its own."""
    folder = tmp_path / "self"
    write(folder, cgroup="0::/job/step\n", status="VmData:\t 100 kB\nVmSize:\t 200 kB\n")
    return folder


def test_a_process_without_limits_has_what_the_host_has(tmp_path: Path, own: Path) -> None:
    assert available_bytes(tmp_path, own) == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_the_tightest_group_counts_and_its_cached_files_are_free(tmp_path: Path, own: Path) -> None:
    groups = tmp_path / "groups"
    write(groups / "job/step", memory__max="max\n", memory__current="5", memory__stat="inactive_file 1\n")
    write(groups / "job", memory__max="10000\n", memory__current="4000\n", memory__stat="anon 9\ninactive_file 500\n")
    assert available_bytes(groups, own) == 6500


def test_groups_of_the_first_version(tmp_path: Path, own: Path) -> None:
    write(own, cgroup="11:cpu,cpuacct:/x\n4:memory:/docker/1\n")
    here = tmp_path / "groups/memory/docker/1"
    write(
        here,
        memory__limit_in_bytes="9000",
        memory__usage_in_bytes="8000",
        memory__stat="total_inactive_file 700\ninactive_file 1\n",
    )
    assert available_bytes(tmp_path / "groups", own) == 1700


def test_a_group_over_its_limit_has_nothing(tmp_path: Path, own: Path) -> None:
    write(tmp_path / "groups/job", memory__max="10", memory__current="4000", memory__stat="")
    assert available_bytes(tmp_path / "groups", own) == 0


@pytest.mark.parametrize("files", [{}, {"memory__max": "much"}, {"memory__max": "10"}])
def test_files_that_say_nothing_are_left_out(tmp_path: Path, own: Path, files: dict[str, str]) -> None:
    write(tmp_path / "groups/job", **files)
    assert available_bytes(tmp_path / "groups", own) > 10


def test_a_limit_of_the_process_counts() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_DATA, (10**9, -1)); "
        "from vernier.host_memory import available_bytes; print(available_bytes())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 10**9


def test_memory_of_this_process() -> None:
    assert 10**7 < resident_bytes() < psutil.virtual_memory().total
