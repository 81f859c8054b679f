"""Every recipe: says where it comes from, survives the round trip, keeps its curve, and runs."""

import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.conftest import REPO, Done, only_run
from tests.optim.golden import FOLDER, curve
from vernier import recipes
from vernier.config import Config, Recipe, derive, from_dict, to_dict
from vernier.data.shapes import files as shapes_set
from vernier.data.shapes.files import ShapesSpec, make
from vernier.models import names
from vernier.recipes.__main__ import page

PUBLISHED = [name for name in recipes.BUILT_IN if recipes.get(name).data.source == ""]


@pytest.mark.parametrize("name", recipes.BUILT_IN)
def test_the_learning_rate_curve_is_the_recorded_one(name: str) -> None:
    recorded = json.loads((FOLDER / f"{name}.json").read_text())
    found = curve(name)
    assert {k: v for k, v in found.items() if k != "rates"} == {k: v for k, v in recorded.items() if k != "rates"}
    assert found["rates"] == pytest.approx(recorded["rates"], rel=1e-8, abs=1e-12)


def test_no_curve_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(recipes.BUILT_IN)


@pytest.mark.parametrize("name", recipes.BUILT_IN)
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


@pytest.mark.parametrize(
    ("name", "lr", "steps"),
    [
        ("nvidia-resnet50-90e", 2.048, 625),
        ("nvidia-resnet50-90e-4096", 4.096, 312),
        ("nvidia-resnet50-90e-896", 0.896, 1429),
        ("nvidia-resnext101-90e", 1.024, 1251),
        ("habana-resnet50-sgd-8", 0.8, 625),
        ("habana-resnet50-lars", 9.0, 625),
        ("habana-tf-resnext101-90e", 0.128, 10009),
        ("habana-tf-resnext101-90e-64", 8.192, 156),
        ("study-resnet50", 0.2, 5004),
        ("torchvision-resnet50-v2", 0.5, 1251),
        ("ffcv-resnet50-16e", 1.7, 312),
        ("rsb-resnet50-a3", 0.008, 625),
    ],
)
def test_peak_rates_and_steps_on_imagenet(name: str, lr: float, steps: int) -> None:
    derived = derive(Config(recipe=recipes.get(name)), train_samples=recipes.IMAGENET_TRAIN)
    assert derived.lr == pytest.approx(lr)
    assert derived.steps_per_epoch == steps


@pytest.mark.parametrize(
    ("name", "lr", "steps"),
    [
        ("mlperf-ssd", 0.0025, 3664),
        ("mlperf-ssd-1024", 0.08, 114),
        ("habana-ssd-1", 0.012, 916),
        ("habana-ssd-8", 0.096, 114),
        ("nvidia-ssd-dgx1", 0.0876, 122),
        ("nvidia-ssd300-r50", 0.0416, 229),
    ],
)
def test_peak_rates_and_steps_of_detectors_on_coco(name: str, lr: float, steps: int) -> None:
    derived = derive(Config(recipe=recipes.get(name)), train_samples=recipes.COCO_TRAIN)
    assert derived.lr == pytest.approx(lr)
    assert derived.steps_per_epoch == steps


def test_the_two_lineages_of_ssd_differ_where_they_should() -> None:
    torch_like, tf_like = recipes.get("mlperf-ssd"), recipes.get("habana-ssd-1")
    assert (torch_like.augment.crop, torch_like.augment.jitter, torch_like.detect.match) == ("ssd", "mlperf", "above")
    assert (tf_like.augment.crop, tf_like.augment.jitter, tf_like.detect.match) == ("ssd-tf", "tf", "at-least")
    assert recipes.get("nvidia-ssd300-r50").optim.decay_rule == "norm-and-bias"
    assert _rates("nvidia-ssd-dgx1", 0, 40) == pytest.approx([0.0, 0.0876])


def _rates(name: str, *epochs: int) -> list[float]:
    found = curve(name)
    return [found["rates"][str(e * found["steps_per_epoch"])] for e in epochs]


def test_rates_that_others_published() -> None:
    assert _rates("nvidia-resnet50-90e", 0, 8, 45) == pytest.approx([0.256, 2.048, 1.180313], abs=1e-6)
    assert _rates("habana-resnet50-sgd-8", 0, 1, 2, 3, 4, 30, 60, 80) == pytest.approx(
        [0.1, 0.275, 0.45, 0.625, 0.8, 0.08, 0.008, 0.0008]
    )
    assert _rates("habana-tf-resnext101-90e", 8)[0] / 0.128 == pytest.approx(0.98063, abs=1e-5)
    assert _rates("torchvision-resnet50-v2", 0, 4, 5) == pytest.approx([0.005, 0.401, 0.5])
    assert _rates("study-resnet50", 0, 4, 5, 25) == pytest.approx([0.05, 0.2 * 0.85, 0.2, 0.02])


def test_torchvisions_average_is_stretched_over_its_steps() -> None:
    ema = recipes.get("torchvision-resnet50-v2").ema
    assert ema.decay == pytest.approx(1 - 2e-5 * 1024 * 32 / 600)
    assert (ema.every_steps, ema.copy_epochs, ema.warmup) == (32, 5, False)


def test_the_tensorflow_recipe_subtracts_the_mean_only() -> None:
    from vernier.data.augment.normalize import Normalizer

    recipe = recipes.get("habana-tf-resnext101-90e")
    grey = torch.full((1, 3, 1, 1), 200, dtype=torch.uint8)
    scaled = Normalizer(recipe.data, torch.device("cpu"))(grey).flatten()
    torch.testing.assert_close(scaled, torch.tensor([200 - 123.68, 200 - 116.78, 200 - 103.94]))


@pytest.mark.parametrize("name", recipes.BUILT_IN)
def test_shown_it_loads_back_equal(name: str, vernier_here: Callable[..., Done]) -> None:
    shown = vernier_here("recipes", "show", name).out
    assert from_dict(Recipe, tomllib.loads(shown)) == recipes.get(name)
    assert shown.startswith("# ")


@pytest.fixture(scope="module")
def smoke_home(vernier_home: Path) -> Iterator[Path]:
    """The built-in shapes set, made small once, where `--smoke` looks for it."""
    small = make(vernier_home / "smoke-shapes", ShapesSpec(train=64, val=24, size_px=64, seed=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes_set, "cached", lambda spec: small)
        yield small


@pytest.mark.parametrize("name", recipes.BUILT_IN)
def test_it_runs(name: str, smoke_home: Path, vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    done = vernier_here(
        "train", name, "--smoke", "--out", str(tmp_path), "--json", "--set", "machine.threads=1",
        "--set", "checkpoint.every_epochs=0",
    )  # fmt: skip
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


def test_flip_test_time_augmentation_is_said(
    smoke_home: Path, vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    done = vernier_here("train", "ffcv-resnet50-16e", "--smoke", "--out", str(tmp_path), "--set", "machine.threads=1")
    assert "with flip test-time augmentation" in done.out
    assert "with flip test-time augmentation" in done.err


def test_the_documentation_is_up_to_date() -> None:
    assert (REPO / "docs" / "recipes.md").read_text() == page(), "run: python -m vernier.recipes > docs/recipes.md"


def test_the_list_has_published_results_and_sources(vernier_here: Callable[..., Done]) -> None:
    rows = {row["name"]: row for row in vernier_here("recipes", "--json").json()}
    assert rows["nvidia-resnet50-90e"]["published"].startswith("77.23 +- 0.04 (mixed)")
    assert rows["torchvision-resnet50-v2"]["published"] == "80.858"
    assert rows["ffcv-resnet50-16e"]["published"] == "73.8 (mixed) TTA"
    assert all(row["source"] for row in rows.values())


def test_device_hours_are_an_estimate_and_say_so(vernier_here: Callable[..., Done]) -> None:
    done = vernier_here("recipes", "--device-hours", "1000", "--json")
    assert "ESTIMATE" in done.err
    hours = {row["name"]: row["estimated_device_hours"] for row in done.json()}
    assert hours["nvidia-resnet50-90e"] == pytest.approx(90 * 1_281_167 / 1000 / 3600, abs=0.01)
    assert hours["nvidia-resnext101-90e"] == pytest.approx(hours["nvidia-resnet50-90e"] * 7.97 / 4.089, rel=1e-3)
    small = hours["ffcv-resnet50-16e"] / (16 / 90 * hours["nvidia-resnet50-90e"])
    assert (160 / 224) ** 2 < small < (192 / 224) ** 2 * 1.02
    for wrong in ("0", "-3", "/no/run"):
        assert vernier_here("recipes", "--device-hours", wrong).code == 2


def test_device_hours_from_a_run(tiny: list[str], vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    assert vernier_here("train", *tiny, "--epochs", "1").code == 0
    run = only_run(tmp_path / "runs")
    done = vernier_here("recipes", "--device-hours", str(run), "--json")
    assert done.code == 0, done.err
    assert run.name in done.err
    assert all(row["estimated_device_hours"] >= 0 for row in done.json())
