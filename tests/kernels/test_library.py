"""The compiled library: the copy for this processor, and what a machine without it says."""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vernier.devices.cpu import instruction_sets
from vernier.errors import ConfigError
from vernier.kernels import library
from vernier.kernels.library import NeededBy, load_function

from .built import needs_library

ROOT = Path(__file__).parents[2]
BY = NeededBy("machine.backend", "compiled", "native")


@needs_library
def test_the_processor_decides_which_copy_is_called() -> None:
    flags = instruction_sets()
    avx2 = {"avx2", "fma", "bmi1", "bmi2"} <= flags
    avx512 = avx2 and {f"avx512{part}" for part in ("f", "bw", "cd", "dq", "vl")} <= flags
    expected = "avx512" if avx512 else "avx2" if avx2 else "plain"
    assert library._choose_level(ctypes.CDLL(str(library.PATH))) == expected
    assert load_function("jpeg_window", by=BY).__name__ == f"jpeg_window_{expected}"


def test_a_missing_a_damaged_and_an_older_library_are_refused_with_what_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(b"half a file")
    for path, name in ((tmp_path / "none.so", "jpeg_window"), (damaged, "jpeg_window"), (library.PATH, "no_such")):
        monkeypatch.setattr(library, "PATH", path)
        with pytest.raises(ConfigError, match="compiled part of Vernier, which cannot be loaded") as caught:
            load_function(name, by=BY)
        assert caught.value.given == {"machine.backend": "compiled"}
        assert caught.value.works == [("machine.backend", "native")]


def _copy_source(to: Path) -> Path:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, to)
    shutil.copytree(ROOT / "src" / "vernier" / "kernels", to / "src" / "vernier" / "kernels")
    (to / "src" / "vernier" / "__init__.py").write_text('__version__ = "0"\n')
    built = to / "src" / "vernier" / "kernels" / library.PATH.name
    built.unlink(missing_ok=True)
    return built


def _build(folder: Path, **environment: str) -> str:
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=folder, env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stderr.decode()


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
@pytest.mark.slow
def test_the_source_compiles_to_a_library_that_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = _copy_source(tmp_path)
    _build(tmp_path)
    monkeypatch.setattr(library, "PATH", built)
    assert load_function("jpeg_restarts", by=BY).__name__.startswith("jpeg_restarts_")


def test_without_a_compiler_the_installation_goes_on_without_the_library(tmp_path: Path) -> None:
    built = _copy_source(tmp_path)
    assert "failed" in _build(tmp_path, CC="no-such-compiler", CXX="no-such-compiler")
    assert not built.exists()
