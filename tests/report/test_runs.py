"""The rows of `vernier runs`: of the runs that 0.1 wrote, of killed, damaged and unfinished ones."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from tests.conftest import REPO
from vernier.errors import ConfigError
from vernier.records.events import EvalEvent, StartEvent, StepEvent
from vernier.report.runs import RunRow, list_runs
from vernier.store import RunDir

GOLDEN = REPO / "tests" / "golden" / "0.1"


def _rows(folder: Path) -> dict[str, RunRow]:
    return {row.name: row for row in list_runs([folder])}


def _step(step: int) -> StepEvent:
    return StepEvent(step=step, epoch=0.5, loss=2.0, lr=0.1, samples=8, step_s=(0.5,), wait_s=(0.0,))


def _begun(tmp_path: Path, status: str | None = "running") -> RunDir:
    """A training that is at step 7 of 100 and was evaluated at 5."""
    run = RunDir.create(tmp_path, "begun")
    run.write_config({"recipe": {"name": "mine", "model": {"name": "resnet18"}, "data": {"image_px": 64}}})
    log = run.events()
    log.emit(StartEvent(recipe="mine", stop_step=100))
    log.emit(_step(5))
    log.emit(EvalEvent(step=5, epoch=0.4, seconds=1.0, samples=10, figures={"top1": 42.5}))
    log.emit(_step(7))
    log.close()
    if status is not None:
        run.write_status(status, **({"reason": "out of memory"} if status == "failed" else {}))
    return run


def test_every_kind_of_run_of_an_earlier_version(tmp_path: Path) -> None:
    rows = _rows(GOLDEN)
    kinds = {name: row.kind for name, row in rows.items()}
    assert kinds == {
        **dict.fromkeys(("classifier", "detector", "stopped"), "training"),
        **dict.fromkeys(("bench-train", "bench-infer", "bench-scaling"), "bench"),
        "profile": "profile",
        "study": "study",
    }
    recorded = json.loads((GOLDEN / "classifier/run.json").read_text())["summary"]
    classifier = rows["classifier"]
    assert (classifier.metric, classifier.result) == ("top1", recorded["result"]["top1"])
    assert (classifier.step, classifier.state) == (recorded["step"], "finished")
    assert classifier.ran.startswith("resnet8-small · 32 px")
    assert rows["detector"].metric == "AP"
    assert rows["bench-train"].metric == "images_per_s"
    assert (rows["study"].step, rows["study"].steps, rows["study"].state) == (15, 15, "finished")
    assert all(row.bytes > 4096 and row.problem is None for row in rows.values())
    assert list_runs([GOLDEN / "classifier"])[0].name == "classifier"


@pytest.mark.parametrize(
    ("status", "state"),
    [("running", "interrupted"), (None, "interrupted"), ("crashed", "crashed"), ("failed", "failed")],
)
def test_a_run_without_a_summary_has_the_figures_of_its_events(tmp_path: Path, status: str | None, state: str) -> None:
    run = _begun(tmp_path, status)
    (row,) = list_runs([tmp_path])
    assert (row.state, row.step, row.steps) == (state, 7, 100)
    assert (row.metric, row.result) == ("top1", 42.5)
    assert row.recipe == "mine"
    assert row.ran == "resnet18 · 64 px"
    assert row.problem == ("out of memory" if status == "failed" else None)
    with run.locked():
        (row,) = list_runs([tmp_path])
        assert row.state == ("running" if state == "interrupted" else state)


def test_the_age_is_that_of_the_recorded_end_or_of_the_newest_file(tmp_path: Path) -> None:
    run = _begun(tmp_path)
    for path in (*run.path.rglob("*"), run.path):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    (row,) = list_runs([tmp_path])
    assert row.age_s > 10 * 365 * 86400
    run.write_status("stopped")
    (row,) = list_runs([tmp_path])
    assert row.age_s < 3600


def test_damaged_runs_are_rows_that_say_so(tmp_path: Path) -> None:
    for name in ("config", "run", "study", "bench", "folder", "newer"):
        source = {"study": "study", "bench": "bench-infer"}.get(name, "classifier")
        shutil.copytree(GOLDEN / source, tmp_path / name)
    for name, file in (
        ("config", "config.json"),
        ("run", "run.json"),
        ("study", "study.json"),
        ("bench", "bench.json"),
    ):
        (tmp_path / name / file).write_text('{"status": ')
    (tmp_path / "folder/run.json").unlink()
    (tmp_path / "folder/run.json").mkdir()
    (tmp_path / "newer/run.json").write_text('{"schema": 99, "status": "finished"}')
    RunDir.create(tmp_path, "killed")
    rows = _rows(tmp_path)
    states = {name: row.state for name, row in rows.items() if name != "newer"}
    assert set(states.values()) == {"damaged"}
    assert len(rows) == 7
    assert rows["newer"].state == "unknown"
    assert "newer version" in (rows["newer"].problem or "")
    assert "config.json" in (rows["config"].problem or "")
    assert rows["config"].result is not None, "what can be read is shown"
    assert all(row.problem for row in rows.values())


def test_files_of_any_content_are_rows(tmp_path: Path) -> None:
    """Bytes changed, cut and inserted at random in every file of a run: no file makes the list fail."""
    draws = random.Random(5)
    for source in ("classifier", "bench-infer", "study", "profile"):
        files = [p for p in (GOLDEN / source).rglob("*.json*") if p.stat().st_size < 200_000 and "trace" not in p.name]
        for number in range(25):
            target = tmp_path / f"{source}-{number}"
            shutil.copytree(GOLDEN / source, target, ignore=shutil.ignore_patterns("*.safetensors", "*.gz"))
            victim = target / draws.choice(files).relative_to(GOLDEN / source)
            content = bytearray(victim.read_bytes())
            at = draws.randrange(len(content))
            match draws.randrange(3):
                case 0:
                    content[at] = draws.randrange(256)
                case 1:
                    del content[at:]
                case 2:
                    content[at:at] = draws.choice([b"null", b"[]", b"1e999", b'"', b"\xff\x00", b"{}"])
            victim.write_bytes(bytes(content))
    assert len(list_runs([tmp_path])) == 100


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("none", "file"):
        with pytest.raises(ConfigError, match="Give a folder of runs"):
            list_runs([tmp_path / name])
    assert list_runs([tmp_path]) == []
