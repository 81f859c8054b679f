"""What an interrupted command leaves is marked."""

from pathlib import Path

import pytest

from vernier.compat.preparing.unfinished import mark_unfinished
from vernier.data.unfinished import MARK
from vernier.errors import ConfigError, RunFailed


def _write_half(folder: Path) -> None:
    (folder / "train").touch()
    raise ConfigError("no")


def test_the_mark_goes_when_all_is_well_and_with_bad_usage_and_stays_otherwise(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with pytest.raises(ConfigError), mark_unfinished(folder, "x"):
        raise ConfigError("no")
    assert not folder.exists()
    with pytest.raises(ConfigError), mark_unfinished(folder, "x"):
        _write_half(folder)
    assert (folder / MARK).is_file(), "half of it was written"
    (folder / "train").unlink()
    (folder / MARK).unlink()
    for error in (RunFailed("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)), mark_unfinished(folder, "x"):
            raise error
        assert (folder / MARK).is_file()
    with pytest.raises(ConfigError), mark_unfinished(folder, "x"):
        raise ConfigError("no")
    assert (folder / MARK).is_file(), "it was incomplete before, and still is"
    with mark_unfinished(folder, "x"):
        pass
    assert not list(folder.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Cannot write into"), mark_unfinished(tmp_path / "file" / "x", "x"):
        pass
