import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.store.small_runs import make_run
from vernier.errors import ConfigError
from vernier.store import RunDir, find_runs


def test_runs_never_share_a_directory(tmp_path: Path) -> None:
    paths = {RunDir.create(tmp_path, "same").path for _ in range(5)}
    assert len(paths) == 5
    assert "/" not in make_run(tmp_path).path.relative_to(tmp_path).as_posix()


def test_a_run_whose_process_died_is_seen_as_crashed(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    script = textwrap.dedent(f"""
        from pathlib import Path
        from vernier.store import RunDir
        run = RunDir(Path({str(run.path)!r}))
        with run.locked():
            run.write_status("running")
            print(run.status().status, flush=True)
            input()
    """)
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "running"
    assert run.status().status == "running"
    with pytest.raises(ConfigError, match="in use"), run.locked():
        pass
    child.kill()
    child.wait()
    assert run.status().status == "crashed"


def test_not_a_run_directory_names_the_runs_inside(tmp_path: Path) -> None:
    run, newer = make_run(tmp_path), make_run(tmp_path)
    with pytest.raises(ConfigError, match=str(newer.path)):
        RunDir.open(tmp_path)
    with pytest.raises(ConfigError, match="does not exist"):
        RunDir.open(tmp_path / "nowhere")
    assert [r.path for r in find_runs(tmp_path)] == [run.path, newer.path]


def test_the_only_run_of_a_folder_is_opened_by_the_folder(tmp_path: Path) -> None:
    """What was given as --out can be given to eval, convert, report and resume as well."""
    assert RunDir.open(tmp_path / make_run(tmp_path).path.name) == RunDir.open(tmp_path)


def test_a_place_where_nothing_can_be_written_is_a_clear_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigError, match="--out"):
        RunDir.create(blocked / "inside", "x")
    assert list(tmp_path.iterdir()) == [blocked]


def test_a_smoke_run_is_known_and_no_suggestion(tmp_path: Path) -> None:
    smoke = RunDir.create(tmp_path, "smoke-x")
    smoke.write_config({"recipe": {"name": "x"}, "limits": {"smoke": True}})
    assert smoke.is_smoke
    with pytest.raises(ConfigError, match=r"It holds 1 smoke run\."):
        RunDir.open(tmp_path)
    real = RunDir.create(tmp_path, "a")
    real.write_config({"recipe": {"name": "x"}})
    assert not real.is_smoke
    with pytest.raises(ConfigError, match=r"It holds 1 run and 1 smoke run, the newest is .*-a\."):
        RunDir.open(tmp_path)
    (smoke.path / "config.json").write_text("{")
    assert not smoke.is_smoke  # nobody can tell


def test_a_folder_to_write_to_is_checked_without_leaving_anything(tmp_path: Path) -> None:
    RunDir.check_out(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    for wrong, message in ((tmp_path / "file", "is a file"), (Path("/proc/nope"), "Choose another --out")):
        with pytest.raises(ConfigError, match=message):
            RunDir.check_out(wrong)
