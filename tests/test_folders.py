from pathlib import Path

import pytest

import vernier
from vernier.folders import PACKAGE_PARENT, cache_home, data_home


def test_the_cache_is_where_the_variables_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path))
    assert (cache_home(), data_home()) == (tmp_path, tmp_path / "data")
    monkeypatch.delenv("VERNIER_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_home() == tmp_path / "xdg" / "vernier"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_home() == tmp_path / "home" / ".cache" / "vernier"


def test_this_code_is_found_from_its_own_folder() -> None:
    assert Path(vernier.__file__).parent.parent == PACKAGE_PARENT
