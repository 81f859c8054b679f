"""C++ files of Vernier as shared libraries: compiled at first use on this machine, and kept in the cache."""

import ctypes
import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from vernier.devices.cpu import compiler, instruction_sets
from vernier.errors import ConfigError
from vernier.folders import cache_home

FLAGS = ("-std=c++17", "-O3", "-march=native", "-fwrapv", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC")
"""Not -ffast-math: its start-up code makes the whole process flush small numbers to zero."""


@cache
def load_library(source: Path, setting: str) -> ctypes.CDLL:
    """The library of a C++ file. Raises ConfigError, which names the setting that asked for it, if it cannot be."""
    path = _library_path(source, setting)
    if not path.exists():
        _compile(source, path, setting)
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # a damaged file in the cache
        _compile(source, path, setting)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise ConfigError(f"{setting}: {error}. {_instead(setting)}") from error


def _library_path(source: Path, setting: str) -> Path:
    """Named by everything that the compiled code depends on."""
    version = _run([_compiler(setting), "--version"], setting)
    # -march=native: computers that share a home directory may need different files.
    parts = (source.read_text(), version, " ".join(FLAGS), " ".join(sorted(instruction_sets())))
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return cache_home() / "kernels" / f"{source.stem}-{key}.so"


def _compiler(setting: str) -> str:
    path, requested = compiler(), os.environ.get("CXX")
    if path is None:
        why = f"$CXX is {requested}, which is no program" if requested else "there is no C++ compiler"
        raise ConfigError(f"{setting}: {why}. {_instead(setting)}")
    return path


def _compile(source: Path, path: Path, setting: str) -> None:
    """Written beside its place and moved there, since several processes may compile at once."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # On the same file system, so that the rename is atomic and nobody loads half a library.
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            new = Path(folder) / path.name
            _run([_compiler(setting), *FLAGS, str(source), "-o", str(new)], setting)
            new.replace(path)
    except OSError as error:
        raise ConfigError(
            f"{setting}: cannot write to {path.parent} ({error.strerror}); set $VERNIER_HOME to a folder that can be "
            "written to."
        ) from error


def _run(command: list[str], setting: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{setting}: {command[0]} took more than 5 minutes. {_instead(setting)}") from error
    if done.returncode:
        # Compilers print includes and warnings before the error itself.
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or [""]
        raise ConfigError(f"{setting}: {command[0]} failed: {lines[0]}. {_instead(setting)}")
    return done.stdout


def _instead(setting: str) -> str:
    return f"Install g++ (Debian, Ubuntu: apt install g++), or leave {setting.split(' ')[0]} out."
