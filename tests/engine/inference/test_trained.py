"""Loading a trained model."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.engine.inference.loading import load_trained
from tests.tiny_training import run_training, tiny_config
from vernier.config import Config, Limits, override, to_dict
from vernier.config.migrations import SCHEMAS
from vernier.engine.inference.trained import (
    ModelChoice,
    _find_checkpoint,
    checkpoint_steps,
    config_of_file,
    create_network,
    load_model,
)
from vernier.errors import ConfigError
from vernier.models import build, weights
from vernier.records.run import ModelFile
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
    assert [_find_checkpoint(run.path, which).step for which in ("latest", "best", "2")] == [3, 3, 2]
    assert _find_checkpoint(run.checkpoints.committed()[0].path, "latest").step == 1
    with pytest.raises(ConfigError, match=r"has no 7 checkpoint. Checkpoints by step: 1, 2, 3"):
        _find_checkpoint(run.path, "7")


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


def test_a_detector_has_an_output_for_the_background(tmp_path: Path) -> None:
    network, note = create_network("ssd-small", classes=4)
    assert note == ""
    assert network(torch.zeros(1, 3, 128, 128))[1].shape[-1] == 5
    weights.save_torch(network.state_dict(), tmp_path / "d.pth", {})
    same, note = create_network("ssd-small", tmp_path / "d.pth", classes=4)
    assert torch.equal(same.state_dict()["conf.0.weight"], network.state_dict()["conf.0.weight"])
    assert "d.pth" in note
    other, note = create_network("ssd-small", tmp_path / "d.pth", classes=2)
    assert other(torch.zeros(1, 3, 128, 128))[1].shape[-1] == 3
    assert "start fresh" in note


def test_the_catalogue_says_how_many_classes_a_published_network_has() -> None:
    assert create_network("resnet20-cifar")[0](torch.zeros(1, 3, 32, 32)).shape == (1, 10)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    torch.save(build("resnet14-small", num_classes=3).state_dict(), tmp_path / "w.pth")
    with pytest.raises(ConfigError, match=r"do not fit resnet8-small: .*They look like resnet14-small"):
        create_network("resnet8-small", tmp_path / "w.pth")


def test_code_that_a_file_names_is_not_run(tmp_path: Path) -> None:
    """Its author would choose what runs here."""
    config = override(Config(), "data.source", "os:system('touch ran')")
    config = override(config, "eval.metrics", ("os:getcwd",))
    settings = {"schema": SCHEMAS["config"], **to_dict(config)}
    about = ModelFile(model="resnet50", classes=("a", "b"), eval_px=32, eval_short_side_px=32, settings=settings)
    recipe = config_of_file(about, tmp_path / "model.safetensors").recipe
    assert (recipe.data.source, recipe.eval.metrics) == ("", ())
