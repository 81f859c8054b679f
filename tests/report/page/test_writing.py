"""The page as a file."""

from pathlib import Path

import pytest

from tests.report.run_dirs import step_times, write_run
from vernier.errors import ConfigError
from vernier.report.page.writing import choose_file, write_page


def test_the_file_is_the_named_one_or_lies_in_the_run_or_here(tmp_path: Path) -> None:
    run = write_run(tmp_path, "run", step_times(1, n=20))
    assert choose_file([run], None) == run / "report.html"
    assert choose_file([run, run], None) == Path("report.html")
    assert choose_file([run], tmp_path) == tmp_path / "report.html"
    assert choose_file([run], tmp_path / "x.html") == tmp_path / "x.html"


def test_a_page_is_written_with_its_folder_and_replaced_by_the_next(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "run", step_times(1, n=20))
    smoke = write_run(tmp_path / "runs", "smoke", step_times(1, n=20), limits__smoke=True)
    for _ in range(2):
        written = write_page([run.parent], tmp_path / "new" / "page.html")
    assert written.path.read_text().startswith("<!doctype html>")
    assert [subject.path for subject in written.subjects] == [run]
    assert written.left_out == (smoke,)
    with pytest.raises(ConfigError, match="Cannot write"):
        write_page([run], written.path / "inside.html")
