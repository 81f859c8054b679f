"""Every built-in recipe: gives its source, keeps its learning-rate curve, and runs."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Done, only_run
from tests.optim.golden import FOLDER, curve, rates
from vernier import models, recipes
from vernier.config import Config, Recipe, check_config, config_warnings, derive, to_dict
from vernier.data import shapes as shapes_package
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.errors import ConfigError
from vernier.models import is_detector, names

PUBLISHED = [name for name in recipes.names() if recipes.get(name).data.source == ""]


@pytest.mark.parametrize("name", recipes.names())
def test_the_learning_rate_curve_is_the_recorded_one(name: str) -> None:
    recorded = json.loads((FOLDER / f"{name}.json").read_text())
    now = curve(name)
    assert {k: v for k, v in now.items() if k != "rates"} == {k: v for k, v in recorded.items() if k != "rates"}
    assert now["rates"] == pytest.approx(recorded["rates"], rel=1e-8, abs=1e-12)


def test_no_curve_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(recipes.names())


@pytest.mark.parametrize("name", recipes.names())
def test_a_docstring_gives_source_cost_and_the_command(name: str) -> None:
    text, recipe = recipes.notes(name), recipes.get(name)
    assert "Source: " in text
    assert f"vernier train {name}" in text or name == recipes.DEFAULT
    assert recipe.source
    assert recipe.about
    assert recipe.model.name in names()
    if name in PUBLISHED:
        assert "Hardware and cost: " in text
        for entry in recipe.published:
            assert entry.source
            assert f"{entry.mean:g}" in text, entry
            if entry.sd is not None:
                assert f"{entry.sd:g}" in text, entry


@pytest.fixture(scope="module")
def smoke_home(vernier_home: Path) -> Iterator[Path]:
    """The built-in shapes set, made small once, where `--smoke` looks for it."""
    small = make_shapes(vernier_home / "smoke-shapes", ShapesSpec(train=64, val=24, size_px=64, seed=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes_package, "make_cached_shapes", lambda spec: small)
        yield small


@pytest.mark.parametrize("name", recipes.names())
def test_it_runs_two_steps(name: str, smoke_home: Path, vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    done = vernier_here(
        "train",
        name,
        "--smoke",
        "--out",
        str(tmp_path),
        "--json",
        "--set",
        "machine.threads=1",
        "--set",
        "checkpoint.every_epochs=0",
    )
    assert done.code == 0, done.err
    result = done.json()
    assert result["step"] == 2
    recipe = recipes.get(name)
    if recipe.eval.every_epochs > 0:
        assert result["result"]["samples"] == 8
        assert result["result"]["flip_tta"] == recipe.eval.flip_tta
    config = json.loads((only_run(tmp_path) / "config.json").read_text())["recipe"]
    assert config["augment"]["policy"] == recipe.augment.policy
    assert config["optim"] == to_dict(recipe.optim)


def test_flip_test_time_augmentation_is_reported(
    smoke_home: Path, vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    done = vernier_here("train", "ffcv-resnet50-16e", "--smoke", "--out", str(tmp_path), "--set", "machine.threads=1")
    assert "with flip test-time augmentation" in done.out
    assert "with flip test-time augmentation" in done.err


def test_recipes_of_an_installed_package_are_listed_and_do_not_replace_the_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cifar = recipes.get("cifar10")

    def leaves() -> Recipe:
        return replace(cifar, name="lab-leaves")

    def other_cifar() -> Recipe:
        return replace(cifar, global_batch=1)

    sources = recipes.sources.__wrapped__
    monkeypatch.setattr(recipes, "load_group", lambda group, kind: {"mine": {"Ours": (leaves, other_cifar)}})
    monkeypatch.setattr(recipes, "sources", sources)
    assert [*sources()["Ours"]] == ["lab-leaves"]
    assert recipes.load("lab-leaves").recipe.name == "lab-leaves"
    assert recipes.get("cifar10").global_batch == 128


@pytest.mark.parametrize("name", models.names())
def test_every_network_has_plain_settings_as_published(name: str) -> None:
    config = recipes.load(name)
    entry, recipe = models.info(name), config.recipe
    assert models.shown_name(recipe.model) == recipe.name == name
    assert (recipe.data.image_px, recipe.data.eval_px, recipe.data.source) == (entry.input_px, entry.input_px, "")
    check_config(config, detector=is_detector(name))
    assert config_warnings(config, detector=is_detector(name)) == ()


def test_another_network_comes_as_published_and_names_the_recipe() -> None:
    config = recipes.change(recipes.load("shapes-quick"), {"model.name": "resnet50"}, ()).config
    assert models.shown_name(config.recipe.model) == "resnet50"
    assert (config.recipe.data.image_px, config.recipe.data.eval_px) == (224, 224)
    assert config.recipe.name == "shapes-quick-resnet50"
    assert config.recipe.optim == recipes.get("shapes-quick").optim


def test_a_network_of_the_same_size_keeps_the_image_sizes_of_the_recipe() -> None:
    config = recipes.change(recipes.load("torchvision-resnet50-v2"), {"model.name": "resnet18"}, ()).config
    assert (config.recipe.data.image_px, config.recipe.data.eval_px) == (176, 224)
    assert config.recipe.published == ()


def test_setting_the_network_is_the_same_as_the_flag() -> None:
    by_flag = recipes.change(recipes.load("cifar10"), {"model.name": "resnet50"}, ())
    by_set = recipes.change(recipes.load("cifar10"), {}, ("model.name=resnet50",))
    assert by_flag == by_set


def test_a_width_that_was_set_stays_and_is_named() -> None:
    config = recipes.change(recipes.load("shapes-quick"), {"model.name": "resnet50"}, ("model.width=32",)).config
    assert models.shown_name(config.recipe.model) == "resnet50, width 32"


def test_a_detector_is_no_network_for_a_classifiers_recipe() -> None:
    with pytest.raises(ConfigError, match="Give ssd300-resnet34 as the recipe"):
        recipes.change(recipes.load("cifar10"), {"model.name": "ssd300-resnet34"}, ())


def test_changes_are_in_the_name_of_the_run() -> None:
    config = recipes.change(recipes.load("shapes-quick"), {}, ("model.width=64", "data.image_px=32")).config
    assert config.recipe.name == "shapes-quick-width64-32px"
    assert recipes.reference(config.recipe) == recipes.get("shapes-quick")


# ------------------------------------------------------------------------------------------------------------- by file


@pytest.mark.parametrize(
    ("name", "crop", "match"), [("nvidia-ssd-dgx1", "ssd", "above"), ("habana-ssd-1", "ssd-tf", "at-least")]
)
def test_a_variant_is_of_one_lineage(name: str, crop: str, match: str) -> None:
    recipe = recipes.get(name)
    assert (recipe.augment.crop, recipe.detect.match) == (crop, match)


def test_the_references_train_until_the_target_of_mlperf() -> None:
    assert [recipes.get(name).eval.target_ap for name in ("mlperf-ssd", "mlperf-ssd-1024")] == [0.23, 0.23]


@pytest.mark.parametrize(
    ("name", "lr", "steps"),
    [
        ("torchvision-resnet50-v2", 0.5, 1251),
        ("ffcv-resnet50-16e", 1.7, 312),
        ("rsb-resnet50-a3", 0.008, 625),
        ("convnext-tiny-300e", 0.004, 312),
    ],
)
def test_peak_rates_and_steps_on_imagenet(name: str, lr: float, steps: int) -> None:
    derived = derive(Config(recipe=recipes.get(name)), train_samples=recipes.IMAGENET_TRAIN)
    assert derived.lr == pytest.approx(lr)
    assert derived.steps_per_epoch == steps


def test_torchvisions_warm_up_begins_at_one_percent() -> None:
    assert rates("torchvision-resnet50-v2", 0, 4, 5) == pytest.approx([0.005, 0.401, 0.5])


def test_the_rate_of_convnext_rises_for_20_epochs_and_ends_at_one_millionth() -> None:
    assert rates("convnext-tiny-300e", 0, 2, 20) == pytest.approx([0.0, 0.0004, 0.004])
    assert list(curve("convnext-tiny-300e")["rates"].values())[-1] == pytest.approx(1e-6, rel=1e-4)


def test_torchvisions_average_is_stretched_over_its_steps() -> None:
    ema = recipes.get("torchvision-resnet50-v2").ema
    assert ema.decay == pytest.approx(1 - 2e-5 * 1024 * 32 / 600)
    assert (ema.every_steps, ema.copy_epochs, ema.warmup) == (32, 5, False)


@pytest.mark.parametrize(
    ("name", "images"),
    [("shapes-quick", 8_000), ("ssd-shapes-quick", 4_000), ("ssd-bccd", 205), ("cifar10", 50_000)],
)
def test_small_sets_have_their_own_number_of_images(name: str, images: int) -> None:
    assert recipes.train_images(recipes.get(name)) == images


def test_cifar10_drops_its_rate_where_the_paper_does() -> None:
    """At 32,000 and 48,000 of 64,000 iterations of 128 images."""
    recipe = recipes.get("cifar10")
    steps = [epoch * 50_000 / recipe.global_batch for epoch in recipe.schedule.milestones]
    assert steps == pytest.approx([32_000, 48_000], rel=0.01)
