"""Which paths hold what, and what their subjects are called."""

from pathlib import Path

import pytest

from tests.report.run_dirs import write_run
from vernier.errors import ConfigError
from vernier.report.page.collect import collect


def test_names_are_unique_and_without_a_date_where_possible(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", "one", [0.1] * 20), write_run(tmp_path / "b", "two", [0.1] * 20)
    assert [s.name for s in collect([a, b])] == ["one", "two"]
    assert [s.name for s in collect([a, b, a])] == ["one", "two"]
    assert len(collect([tmp_path / "a", tmp_path / "b"])) == 2


def test_missing_paths_and_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        collect([tmp_path / "nowhere"])
    with pytest.raises(ConfigError, match="not a run directory"):
        collect([tmp_path])
    strange = tmp_path / "notes.txt"
    strange.write_text("hello")
    with pytest.raises(ConfigError, match="not the log of a run"):
        collect([strange])
