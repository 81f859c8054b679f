"""Which run a command resumes, and which it refuses to."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.tiny_training import run_training, tiny_config
from vernier.config import Config, Limits, Optim, Schedule, to_dict
from vernier.engine.training.resume import choose_resume_point, find_resume_point
from vernier.errors import ConfigError
from vernier.store import RunDir


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
    other = replace(config, recipe=replace(config.recipe, optim=Optim(lr=0.5)))
    assert choose_resume_point(other, tmp_path, None, print) is None


def test_a_run_of_another_recipe_is_refused_with_the_settings_that_differ(config: Config, tmp_path: Path) -> None:
    run = run_training(config, tmp_path).run
    other = replace(config, recipe=replace(config.recipe, optim=Optim(lr=0.5)))
    with pytest.raises(ConfigError, match=r"another recipe: optim.lr was 0.05, now 0.5"):
        choose_resume_point(other, tmp_path, str(run.path), print)
    renamed = replace(config, recipe=replace(config.recipe, about="another description"))
    assert choose_resume_point(renamed, tmp_path, str(run.path), print) is not None


def test_a_damaged_checkpoint_is_skipped_with_a_warning(config: Config, tmp_path: Path) -> None:
    policy = replace(config, checkpoint=replace(config.checkpoint, every_steps=1))
    run = run_training(policy, tmp_path).run
    (run.checkpoints.committed()[-1].path / "model.safetensors").write_bytes(b"")
    warnings: list[str] = []
    point = find_resume_point(run, policy, warnings.append)
    assert point is not None
    assert point.checkpoint.step == 1
    assert len(warnings) == 1
    assert "is damaged" in warnings[0]
    assert "is skipped" in warnings[0]


def test_a_run_without_a_checkpoint_cannot_be_resumed(config: Config, tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "empty")
    run.write_config(to_dict(config))
    with pytest.raises(ConfigError, match="no usable checkpoint"):
        choose_resume_point(config, tmp_path, str(run.path), print)
