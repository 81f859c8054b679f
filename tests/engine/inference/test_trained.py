"""Loading a trained model."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.tiny_training import run_training, tiny_config
from vernier.config import Config, Limits, override
from vernier.engine.inference.trained import (
    ModelChoice,
    checkpoint_steps,
    find_checkpoint,
    load_model,
    load_trained,
)
from vernier.errors import ConfigError
from vernier.models import build, weights
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


def test_a_damaged_newest_checkpoint_is_named_with_the_one_that_is_used_instead(run: RunDir) -> None:
    assert load_trained(run.path).notes == ()
    sound, *damaged = run.checkpoints.committed()
    for checkpoint in damaged:
        (checkpoint.path / "model.safetensors").write_bytes(b"no weights")
    trained = load_model(ModelChoice(path=run.path))
    assert trained.step == sound.step
    assert "step-00000003 is damaged (model.safetensors: 10 bytes instead of" in trained.notes[0]
    assert "step-00000002 is damaged" in trained.notes[0]
    assert trained.notes[0].endswith("the weights are those of step-00000001, which is older")
    (sound.path / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"has no sound checkpoint\. Checkpoints by step: 1, 2, 3"):
        load_trained(run.path)


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
    with pytest.raises(ConfigError) as caught:
        load_trained(run.path, changed=other_model)
    assert caught.value.given == {"model.width": None}


def test_a_file_of_an_earlier_version_says_how_images_are_prepared(tmp_path: Path) -> None:
    """Exports of 0.2 have no settings: the network is the one of the catalogue, or what the user sets."""
    about = {"model": "resnet8-small", "classes": '["a", "b"]', "eval_px": "40", "eval_short_side_px": "48"}
    for width in (16, 8):
        state = build("resnet8-small", num_classes=2, width=width).state_dict()
        weights.save_safetensors(state, tmp_path / f"{width}.safetensors", {"mean": "[0.5, 0.5, 0.5]", **about})
    trained = load_model(ModelChoice(path=tmp_path / "16.safetensors"))
    data = trained.config.recipe.data
    assert (trained.classes, data.eval_px, data.eval_short_side_px) == (("a", "b"), 40, 48)
    assert data.mean == (0.5, 0.5, 0.5)
    with pytest.raises(ConfigError, match="of other settings") as error:
        load_model(ModelChoice(path=tmp_path / "8.safetensors"))
    assert error.value.works == [("model.width", 8)]
    narrow = ModelChoice(path=tmp_path / "8.safetensors", changed=lambda config: override(config, "model.width", 8))
    assert load_model(narrow).model.state_dict()["conv1.weight"].shape[0] == 8


def test_only_a_changed_preparation_is_called_changed(run: RunDir) -> None:
    def prepared(setting: str, value: object) -> str:
        return load_trained(run.path, changed=lambda config: override(config, setting, value)).prepared

    assert prepared("data.val_share", 0.2).endswith("(as in training)")
    assert prepared("data.eval_short_side_px", 36).endswith("(changed by settings)")
