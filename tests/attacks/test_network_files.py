"""Folders on a network: locks that do nothing or are refused, stale handles, names that a server leaves behind."""

import errno
import fcntl
import os
import shutil
import socket
from pathlib import Path

import pytest

from tests.chaos.faults import Bench, Trial
from tests.chaos.tracing import Server, missing
from tests.chaos.trainings import make_data, working_folder
from tests.refusals import what_works
from tests.tiny_training import run_training, tiny_config
from vernier.config import override
from vernier.data.trusted import cached_file
from vernier.engine.training.checkpoints.resume import choose_resume_point
from vernier.errors import ConfigError
from vernier.store import RunDir, find_runs
from vernier.store.durable import replaced_atomically, write_atomically


def test_a_run_on_a_file_system_without_locks_is_refused_for_that_reason(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ConfigError, match="cannot be locked") as refused:
        run_training(tiny_config(shapes), tmp_path)
    assert "in use" not in str(refused.value)
    assert what_works(refused.value) == "out=DIR"


def test_locks_that_do_nothing_cost_no_result(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `mount -o nolock` has them: one process is never disturbed, and a cache is made whole by each."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    outcome = run_training(override(tiny_config(shapes), "limits.max_steps", 2), tmp_path / "runs")
    assert outcome.run.status().status == "finished"
    made = [cached_file(tmp_path / "cache" / "net.onnx", lambda path: path.write_bytes(b"net") and None) for _ in "ab"]
    assert {path.read_bytes() for path in made} == {b"net"}


def test_processes_with_one_number_on_two_hosts_do_not_write_into_one_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers that share a folder, each may be process 1."""
    page = tmp_path / "page.html"
    with replaced_atomically(page) as mine:
        mine.write_text("half")
        with monkeypatch.context() as patch:
            patch.setattr(socket, "gethostname", lambda: "another-host")
            write_atomically(page, "theirs")
        assert page.read_text() == "theirs"
        mine.write_text("mine, whole")
    assert page.read_text() == "mine, whole"
    assert list(tmp_path.iterdir()) == [page]


def test_what_a_server_keeps_of_removed_files_is_neither_run_nor_checkpoint(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS renames a file that is removed while it is open to .nfsNUMBER, and its folder cannot be removed meanwhile."""
    remove = shutil.rmtree

    def remove_most(path: Path, *arguments: object, **named: object) -> None:
        remove(path, ignore_errors=True)
        Path(path).mkdir(exist_ok=True)
        (Path(path) / ".nfs0000000000a1b2c3").write_bytes(b"")

    config = override(override(tiny_config(shapes), "checkpoint.every_steps", 2), "checkpoint.keep_last", 1)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", remove_most)
        outcome = run_training(override(config, "limits.max_steps", 8), tmp_path / "runs")
    (tmp_path / "runs" / ".nfs0000000000d4e5f6").write_bytes(b"")
    (run,) = find_runs(tmp_path / "runs")
    newest = run.checkpoints.newest()
    assert outcome.run.status().status == "finished"
    assert newest is not None
    assert newest.step == 8
    run.tidy()
    assert [point.step for point in run.checkpoints.committed()][-1] == 8


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing() or "-")
@pytest.mark.parametrize(("share", "persistent"), [(0.3, False), (0.6, False), (0.9, False), (0.5, True)])
def test_a_stale_handle_costs_no_checkpoint(share: float, persistent: bool) -> None:
    with working_folder() as work:
        (work / "run").mkdir()  # before the server, which resolves it
        data = work / "data"
        make_data(data)
        with Server(work / "run", work / "server") as server:
            bench = Bench(work, data, server)
            first = round(share * bench.count("ESTALE"))
            assert bench.try_out(Trial("ESTALE", first, persistent)).problem == ""


def test_a_stale_run_is_named_and_hides_no_other(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = override(tiny_config(shapes), "limits.max_steps", 2)
    first = run_training(config, tmp_path / "runs").run
    second = run_training(config, tmp_path / "runs").run
    read, warnings = Path.read_text, list[str]()

    def stale(path: Path, *arguments: object, **named: object) -> str:
        if path.is_relative_to(second.path):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return read(path, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "read_text", stale)
    assert RunDir(second.path).status().status == "unknown"
    point = choose_resume_point(config, tmp_path / "runs", "auto", warnings.append)
    assert point is not None
    assert point.run.path == first.path
    assert any("Stale file handle" in warning for warning in warnings)
    assert RunDir(first.path).status().status == "finished"
