from pathlib import Path

import pytest

from tests.store.small_runs import fill_checkpoint, make_run
from vernier.errors import ConfigError
from vernier.store import CheckpointDir


def test_a_committed_checkpoint_verifies_and_points(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.checkpoints.point("best", run.checkpoints.commit(10, fill_checkpoint))
    run.checkpoints.point("latest", run.checkpoints.commit(20, fill_checkpoint))
    assert [c.step for c in run.checkpoints.committed()] == [10, 20]
    newest, best = run.checkpoints.newest(), run.checkpoints.best()
    assert newest is not None
    assert best is not None
    assert (newest.step, best.step) == (20, 10)
    assert (run.path / "checkpoints" / "latest").read_text().strip() == "step-00000020"


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "manifest"])
def test_a_damaged_checkpoint_is_passed_over_and_reported(tmp_path: Path, damage: str) -> None:
    run = make_run(tmp_path)
    run.checkpoints.commit(1, fill_checkpoint)
    bad = run.checkpoints.commit(2, fill_checkpoint).path
    target = bad / ("manifest.json" if damage == "manifest" else "model.safetensors")
    if damage == "remove":
        target.unlink()
    elif damage == "truncate":
        target.write_text("wei")
    else:
        target.write_text("wEights" if damage == "flip" else "{")
    reported: list[str] = []
    newest = run.checkpoints.newest(lambda c, problems: reported.extend(problems))
    assert newest is not None
    assert newest.step == 1
    assert len(reported) == 1
    with pytest.raises(ConfigError, match="damaged"):
        CheckpointDir.open(bad)


def test_a_failed_write_leaves_the_earlier_checkpoint_and_no_litter(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.checkpoints.commit(1, fill_checkpoint)

    def full_disk(folder: Path) -> None:
        (folder / "model.safetensors").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        run.checkpoints.commit(2, full_disk)
    assert [p.name for p in sorted((run.path / "checkpoints").iterdir())] == ["step-00000001"]


def test_a_manifest_without_files_and_a_pointer_that_is_no_text_are_not_believed(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    sound = run.checkpoints.commit(1, fill_checkpoint)
    (sound.path.parent / "best").write_bytes(b"\xff\xfe\x00")
    assert run.checkpoints.best() is None
    empty = run.checkpoints.commit(2, fill_checkpoint)
    (empty.path / "manifest.json").write_text('{"schema": 3, "step": 2, "files": {}}')
    assert empty.problems() == ["manifest.json: it lists no files"]
    assert run.checkpoints.newest() == sound


def test_pruning_keeps_what_is_wanted_the_best_and_the_newest(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for step in range(1, 7):
        checkpoint = run.checkpoints.commit(step, fill_checkpoint)
        if step == 2:
            run.checkpoints.point("best", checkpoint)
    run.checkpoints.prune(run.checkpoints.committed(), lambda step: step == 4)
    assert [c.step for c in run.checkpoints.committed()] == [2, 4, 6]


def test_a_crash_while_replacing_a_checkpoint_is_undone(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    kept = run.checkpoints.commit(1, fill_checkpoint).path
    kept.rename(kept.with_name(".replaced-step-00000001"))
    (kept.with_name(".writing-step-00000001")).mkdir()
    run.checkpoints.tidy()
    assert [c.step for c in run.checkpoints.committed()] == [1]
    assert not list((run.path / "checkpoints").glob(".*"))
