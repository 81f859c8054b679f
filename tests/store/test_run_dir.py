import errno
import fcntl
import io
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from tests.store.small_runs import make_run
from vernier.errors import ConfigError
from vernier.records.predictions import TrainImage, TrainImages
from vernier.store import DamagedFile, RunDir, find_runs


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
    with pytest.raises(ConfigError, match="Cannot make a run directory") as error:
        RunDir.create(blocked / "inside", "x")
    assert error.value.works == [("out", "DIR")]
    assert list(tmp_path.iterdir()) == [blocked]


def test_a_smoke_run_is_known_and_no_suggestion_where_there_are_others(tmp_path: Path) -> None:
    smoke = RunDir.create(tmp_path, "smoke-x")
    smoke.write_config({"recipe": {"name": "x"}, "limits": {"smoke": True}})
    assert smoke.is_smoke
    assert RunDir.open(tmp_path).path == smoke.path, "the only one in the folder"
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
    for wrong, message in ((tmp_path / "file", "is a file"), (Path("/proc/nope"), "Use another folder")):
        with pytest.raises(ConfigError, match=message):
            RunDir.check_out(wrong)


def test_a_reader_that_looks_at_the_lock_does_not_refuse_the_writer(tmp_path: Path) -> None:
    """`is_locked` holds the lock for a moment; a page that watches a run does so again and again."""
    run = make_run(tmp_path)
    with run.locked():
        pass
    with (run.path / "run.lock").open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        release = threading.Timer(0.2, fcntl.flock, (reader, fcntl.LOCK_UN))
        release.start()
        with run.locked():
            assert run.is_locked()
        release.join()


class _FailsToClose(io.TextIOWrapper):
    """A file whose last data cannot be written, which the system tells when it is closed."""

    def close(self) -> None:
        super().close()
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


def test_a_lock_that_cannot_be_closed_does_not_hide_why_the_run_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    file = _FailsToClose(io.BufferedRandom(io.FileIO(run.path / "run.lock", "w+")), encoding="utf-8")
    monkeypatch.setattr(Path, "open", lambda *arguments, **options: file)
    with pytest.raises(ConfigError, match="the reason"), run.locked():
        raise ConfigError("the reason")


def test_a_persons_note_is_read_shortened_and_a_run_needs_none(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert run.read_note() == ""
    (run.path / "notes.txt").write_bytes(b"#baseline \xff\n" + b"x" * 5000)
    assert run.read_note().startswith("#baseline \ufffd\nx")
    assert len(run.read_note()) <= 2000


def test_train_images_are_read_back_and_missing_or_damaged_ones_are_told_apart(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with pytest.raises(FileNotFoundError):
        run.read_train_images()
    images = TrainImages(width=64, height=32, images=(TrainImage(jpeg="abcd", class_name="cat"),))
    run.write_train_images(images)
    assert run.read_train_images() == images
    (run.path / "train_images.json").write_text("[1]")
    with pytest.raises(DamagedFile, match=r"train_images\.json"):
        run.read_train_images()


@pytest.mark.parametrize(
    ("text", "smoke"), [('{"limits": {"smoke":true}}', True), ('{"limits": {}}', False), ("{", False)]
)
def test_a_smoke_run_is_told_by_its_configuration(tmp_path: Path, text: str, smoke: bool) -> None:
    run = make_run(tmp_path)
    (run.path / "config.json").write_text(text)
    assert run.is_smoke is smoke


def test_a_run_that_is_being_removed_is_none(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.path.rename(run.path.with_name(f".deleting-{run.path.name}"))
    assert find_runs(tmp_path) == []
