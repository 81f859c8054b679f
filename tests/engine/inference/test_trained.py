"""Loading a trained model."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.tiny_training import run_training, tiny_config
from vernier.config import Config, Limits
from vernier.engine.inference.trained import checkpoint_steps, find_checkpoint, load_trained
from vernier.errors import ConfigError
from vernier.store import RunDir, checkpoints


@pytest.fixture
def run(shapes: Path, tmp_path: Path) -> RunDir:
    config = tiny_config(shapes)
    config = replace(
        config, limits=Limits(max_steps=3), checkpoint=replace(config.checkpoint, every_steps=1, keep_last=3)
    )
    return run_training(config, tmp_path).run


def test_a_checkpoint_is_found_by_name_step_and_path(run: RunDir) -> None:
    assert checkpoint_steps(run.path) == ["1", "2", "3"]
    assert [find_checkpoint(run.path, which).step for which in ("latest", "best", "2")] == [3, 3, 2]
    assert find_checkpoint(run.checkpoints.committed()[0].path, "latest").step == 1
    with pytest.raises(ConfigError, match=r"has no 7 checkpoint. Checkpoints by step: 1, 2, 3"):
        find_checkpoint(run.path, "7")


@pytest.mark.parametrize("which", ["latest", "best", "2"])
def test_the_files_of_a_checkpoint_are_hashed_once(run: RunDir, which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []
    real = checkpoints.sha256_of_file

    def counting(path: Path) -> str:
        hashed.append(path)
        return real(path)

    monkeypatch.setattr(checkpoints, "sha256_of_file", counting)
    load_trained(run.path, which=which)
    assert len(hashed) == len(set(hashed)) == 3


def test_settings_can_be_changed_but_not_the_models(run: RunDir) -> None:
    def larger_batch(config: Config) -> Config:
        return replace(config, machine=replace(config.machine, eval_batch=7))

    def other_model(config: Config) -> Config:
        return replace(config, recipe=replace(config.recipe, model=replace(config.recipe.model, width=16)))

    assert load_trained(run.path, changed=larger_batch).config.machine.eval_batch == 7
    with pytest.raises(ConfigError, match=r"--set model\.\*"):
        load_trained(run.path, changed=other_model)
