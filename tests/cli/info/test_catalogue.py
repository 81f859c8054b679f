"""`vernier recipes` and `vernier models`."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done, only_run
from vernier import recipes
from vernier.config import Recipe, from_dict


@pytest.mark.parametrize("name", recipes.BUILT_IN)
def test_a_recipe_that_is_shown_loads_back_equal(name: str, vernier_here: Callable[..., Done]) -> None:
    shown = vernier_here("recipes", "show", name).out
    assert from_dict(Recipe, tomllib.loads(shown)) == recipes.get(name)
    assert shown.startswith("# ")


def test_the_list_has_published_results_and_sources(vernier_here: Callable[..., Done]) -> None:
    rows = {row["name"]: row for row in vernier_here("recipes", "--json").json()}
    assert rows["nvidia-resnet50-90e"]["published"].startswith("77.23 ± 0.04 (mixed)")
    assert rows["torchvision-resnet50-v2"]["published"] == "80.858"
    assert rows["ffcv-resnet50-16e"]["published"] == "73.8 (mixed) TTA"
    assert all(row["source"] for row in rows.values())


@pytest.mark.parametrize("words", [["show", "shapes-quick"], ["shapes-quick"]])
def test_a_recipe_is_printed_by_its_name(words: list[str], vernier_here: Callable[..., Done]) -> None:
    assert 'name = "shapes-quick"' in vernier_here("recipes", *words).out


def test_a_network_is_a_recipe_too_and_wrong_names_are_refused(vernier_here: Callable[..., Done]) -> None:
    assert 'name = "resnet18"' in vernier_here("recipes", "resnet18").out
    for wrong in (["show"], ["cifar10", "fashion-mnist"], ["cifra10"]):
        assert vernier_here("recipes", *wrong).code == 2
    assert vernier_here("recipes", "list").out == vernier_here("recipes").out


def test_the_list_names_the_data_of_every_recipe(vernier_here: Callable[..., Done]) -> None:
    rows = {row["name"]: row["data"] for row in vernier_here("recipes", "--json").json()}
    assert [rows[name] for name in ("cifar10", "nvidia-resnet50-90e", "mlperf-ssd")] == ["cifar10", "ImageNet", "COCO"]


def test_one_network_is_shown_with_its_recipes(vernier_here: Callable[..., Done]) -> None:
    shown = vernier_here("models", "resnet50").out
    assert "25,557,032 with 1,000 classes" in shown
    assert "4.089 GMAC" in shown
    assert "nvidia-resnet50-90e" in shown
    assert "vernier train resnet50" in shown
    assert vernier_here("models", "resnet50", "--json").json()["input_px"] == 224
    assert "Did you mean resnet50" in vernier_here("models", "resnet5").err


@pytest.mark.slow
def test_device_hours_are_an_estimate_and_say_so(vernier_here: Callable[..., Done]) -> None:
    done = vernier_here("recipes", "--device-hours", "1000", "--json")
    assert "ESTIMATE" in done.err
    hours = {row["name"]: row["estimated_device_hours"] for row in done.json()}
    assert hours["nvidia-resnet50-90e"] == pytest.approx(90 * 1_281_167 / 1000 / 3600, rel=0.02)
    assert hours["nvidia-resnext101-90e"] == pytest.approx(hours["nvidia-resnet50-90e"] * 7.97 / 4.089, rel=0.02)
    small = hours["ffcv-resnet50-16e"] / (16 / 90 * hours["nvidia-resnet50-90e"])
    assert (160 / 224) ** 2 < small < (192 / 224) ** 2 * 1.04
    for wrong in ("0", "-3", "/no/run"):
        assert vernier_here("recipes", "--device-hours", wrong).code == 2


def test_device_hours_from_a_run(tiny: list[str], vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    assert vernier_here("train", *tiny, "--epochs", "1").code == 0
    run = only_run(tmp_path / "runs")
    done = vernier_here("recipes", "--device-hours", str(run), "--convert", "--json")
    assert done.code == 0, done.err
    assert run.name in done.err
    assert all(row["estimated_device_hours"] >= 0 for row in done.json())


def test_models_are_listed_with_their_parameters(vernier_here: Callable[..., Done]) -> None:
    rows = {row["name"]: row for row in vernier_here("models", "--json").json()}
    assert rows["resnet50"]["parameters"] == 25_557_032
    assert rows["ssd300-resnet34"]["family"] == "ssd"
