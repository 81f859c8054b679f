import json
from pathlib import Path

import pytest

from tests.store.small_runs import make_run
from vernier.records.run import RunStatus
from vernier.store import (
    DamagedFile,
    read_json,
    read_object,
    read_record,
    replaced_atomically,
    write_atomically,
)


def test_json_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.write_status("running", note="x" * 10_000)
    with pytest.raises(ValueError, match="Out of range float"):
        run.write_status("finished", bad=float("nan"))
    assert read_json(run.path / "run.json")["status"] == "running"
    assert json.loads((run.path / "run.json").read_text())["note"] == "x" * 10_000


@pytest.mark.parametrize("content", [b"{", b"[1, 2]", b"", b"\xff\xfe\x00", b"[" * 200_000])
def test_every_damaged_json_file_is_one_kind_of_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "small.json"
    path.write_bytes(content)
    with pytest.raises(DamagedFile, match=r"small\.json"):
        read_object(path)
    with pytest.raises(DamagedFile, match=r"small\.json"):
        read_record(RunStatus, path)


def test_an_absent_file_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "absent.json")


def test_an_error_while_writing_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    write_atomically(path, b"old")

    def fail_half_way() -> None:
        with replaced_atomically(path) as temporary:
            temporary.write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
