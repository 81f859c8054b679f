"""What `vernier runs clean` removes, what it never touches, and kills at every file operation."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from vernier.records.codec import encode
from vernier.records.events import StepEvent
from vernier.records.run import RunSummary
from vernier.store import RunDir, find_runs
from vernier.store.cleaning import (
    KINDS,
    Choice,
    Plan,
    _freed_bytes,
    clean_folder,
    clean_run,
    newest_change_s,
    starting_weights,
    used_bytes,
)

EVERYTHING = Choice(kinds=frozenset(KINDS))
LONG_AGO = 1_000_000_000


def _only(*kinds: str) -> Choice:
    return Choice(kinds=frozenset(kinds))  # type: ignore[arg-type]


def _run(
    out: Path,
    name: str = "run",
    *,
    steps: tuple[int, ...] = (),
    best: int | None = None,
    status: str | None = "finished",
    smoke: bool = False,
    weights: str = "",
) -> RunDir:
    """A run with checkpoints of these steps."""
    run = RunDir.create(out, name)
    run.write_config({"recipe": {"model": {"weights": weights}}, "limits": {"smoke": smoke}})
    checkpoints = [run.checkpoints.commit(step, _fill) for step in steps]
    for checkpoint in checkpoints[-1:]:
        run.checkpoints.point("latest", checkpoint)
    for checkpoint in checkpoints:
        if checkpoint.step == best:
            run.checkpoints.point("best", checkpoint)
    if steps:
        log = run.events()
        log.emit(StepEvent(step=steps[-1], epoch=1, loss=1, lr=1, samples=1, step_s=(1.0,), wait_s=(0.0,)))
        log.close()
    if status is not None:
        summary = encode(RunSummary(step=steps[-1] if steps else None))
        run.write_status(status, **({"summary": summary} if status == "finished" else {}))
    return run


def _fill(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(os.urandom(9000))
    (folder / "state.json").write_text("{}")


def _age(path: Path) -> None:
    for below in (*path.rglob("*"), path):
        os.utime(below, (LONG_AGO, LONG_AGO), follow_symlinks=False)


def _steps(run: RunDir) -> list[int]:
    return [c.step for c in run.checkpoints.committed()]


def _disk_bytes(path: Path) -> int:
    return sum(p.stat().st_blocks * 512 for p in path.rglob("*") if p.is_file())


def test_of_a_finished_run_the_newest_checkpoint_and_the_best_stay(tmp_path: Path) -> None:
    run = _run(tmp_path, steps=(10, 20, 30, 40), best=20)
    planned = clean_run(run, EVERYTHING, remove=False)
    assert _steps(run) == [10, 20, 30, 40], "a plan removes nothing"
    before = _disk_bytes(run.path)
    cleaned = clean_run(run, EVERYTHING)
    assert cleaned.removals == planned.removals
    assert [[p.name for p in r.paths] for r in cleaned.removals] == [["step-00000010", "step-00000030"]]
    assert _steps(run) == [20, 40]
    freed = before - _disk_bytes(run.path)
    assert cleaned.bytes == pytest.approx(freed, abs=4096), "run.lock is new"
    assert not list(run.checkpoints.folder.glob(".*"))
    assert clean_run(run, EVERYTHING) == Plan()


@pytest.mark.parametrize("status", ["stopped", "failed", "crashed", "running", None])
def test_checkpoints_of_a_run_that_did_not_finish_stay(tmp_path: Path, status: str | None) -> None:
    run = _run(tmp_path, steps=(10, 20, 30), status=status)
    _age(run.path)
    assert clean_run(run, EVERYTHING).removals == ()
    assert _steps(run) == [10, 20, 30]


def test_a_damaged_newest_checkpoint_does_not_stand_for_the_one_that_stays(tmp_path: Path) -> None:
    run = _run(tmp_path, steps=(10, 20, 30))
    weights = run.checkpoints.committed()[-1].path / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[100] ^= 1
    weights.write_bytes(bytes(content))
    assert [p.name for p in clean_run(run, EVERYTHING, remove=False).removals[0].paths] == [
        "step-00000010",
        "step-00000020",
    ]
    clean_run(run, EVERYTHING)
    assert _steps(run) == [20, 30], "hashes are compared before anything is removed"
    newest = run.checkpoints.newest()
    assert newest is not None
    assert newest.step == 20


def test_the_only_sound_checkpoint_and_runs_without_any_are_left_alone(tmp_path: Path) -> None:
    run = _run(tmp_path, steps=(10, 20))
    for checkpoint in run.checkpoints.committed():
        (checkpoint.path / "model.safetensors").write_bytes(b"short")
    assert [k.reason for k in clean_run(run, EVERYTHING).left_alone] == ["none of its checkpoints is sound"]
    assert _steps(run) == [10, 20]
    single = _run(tmp_path, "single", steps=(10,))
    assert clean_run(single, EVERYTHING) == Plan()


def test_a_checkpoint_that_another_run_was_started_from_stays(tmp_path: Path) -> None:
    run = _run(tmp_path, steps=(10, 20, 30))
    used = run.checkpoints.committed()[0].path / "model.safetensors"
    _run(tmp_path, "child", weights=str(used))
    choice = Choice(kinds=frozenset(KINDS), in_use=starting_weights(find_runs(tmp_path)))
    plan = clean_run(run, choice)
    assert _steps(run) == [10, 30]
    assert [k.reason for k in plan.left_alone] == ["another run was started from its weights"]
    smoke = _run(tmp_path, "small", steps=(1,), smoke=True)
    choice = Choice(kinds=frozenset(KINDS), in_use=frozenset({smoke.checkpoints.committed()[0].path / "model"}))
    assert clean_run(smoke, choice).removals == ()


def test_a_run_in_use_is_not_touched(tmp_path: Path) -> None:
    runs = [_run(tmp_path, steps=(10, 20, 30)), _run(tmp_path, smoke=True)]
    for run in runs:
        before = sorted(run.path.rglob("*"))
        with run.locked():
            plan = clean_run(run, EVERYTHING)
        assert [k.reason for k in plan.left_alone] == ["in use by a process"]
        assert sorted(p for p in run.path.rglob("*") if p.name != "run.lock") == before


def test_smoke_runs_and_runs_that_never_trained_go_as_a_whole(tmp_path: Path) -> None:
    smoke, failed = _run(tmp_path, smoke=True, steps=(2,)), _run(tmp_path, status="failed")
    trained = _run(tmp_path, steps=(10,), status="failed")
    shutil.rmtree(trained.checkpoints.folder)
    for run, kind in ((smoke, "smoke"), (failed, "empty")):
        assert clean_run(run, _only("checkpoints", "traces", "leftovers")).removals == ()
        assert [r.kind for r in clean_run(run, _only(kind)).removals] == [kind]
        assert not run.path.exists()
    assert clean_run(trained, EVERYTHING).removals == ()
    assert [p for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize("status", ["running", None])
def test_a_run_whose_end_is_not_recorded_must_have_been_quiet_for_an_hour(tmp_path: Path, status: str | None) -> None:
    """A process may just be reading its data before it locks the run."""
    run = _run(tmp_path, status=status)
    assert "its end is not recorded" in clean_run(run, EVERYTHING).left_alone[0].reason
    _age(run.path)
    assert [r.kind for r in clean_run(run, EVERYTHING).removals] == ["empty"]
    assert not run.path.exists()


@pytest.mark.parametrize("place", ["", "checkpoints"])
def test_a_run_with_files_of_a_person_is_not_removed(tmp_path: Path, place: str) -> None:
    run = _run(tmp_path, smoke=True)
    (run.path / place / "model.onnx").write_text("exported")
    plan = clean_run(run, EVERYTHING)
    assert [k.reason for k in plan.left_alone] == ["holds files that Vernier did not write: model.onnx"]
    assert (run.path / place / "model.onnx").exists()


def test_links_to_other_disks_are_not_removed(tmp_path: Path) -> None:
    elsewhere = _run(tmp_path / "elsewhere", smoke=True)
    (tmp_path / "runs").mkdir()
    link = tmp_path / "runs/link"
    link.symlink_to(elsewhere.path)
    assert [k.reason for k in clean_run(RunDir(link), EVERYTHING).left_alone] == ["a link to another folder"]
    assert elsewhere.path.exists()


def test_a_damaged_run_is_left_alone(tmp_path: Path) -> None:
    run = _run(tmp_path, steps=(10, 20, 30))
    for name in ("run.json", "config.json"):
        (run.path / name).write_text("{")
        assert clean_run(run, EVERYTHING).left_alone[0].reason.startswith("damaged: ")
        assert _steps(run) == [10, 20, 30]
        (run.path / name).write_text("{}")


def test_traces_go_and_the_tables_of_the_profile_stay(tmp_path: Path) -> None:
    run = _run(tmp_path, status="finished")
    for name in ("trace.rank0.json.gz", "profile.rank0.json", "kernels.rank0.csv"):
        (run.traces() / name).write_bytes(os.urandom(5000))
    assert clean_run(run, _only("leftovers", "empty", "smoke", "checkpoints"), remove=False) == Plan()
    assert [r.kind for r in clean_run(run, _only("traces")).removals] == ["traces"]
    assert sorted(p.name for p in run.traces().iterdir()) == ["kernels.rank0.csv", "profile.rank0.json"]


def test_leftovers_of_killed_processes(tmp_path: Path) -> None:
    run = _run(tmp_path, steps=(10,), status="stopped")
    folder = run.checkpoints.folder
    (folder / ".writing-step-00000020").mkdir()
    (folder / ".writing-step-00000020/model.safetensors").write_bytes(os.urandom(5000))
    (folder / "step-00000010").rename(folder / ".replaced-step-00000010")
    (run.path / ".run.json.tmp-123").write_text("{")
    names = [p.name for p in clean_run(run, EVERYTHING, remove=False).removals[0].paths]
    assert sorted(names) == [".run.json.tmp-123", ".writing-step-00000020"]
    clean_run(run, EVERYTHING)
    assert _steps(run) == [10], "a checkpoint that was being replaced is restored"
    assert [p.name for p in (*folder.iterdir(), *run.path.iterdir()) if p.name.startswith(".")] == []


def test_folders_without_a_configuration_go_when_they_are_old(tmp_path: Path) -> None:
    new, old = (RunDir.create(tmp_path, name).path for name in ("new", "old"))
    other = tmp_path / "20260101-000000-notes"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    (tmp_path / ".deleting-20260101-000000-run").mkdir()
    _age(old)
    _age(other)
    names = [r.paths[0].name for r in clean_folder(tmp_path, EVERYTHING, remove=False).removals]
    assert names == [".deleting-20260101-000000-run", old.name]
    clean_folder(tmp_path, EVERYTHING)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([other.name, new.name])
    assert clean_folder(tmp_path, _only("smoke"), remove=False) == Plan()


def test_only_runs_that_ended_long_ago(tmp_path: Path) -> None:
    run = _run(tmp_path, steps=(10, 20, 30))
    week = Choice(kinds=frozenset(KINDS), min_age_s=7 * 86400)
    assert clean_run(run, week) == Plan()
    tree = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**tree, "updated": "2026-01-01T00:00:00+00:00"}))
    clean_run(run, week)
    assert _steps(run) == [30]


def test_what_cannot_be_removed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(tmp_path, steps=(10, 20))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted", "model.safetensors")

    monkeypatch.setattr(os, "unlink", refuse)
    plan = clean_run(run, EVERYTHING)
    assert plan.bytes == 0
    assert [k.reason for k in plan.left_alone] == ["could not be removed"]
    assert _steps(run) == [20], "it is out of sight, and the next clean removes it"
    monkeypatch.undo()
    assert clean_run(run, EVERYTHING).bytes > 0
    assert not list(run.checkpoints.folder.glob(".*"))


# --------------------------------------------------------------------------------------------------------------- kills


def _kill_after(operations: int) -> None:
    """In a forked process: kill it before its next file operation after so many."""
    left = [operations]

    def counted(original: Callable[..., object]) -> Callable[..., object]:
        def operation(*arguments: object, **named: object) -> object:
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return original(*arguments, **named)

        return operation

    for name in ("unlink", "rmdir", "rename", "remove", "replace"):
        setattr(os, name, counted(getattr(os, name)))


def _clean_all(out: Path) -> int:
    plans = [clean_folder(out, EVERYTHING), *(clean_run(run, EVERYTHING) for run in find_runs(out))]
    return Plan.of(*plans).bytes


def _killed_clean(out: Path, operations: int) -> bool:
    """Clean in a process that is killed after so many file operations; whether it was."""
    child = os.fork()
    if child == 0:
        try:
            _kill_after(operations)
            _clean_all(out)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_killed_at_every_file_operation_every_run_stays_usable_and_the_next_clean_finishes(tmp_path: Path) -> None:
    original = tmp_path / "original"
    finished = _run(original, "finished", steps=(10, 20, 30, 40), best=20)
    stopped = _run(original, "stopped", steps=(10, 20), status="stopped")
    _run(original, "smoke", steps=(2,), smoke=True)
    (stopped.checkpoints.folder / ".writing-step-00000030").mkdir()
    (stopped.checkpoints.folder / ".writing-step-00000030/model.safetensors").write_bytes(b"half")
    kills = 0
    for operations in range(100):
        out = tmp_path / f"copy-{operations}"
        shutil.copytree(original, out, symlinks=True)
        killed = _killed_clean(out, operations)
        names = {run.path.name for run in find_runs(out)}
        assert names >= {finished.path.name, stopped.path.name}
        for run in find_runs(out):
            assert [c.problems() for c in run.checkpoints.committed()] == [[]] * len(_steps(run)), "whole or gone"
            newest = run.checkpoints.newest()
            assert newest is not None
            if run.path.name == finished.path.name:
                assert newest.step == 40
                best = run.checkpoints.best()
                assert best is not None
                assert best.step == 20
            assert not run.is_locked()
        assert _steps(RunDir(out / stopped.path.name)) == [10, 20]
        _clean_all(out)
        assert _clean_all(out) == 0
        files = sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.name.startswith("."))
        assert files == []
        assert {run.path.name for run in find_runs(out)} == {finished.path.name, stopped.path.name}
        assert _steps(RunDir(out / finished.path.name)) == [20, 40]
        shutil.rmtree(out)
        kills += killed
        if not killed:
            break
    assert kills > 15


SIZE = 64 * 1024


def _folder(path: Path, *names: str) -> Path:
    path.mkdir(parents=True)
    for name in names:
        (path / name).write_bytes(os.urandom(SIZE))
    return path


def test_a_file_with_two_names_counts_once_and_is_freed_with_the_last(tmp_path: Path) -> None:
    first, second = _folder(tmp_path / "all/first", "model"), _folder(tmp_path / "all/second", "optimizer")
    os.link(first / "model", second / "model")
    one = used_bytes(first / "model")
    assert SIZE <= one < 2 * SIZE
    assert used_bytes(tmp_path / "all") == used_bytes(first) + used_bytes(second) - one
    assert _freed_bytes([first]) == 0
    assert _freed_bytes([second]) == used_bytes(second / "optimizer")
    assert _freed_bytes([first, second]) == used_bytes(tmp_path / "all")


def test_links_to_elsewhere_are_not_followed(tmp_path: Path) -> None:
    elsewhere = _folder(tmp_path / "elsewhere", "large")
    folder = _folder(tmp_path / "folder")
    (folder / "link").symlink_to(elsewhere)
    assert used_bytes(folder) < SIZE
    assert used_bytes(tmp_path / "not there") == _freed_bytes([tmp_path / "not there"]) == 0


def test_the_newest_change_is_that_of_any_file(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "folder/below", "old", "new").parent
    for path in (folder, folder / "below", folder / "below/old"):
        os.utime(path, (1000, 1000))
    os.utime(folder / "below/new", (2000, 2000))
    assert newest_change_s(folder) == 2000
    assert newest_change_s(tmp_path / "not there") == 0
