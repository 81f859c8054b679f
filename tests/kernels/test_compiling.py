"""Kernels in C++: compiled once, again where the file is damaged, and what stands in the way is named."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from vernier.errors import ConfigError
from vernier.kernels import compiling, winograd
from vernier.kernels.winograd import check_kernels

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the kernels are compiled by a C++ compiler")


def forget_library() -> None:
    compiling.load_library.cache_clear()
    winograd._kernels.cache_clear()


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path))
    forget_library()
    yield tmp_path
    forget_library()


def test_a_library_is_compiled_once(empty_cache: Path) -> None:
    check_kernels()
    (library,) = (empty_cache / "kernels").iterdir()
    written = library.stat().st_mtime_ns
    forget_library()
    check_kernels()
    assert library.stat().st_mtime_ns == written


def test_a_damaged_library_is_compiled_again(empty_cache: Path) -> None:
    library = compiling._library_path(winograd._SOURCE, winograd.SETTING)
    library.parent.mkdir()
    library.write_bytes(b"half a file")
    check_kernels()
    assert library.stat().st_size > 1000


def test_a_cache_that_cannot_be_written_is_named(empty_cache: Path) -> None:
    (empty_cache / "kernels").write_text("a file where a folder belongs")
    with pytest.raises(ConfigError, match=r"cannot write to .*kernels .*set \$VERNIER_HOME"):
        check_kernels()


@pytest.mark.parametrize(
    ("compiler", "message"),
    [
        ("no-such-compiler", r"\$CXX is no-such-compiler, which is no program. Install g\+\+"),
        ("false", "false failed: .*leave machine.convolution out"),
    ],
)
def test_a_compiler_that_does_not_work_is_named(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, message: str
) -> None:
    monkeypatch.setenv("CXX", compiler)
    with pytest.raises(ConfigError, match=message):
        check_kernels()
    assert not list(empty_cache.rglob("*.so"))


def test_no_compiler_at_all(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(empty_cache))
    with pytest.raises(ConfigError, match=r"winograd: there is no C\+\+ compiler\. Install g\+\+"):
        check_kernels()
