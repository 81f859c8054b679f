"""Starting weights: loading, freezing, and what is noted about both. Files of others are tested in tests/models."""

from pathlib import Path

import pytest
import torch

from tests.tiny_training import tiny_config
from vernier import recipes
from vernier.config import Config, Model, override
from vernier.engine.starting_weights import (
    _freeze,
    _freeze_statistics,
    _load_backbone,
    _prepare_from_images,
    apply_starting_weights,
    from_scratch_warnings,
)
from vernier.errors import ConfigError
from vernier.models import build
from vernier.tasks import task_of


@pytest.fixture
def weights_file(tmp_path: Path) -> Path:
    """Weights of another model with ten classes."""
    torch.manual_seed(7)
    path = tmp_path / "weights.pth"
    torch.save(build("resnet8-small", num_classes=10, width=8).state_dict(), path)
    return path


def config_with(shapes: Path, weights: Path) -> Config:
    return override(tiny_config(shapes), "model.weights", str(weights))


def test_weights_are_loaded_into_a_fresh_model_and_not_when_resuming(shapes: Path, weights_file: Path) -> None:
    config = config_with(shapes, weights_file)
    source = task_of(config.recipe).open("train")
    saved = torch.load(weights_file, weights_only=True)
    for fresh in (True, False):
        torch.manual_seed(0)
        model = build("resnet8-small", num_classes=10, width=8)
        notes = apply_starting_weights(model, config, source, fresh=fresh)
        assert torch.equal(model.state_dict()["conv1.weight"], saved["conv1.weight"]) is fresh
        assert any(f"weights from {weights_file}" in note for note in notes) is fresh


@pytest.mark.parametrize(("name", "message"), [("none.pth", "does not exist"), ("", "is a folder")])
def test_a_file_that_is_not_there_is_an_error(shapes: Path, tmp_path: Path, name: str, message: str) -> None:
    config = config_with(shapes, tmp_path / name)
    source = task_of(config.recipe).open("val")
    with pytest.raises(ConfigError, match=f"{message}.*Give a .safetensors, .pth, .pt or .th file"):
        apply_starting_weights(build("resnet8-small", num_classes=10, width=8), config, source, fresh=True)


def test_a_whitening_stem_is_set_from_the_training_images_of_a_fresh_run(shapes: Path, tmp_path: Path) -> None:
    config = tiny_config(shapes, model=Model(name="airbench94", width=8))
    source = task_of(config.recipe).open("train")
    models = [build("airbench94", num_classes=10, width=8) for _ in range(3)]
    before = models[2].conv1.weight.detach().clone()  # type: ignore[union-attr]
    for model in models[:2]:
        (note,) = _prepare_from_images(model, config, source)
        assert f"{len(source):,} training images without labels" in note
    assert torch.equal(models[0].conv1.weight, models[1].conv1.weight)  # type: ignore[union-attr]
    assert apply_starting_weights(models[2], config, source, fresh=False) == ()
    assert torch.equal(models[2].conv1.weight, before)  # type: ignore[union-attr]
    torch.save(models[0].state_dict(), tmp_path / "whitened.pth")
    with_weights = override(config, "model.weights", str(tmp_path / "whitened.pth"))
    (note,) = apply_starting_weights(models[2], with_weights, source, fresh=True)
    assert "weights from" in note
    assert _prepare_from_images(build("resnet8-small", num_classes=10, width=8), config, source) == ()


def test_frozen_layers_keep_their_statistics_too() -> None:
    model = build("resnet8-small", num_classes=10, width=8)
    model.train()
    count = _freeze(model, Model(freeze=("backbone",)))
    learning = {name for name, p in model.named_parameters() if p.requires_grad}
    assert learning == {"fc.weight", "fc.bias"}
    assert count == len(list(model.parameters())) - 2
    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert norms
    assert not any(norm.training for norm in norms)


def test_a_prefix_that_matches_nothing_is_refused_with_a_suggestion() -> None:
    model = build("resnet8-small", num_classes=10, width=8)
    with pytest.raises(ConfigError, match=r"'layr1' matches nothing in the model. Did you mean layer1"):
        _freeze(model, Model(freeze=("layr1",)))


def test_only_a_large_detector_without_weights_is_warned_about() -> None:
    large = Config(recipe=recipes.get("mlperf-ssd"))
    assert "FROM SCRATCH" in from_scratch_warnings(large)[0]
    assert from_scratch_warnings(override(large, "model.backbone_weights", "x.pth")) == ()
    assert from_scratch_warnings(Config(recipe=recipes.get("ssd-shapes-quick"))) == ()
    assert from_scratch_warnings(Config()) == ()


def test_backbone_weights_are_for_detectors(weights_file: Path) -> None:
    with pytest.raises(ConfigError, match="is for detectors"):
        _load_backbone(build("resnet8-small", num_classes=10, width=8), str(weights_file))


def test_norms_without_statistics_have_none_to_keep() -> None:
    notes = [_freeze_statistics(build(name, num_classes=3, width=8)) for name in ("resnet8-small", "convnext-tiny")]
    assert notes == [9, 0]
