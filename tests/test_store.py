import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from vernier.errors import ConfigError
from vernier.store import EventLog, RunDir, find_runs, open_checkpoint, read_events, read_json


def _fill(text: str = "weights"):  # type: ignore[no-untyped-def]
    def fill(folder: Path) -> None:
        (folder / "model.safetensors").write_text(text)
        (folder / "state.json").write_text('{"step": 1}')

    return fill


def _run(tmp_path: Path) -> RunDir:
    run = RunDir.create(tmp_path, "a run/with odd: name")
    run.write_config({})
    return run


def test_runs_never_share_a_directory(tmp_path: Path) -> None:
    paths = {RunDir.create(tmp_path, "same").path for _ in range(5)}
    assert len(paths) == 5
    assert "/" not in _run(tmp_path).path.relative_to(tmp_path).as_posix()


def test_a_committed_checkpoint_verifies_and_points(tmp_path: Path) -> None:
    run = _run(tmp_path)
    run.commit_checkpoint(10, _fill(), best=True)
    run.commit_checkpoint(20, _fill(), best=False)
    assert [c.step for c in run.checkpoints()] == [10, 20]
    newest, best = run.newest_checkpoint(), run.best_checkpoint()
    assert newest is not None
    assert best is not None
    assert (newest.step, best.step) == (20, 10)
    assert (run.path / "checkpoints" / "latest").read_text().strip() == "step-00000020"


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "manifest"])
def test_a_damaged_checkpoint_is_passed_over_and_reported(tmp_path: Path, damage: str) -> None:
    run = _run(tmp_path)
    run.commit_checkpoint(1, _fill(), best=False)
    bad = run.commit_checkpoint(2, _fill(), best=False).path
    target = bad / ("manifest.json" if damage == "manifest" else "model.safetensors")
    if damage == "remove":
        target.unlink()
    elif damage == "truncate":
        target.write_text("wei")
    else:
        target.write_text("wEights" if damage == "flip" else "{")
    reported: list[str] = []
    newest = run.newest_checkpoint(lambda c, problems: reported.extend(problems))
    assert newest is not None
    assert newest.step == 1
    assert len(reported) == 1
    with pytest.raises(ConfigError, match="damaged"):
        open_checkpoint(bad)


def test_a_failed_write_leaves_the_earlier_checkpoint_and_no_litter(tmp_path: Path) -> None:
    run = _run(tmp_path)
    run.commit_checkpoint(1, _fill(), best=False)

    def full_disk(folder: Path) -> None:
        (folder / "model.safetensors").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        run.commit_checkpoint(2, full_disk, best=False)
    assert [p.name for p in sorted((run.path / "checkpoints").iterdir())] == ["latest", "step-00000001"]


def test_pruning_keeps_what_is_wanted_the_best_and_the_newest(tmp_path: Path) -> None:
    run = _run(tmp_path)
    for step in range(1, 7):
        run.commit_checkpoint(step, _fill(), best=step == 2)
    run.prune_checkpoints(lambda step: step == 4)
    assert [c.step for c in run.checkpoints()] == [2, 4, 6]


def test_a_crash_while_replacing_a_checkpoint_is_undone(tmp_path: Path) -> None:
    run = _run(tmp_path)
    kept = run.commit_checkpoint(1, _fill(), best=False).path
    kept.rename(kept.with_name(".replaced-step-00000001"))
    (kept.with_name(".writing-step-00000001")).mkdir()
    run.tidy_checkpoints()
    assert [c.step for c in run.checkpoints()] == [1]
    assert not list((run.path / "checkpoints").glob(".*"))


def test_events_survive_a_torn_line_and_a_resume_counts_steps_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    log.emit({"kind": "start", "resumed_from": None})
    for step in (1, 2, 3):
        log.emit({"kind": "step", "step": step, "loss": float(step)})
    log.close()
    with path.open("a") as f:
        f.write('{"kind": "step", "st')
    log = EventLog(path)
    log.emit({"kind": "start", "resumed_from": 2})
    log.emit({"kind": "step", "step": 3, "loss": 30.0})
    log.close()
    events = read_events(path)
    assert [(e["step"], e["loss"]) for e in events if e["kind"] == "step"] == [(1, 1.0), (2, 2.0), (3, 30.0)]
    assert all({"schema", "time"} <= set(e) for e in events)


def test_a_run_whose_process_died_is_seen_as_crashed(tmp_path: Path) -> None:
    run = _run(tmp_path)
    script = textwrap.dedent(f"""
        from pathlib import Path
        from vernier.store import RunDir
        run = RunDir(Path({str(run.path)!r}))
        with run.locked():
            run.write_status("running")
            print(run.read_status()["status"], flush=True)
            input()
    """)
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "running"
    assert run.read_status()["status"] == "running"
    with pytest.raises(ConfigError, match="in use"), run.locked():
        pass
    child.kill()
    child.wait()
    assert run.read_status()["status"] == "crashed"


def test_json_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    run = _run(tmp_path)
    run.write_status("running", note="x" * 10_000)
    with pytest.raises(ValueError, match="Out of range float"):
        run.write_status("finished", bad=float("nan"))
    assert read_json(run.path / "run.json")["status"] == "running"
    assert json.loads((run.path / "run.json").read_text())["note"] == "x" * 10_000


def test_not_a_run_directory_names_the_runs_inside(tmp_path: Path) -> None:
    run = _run(tmp_path)
    with pytest.raises(ConfigError, match=str(run.path)):
        RunDir.open(tmp_path)
    with pytest.raises(ConfigError, match="does not exist"):
        RunDir.open(tmp_path / "nowhere")
    assert [r.path for r in find_runs(tmp_path)] == [run.path]


def test_a_place_where_nothing_can_be_written_is_a_clear_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigError, match="--out"):
        RunDir.create(blocked / "inside", "x")
    assert list(tmp_path.iterdir()) == [blocked]
