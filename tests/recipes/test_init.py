"""Every built-in recipe: gives its source, keeps its learning-rate curve, and runs."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Done, only_run
from tests.optim.golden import FOLDER, curve
from vernier import recipes
from vernier.config import to_dict
from vernier.data import shapes as shapes_package
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.models import names

PUBLISHED = [name for name in recipes.BUILT_IN if recipes.get(name).data.source == ""]


@pytest.mark.parametrize("name", recipes.BUILT_IN)
def test_the_learning_rate_curve_is_the_recorded_one(name: str) -> None:
    recorded = json.loads((FOLDER / f"{name}.json").read_text())
    now = curve(name)
    assert {k: v for k, v in now.items() if k != "rates"} == {k: v for k, v in recorded.items() if k != "rates"}
    assert now["rates"] == pytest.approx(recorded["rates"], rel=1e-8, abs=1e-12)


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


@pytest.fixture(scope="module")
def smoke_home(vernier_home: Path) -> Iterator[Path]:
    """The built-in shapes set, made small once, where `--smoke` looks for it."""
    small = make_shapes(vernier_home / "smoke-shapes", ShapesSpec(train=64, val=24, size_px=64, seed=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes_package, "make_cached_shapes", lambda spec: small)
        yield small


@pytest.mark.parametrize("name", recipes.BUILT_IN)
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
