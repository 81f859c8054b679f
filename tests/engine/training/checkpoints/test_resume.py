"""Which run a command resumes, and which it refuses to."""

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_training import events_of, run_training, tiny_config
from vernier.config import Config, Limits, Machine, Schedule, to_dict
from vernier.engine.training.checkpoints.resume import (
    _find_resume_point,
    choose_resume_point,
    describe_changes,
)
from vernier.engine.training.session import train
from vernier.errors import ConfigError
from vernier.optim.kinds.sgd import Sgd
from vernier.records.events import StepEvent
from vernier.store import RunDir, read_json, write_json


@pytest.fixture
def config(shapes: Path) -> Config:
    return replace(tiny_config(shapes, schedule=Schedule(epochs=1.0)), limits=Limits(max_steps=2))


def test_a_finished_run_is_resumed_only_when_asked_for(config: Config, tmp_path: Path) -> None:
    run = run_training(config, tmp_path).run
    assert choose_resume_point(config, tmp_path, None, print) is None
    assert choose_resume_point(config, tmp_path, "never", print) is None
    for resume in ("auto", str(run.path), str(run.checkpoints.committed()[-1].path)):
        point = choose_resume_point(config, tmp_path, resume, print)
        assert point is not None
        assert (point.run.path, point.checkpoint.step) == (run.path, 2)


def test_an_interrupted_run_of_the_same_recipe_is_resumed_by_default(config: Config, tmp_path: Path) -> None:
    run = run_training(config, tmp_path).run
    run.write_status("stopped")
    point = choose_resume_point(config, tmp_path, None, print)
    assert point is not None
    assert point.run == run
    other = replace(config, recipe=replace(config.recipe, optim=Sgd(lr=0.5)))
    assert choose_resume_point(other, tmp_path, None, print) is None


def test_a_run_of_another_recipe_is_refused_with_the_settings_that_differ(config: Config, tmp_path: Path) -> None:
    run = run_training(config, tmp_path).run
    other = replace(config, recipe=replace(config.recipe, optim=Sgd(lr=0.5)))
    with pytest.raises(ConfigError, match=r"another recipe: optim.lr was 0.05, now 0.5"):
        choose_resume_point(other, tmp_path, str(run.path), print)
    renamed = replace(config, recipe=replace(config.recipe, about="another description"))
    assert choose_resume_point(renamed, tmp_path, str(run.path), print) is not None


@pytest.mark.parametrize(("schema", "kind"), [(3, "powersgd"), (5, "bf16"), (5, "none")])
def test_compression_that_is_gone_is_named_on_resuming(config: Config, tmp_path: Path, schema: int, kind: str) -> None:
    run = run_training(config, tmp_path).run
    written, warnings = run.config_as_written(), list[str]()
    machine = {**written["machine"], "gradient_compression": kind} | ({"powersgd_rank": 2} if schema == 3 else {})
    write_json(run.path / "config.json", {**written, "schema": schema, "machine": machine})
    assert choose_resume_point(config, tmp_path, str(run.path), warnings.append) is not None
    assert ["compressed gradients" in warning for warning in warnings] == [True] * (kind != "none")


def test_a_damaged_checkpoint_is_skipped_with_a_warning(config: Config, tmp_path: Path) -> None:
    policy = replace(config, checkpoint=replace(config.checkpoint, every_steps=1))
    run = run_training(policy, tmp_path).run
    (run.checkpoints.committed()[-1].path / "model.safetensors").write_bytes(b"")
    warnings: list[str] = []
    point = _find_resume_point(run, policy, warnings.append)
    assert point is not None
    assert point.checkpoint.step == 1
    assert len(warnings) == 1
    assert "is damaged" in warnings[0]
    assert "is skipped" in warnings[0]


def test_a_run_without_a_checkpoint_cannot_be_resumed_by_name(config: Config, tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "empty")
    run.write_config(to_dict(config))
    with pytest.raises(ConfigError, match="no usable checkpoint"):
        choose_resume_point(config, tmp_path, str(run.path), print)


def test_a_run_that_ended_before_its_first_checkpoint_begins_again_in_its_directory(
    config: Config, tmp_path: Path
) -> None:
    run = RunDir.create(tmp_path, "empty")
    run.write_config(to_dict(config))
    point = choose_resume_point(config, tmp_path, None, pytest.fail)
    assert point is not None
    assert (point.run, point.checkpoint, point.step) == (run, None, 0)
    outcome = train(config, tmp_path, point)
    assert outcome.run == run
    assert [event.step for event in events_of(run, StepEvent)][-1] == 2
    whole = run_training(config, tmp_path / "whole").run
    weights = [r.path / "checkpoints/step-00000002/model.safetensors" for r in (run, whole)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_a_run_whose_checkpoints_are_all_damaged_is_not_started_anew_without_asking(
    config: Config, tmp_path: Path
) -> None:
    run = run_training(config, tmp_path).run
    run.write_status("crashed")
    for checkpoint in run.checkpoints.committed():
        (checkpoint.path / "state.json").write_text("{}")
    warnings: list[str] = []
    with pytest.raises(ConfigError, match=r"Every checkpoint .* is damaged ") as error:
        choose_resume_point(config, tmp_path, None, warnings.append)
    assert error.value.works == [("resume", "never")]
    assert "is skipped" in warnings[0]


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{", b"{}", b"\xff\xfe", b'{"status": 3}', b"[" * 100_000])
def test_a_lost_or_damaged_run_json_hides_no_checkpoint(config: Config, tmp_path: Path, content: bytes | None) -> None:
    run = run_training(config, tmp_path).run
    if content is None:
        (run.path / "run.json").unlink()
    else:
        (run.path / "run.json").write_bytes(content)
    point = choose_resume_point(config, tmp_path, None, pytest.fail)
    assert point is not None
    assert (point.run, point.step) == (run, 2)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"null", b"[" * 100_000])
def test_a_damaged_config_is_replaced_by_that_of_the_checkpoint(config: Config, tmp_path: Path, content: bytes) -> None:
    run = run_training(config, tmp_path).run
    run.write_status("crashed")
    (run.path / "config.json").write_bytes(content)
    point = choose_resume_point(config, tmp_path, None, pytest.fail)
    assert point is not None
    assert point.step == 2
    train(replace(config, limits=Limits(max_steps=3)), tmp_path, point)
    assert run.read_config()["limits"]["max_steps"] == 3


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b'{"schema": "x"}', b'{"recipe": 4}'])
def test_a_damaged_run_blocks_no_other(config: Config, tmp_path: Path, content: bytes) -> None:
    damaged = RunDir.create(tmp_path, "damaged")
    (damaged.path / "config.json").write_bytes(content)
    warnings: list[str] = []
    assert choose_resume_point(config, tmp_path, None, warnings.append) is None
    assert warnings
    assert all(str(damaged.path) in warning for warning in warnings)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "x"},
        {"recipe": 4},
        {"unknown": 1},
    ],
    ids=["schema", "recipe", "unknown"],
)
def test_settings_that_are_damaged_are_read_from_the_newest_checkpoint(
    config: Config, tmp_path: Path, change: dict[str, Any]
) -> None:
    run = run_training(config, tmp_path).run
    run.write_status("stopped")
    write_json(run.path / "config.json", {**read_json(run.path / "config.json"), **change})
    point = choose_resume_point(config, tmp_path, None, pytest.fail)
    assert point is not None
    assert (point.run, point.step) == (run, 2)


def test_a_run_of_a_newer_version_and_one_without_settings_are_named(config: Config, tmp_path: Path) -> None:
    newer, lost = (run_training(config, tmp_path).run for _ in range(2))
    for run in (newer, lost):
        run.write_status("stopped")
    write_json(newer.path / "config.json", {**read_json(newer.path / "config.json"), "schema": 99})
    (lost.path / "config.json").unlink()
    warnings: list[str] = []
    assert choose_resume_point(config, tmp_path, None, warnings.append) is None
    lost_warning, newer_warning = warnings
    assert lost_warning.startswith(f"{lost.path} is not considered for resuming: it has checkpoints")
    assert newer_warning.startswith(f"{newer.path} is not considered for resuming: ")
    assert "newer version" in newer_warning


def test_a_checkpoint_of_a_newer_version_is_not_taken(config: Config, tmp_path: Path) -> None:
    run = run_training(config, tmp_path).run
    run.write_status("stopped")
    manifest = run.checkpoints.committed()[-1].path / "manifest.json"
    write_json(manifest, {**read_json(manifest), "schema": 99})
    with pytest.raises(ConfigError, match=r"Every checkpoint of .* is damaged"):
        choose_resume_point(config, tmp_path, None, print)


def test_a_folder_that_cannot_be_read_blocks_no_run(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the run of a colleague with mode 0700: here by an error, since the tests may run as root."""
    run = run_training(config, tmp_path).run
    run.write_status("stopped")
    closed, is_file = tmp_path / "29990101-closed", Path.is_file
    closed.mkdir()

    def refuse(path: Path) -> bool:
        if path.parent == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refuse)
    warnings: list[str] = []
    point = choose_resume_point(config, tmp_path, None, warnings.append)
    assert point is not None
    assert point.run == run
    assert warnings == [f"{closed} is not considered for resuming: Permission denied: {closed / 'config.json'}"]


def test_the_same_command_is_told_when_its_run_is_in_use(config: Config, tmp_path: Path) -> None:
    run = run_training(config, tmp_path).run
    run.write_status("running")
    with (
        run.locked(),
        pytest.raises(ConfigError, match=rf"in use by another process \(process {os.getpid()} on .*never"),
    ):
        choose_resume_point(config, tmp_path, None, pytest.fail)


def test_a_run_that_failed_because_of_its_data_is_resumed(config: Config, tmp_path: Path) -> None:
    run = run_training(config, tmp_path).run
    run.write_status("failed", reason="40 images cannot be read")
    point = choose_resume_point(config, tmp_path, None, pytest.fail)
    assert point is not None
    assert point.step == 2


def test_what_a_kill_left_undone_after_the_last_checkpoint_is_done_on_resuming(config: Config, tmp_path: Path) -> None:
    """Killed after the checkpoint was there: before `latest` and `best` named it and old ones were removed."""
    keep_all = replace(config, checkpoint=replace(config.checkpoint, every_steps=1, keep_last=5))
    run = run_training(keep_all, tmp_path).run
    pointers = [run.path / "checkpoints" / name for name in ("latest", "best")]
    for pointer in pointers:
        pointer.unlink()
    keep_one = replace(config, checkpoint=replace(config.checkpoint, every_steps=1, keep_last=1))
    train(keep_one, tmp_path, _find_resume_point(run, config, print))
    assert [pointer.read_text() for pointer in pointers] == ["step-00000002\n"] * 2
    assert [checkpoint.step for checkpoint in run.checkpoints.committed()] == [2]


def test_what_a_killed_process_was_writing_is_removed(config: Config, tmp_path: Path) -> None:
    run = run_training(config, tmp_path).run
    leftovers = [".run.json.tmp-4711", "checkpoints/.latest.tmp-4711", "predictions/.mistakes.json.tmp-4711"]
    for name in leftovers:
        (run.path / name).write_text("half")
    _find_resume_point(run, config, print)
    assert [name for name in leftovers if (run.path / name).exists()] == []


def exact(**machine: Any) -> Config:
    return Config(machine=Machine(reduction="exact", **machine))


def test_exact_reduction_goes_on_with_another_number_of_processes_and_says_so() -> None:
    assert describe_changes(exact(procs=2), exact(procs=2, workers=5)) == ()
    assert "machine.procs was 2 for the checkpoint, now 3" in describe_changes(exact(procs=2), exact(procs=3))[0]
    assert "weights depend on the processes" in describe_changes(Config(), exact())[0]
    assert "from here on weights depend" in describe_changes(exact(), Config())[0]
    assert describe_changes(Config(), Config(machine=Machine(procs=3, threads=4))) == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"threads": 2}, "machine.threads was 1, now 2"),
        ({"precision": "bf16"}, "machine.precision was fp32, now bf16"),
        ({"channels_last": False, "loss_scale": 8.0}, "channels_last was True, now False; machine.loss_scale"),
    ],
)
def test_exact_reduction_does_not_go_on_with_other_arithmetic(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        describe_changes(exact(), exact(**changes))
    assert error.value.works == [("machine.reduction", "ddp")]
    assert describe_changes(exact(), exact(threads=1)) == ()


def test_resuming_with_other_convolutions_says_so() -> None:
    torch, winograd = (Config(machine=Machine(convolution=kind)) for kind in ("torch", "winograd"))
    assert describe_changes(winograd, winograd) == ()
    assert "was torch, now winograd: convolutions are rounded differently" in describe_changes(torch, winograd)[0]
