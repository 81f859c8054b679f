"""`vernier recipes` and `vernier models`."""

import re
import tomllib
from collections.abc import Callable

import pytest

from tests.conftest import Done
from tests.refusals import config_error_of, what_works
from vernier import recipes
from vernier.config import Recipe, from_dict
from vernier.models import names as model_names


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_that_is_shown_loads_back_equal(name: str, vernier_here: Callable[..., Done]) -> None:
    shown = vernier_here("recipes", "show", name).out
    assert from_dict(Recipe, tomllib.loads(shown)) == recipes.get(name)
    assert shown.startswith("# ")


def test_the_list_has_every_published_figure_as_numbers(vernier_here: Callable[..., Done]) -> None:
    rows = {row["name"]: row for row in vernier_here("recipes", "--json").json()}
    first, *others = rows["nvidia-resnet50-90e"]["published"]
    keys = ("metric", "mean", "sd", "n", "precision", "global_batch", "device", "devices")
    assert [first[key] for key in keys] == ["top1", 77.23, 0.04, None, "mixed", 2048, "V100 16 GB", 8]
    assert len(others) == 4
    resnext = rows["habana-tf-resnext101-90e"]
    assert [(p["mean"], p["global_batch"], p["devices"]) for p in resnext["published"]] == [
        (79.2, 128, 1),
        (79.02, 1024, 8),
    ]
    assert [(r["devices"], r["images_per_s"]) for r in resnext["speeds"]] == [(1, 650), (8, 4656)]
    assert [t["hours"] for t in resnext["times"]] == [pytest.approx(6 + 56 / 60, abs=1e-4)]
    assert [p["mean"] for p in rows["habana-resnet50-sgd-1"]["published"]] == [75.85, 92.88]
    assert all(row["source"] for row in rows.values())


def test_the_table_has_published_results_in_short(vernier_here: Callable[..., Done]) -> None:
    lines = vernier_here("recipes").out.splitlines()
    for name, short in (
        ("nvidia-resnet50-90e", "77.23 ± 0.04 %"),
        ("torchvision-resnet50-v2", "80.858 %"),
        ("ffcv-resnet50-16e", "73.8 % TTA"),
        ("nvidia-ssd300-r50", "AP 0.268 ± 0.001"),
    ):
        assert any(line.startswith(f"{name} ") and f" {short} " in line for line in lines), name


@pytest.mark.parametrize(
    ("words", "width", "columns"),
    [
        ("recipes", 60, "recipe published"),
        ("recipes", 80, "recipe data published epochs"),
        ("recipes", 120, "recipe data published epochs model batch"),
        ("models", 60, "model parameters published"),
        ("models", 80, "model parameters GMAC px published"),
        ("models", 120, "model parameters GMAC px published about"),
    ],
)
def test_tables_fit_the_terminal_with_the_columns_that_matter_most(
    words: str, width: int, columns: str, vernier_here: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    done = vernier_here(words)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in done.out.splitlines()]
    head = next(i for i, line in enumerate(lines) if line.startswith("──"))
    assert lines[head - 1].split() == columns.split()
    assert max(map(len, lines)) <= width
    names = list(recipes.names()) if words == "recipes" else list(model_names())
    assert [line.split()[0] for line in lines[head + 1 :] if line[:1].strip()] == names, "no name is broken"
    assert ("not shown: " in done.err) == ((words, width) != ("models", 120))


def test_published_speeds_of_a_recipe_and_of_all(vernier_here: Callable[..., Done]) -> None:
    done = vernier_here("recipes", "nvidia-resnet50-90e", "--speeds")
    assert done.code == 0, done.err
    assert "5,815.8" in done.out.replace("5815.8", "5,815.8")
    assert "about 46" in done.out
    assert "12.78/13.27/14.36" in done.out
    own = vernier_here("recipes", "show", "nvidia-resnet50-90e", "--speeds", "--json").json()
    every = vernier_here("recipes", "--speeds", "--json").json()
    assert [len(own[key]) < len(every[key]) for key in ("speeds", "times")] == [True, True]
    shown = vernier_here("recipes", "nvidia-resnet50-90e")
    assert "# Published speeds and training times: vernier recipes nvidia-resnet50-90e --speeds" in shown.out
    assert vernier_here("recipes", "nvidia-resnet50-90e", "--json").json()["speeds"] == own["speeds"]


def test_speeds_of_an_unknown_recipe_and_of_one_without_any(vernier_here: Callable[..., Done]) -> None:
    unknown = vernier_here("recipes", "nvidia-resnet50-91e", "--speeds")
    assert (unknown.code, "nvidia-resnet50-90e" in unknown.err) == (2, True)
    assert what_works(config_error_of("recipes", "cifar10", "--speeds")) == "recipes"


@pytest.mark.parametrize("words", [["show", "shapes-quick"], ["shapes-quick"]])
def test_a_recipe_is_printed_by_its_name(words: list[str], vernier_here: Callable[..., Done]) -> None:
    assert 'name = "shapes-quick"' in vernier_here("recipes", *words).out


def test_a_model_is_a_recipe_too_and_wrong_names_are_refused(vernier_here: Callable[..., Done]) -> None:
    assert 'name = "resnet18"' in vernier_here("recipes", "resnet18").out
    for wrong in (["show"], ["cifar10", "fashion-mnist"]):
        assert what_works(config_error_of("recipes", *wrong)) == "recipes recipes"
    assert "cifar10" in vernier_here("recipes", "cifra10").err
    assert vernier_here("recipes", "list").out == vernier_here("recipes").out


def test_the_list_names_the_data_of_every_recipe(vernier_here: Callable[..., Done]) -> None:
    rows = {row["name"]: row["data"] for row in vernier_here("recipes", "--json").json()}
    assert [rows[name] for name in ("cifar10", "nvidia-resnet50-90e", "mlperf-ssd")] == ["cifar10", "ImageNet", "COCO"]


def test_one_model_is_shown_with_its_recipes(vernier_here: Callable[..., Done]) -> None:
    shown = vernier_here("models", "resnet50").out
    assert "25,557,032 with 1,000 classes" in shown
    assert "4.089 GMAC" in shown
    assert "ImageNet 80.858 % (torchvision-resnet50-v2)" in shown
    assert "nvidia-resnet50-90e" in shown
    assert "vernier train resnet50" in shown
    assert vernier_here("models", "resnet50", "--json").json()["input_px"] == 224
    wrong = vernier_here("models", "resnet5")
    assert (wrong.code, "resnet50" in wrong.err) == (2, True)


def test_models_of_a_pattern_are_listed(vernier_here: Callable[..., Done]) -> None:
    assert [row["name"] for row in vernier_here("models", "resnet50*", "--json").json()] == ["resnet50", "resnet50-v1"]
    none = vernier_here("models", "zzz*")
    assert (none.code, none.out, "zzz*" in none.err) == (0, "", True)
    assert vernier_here("models", "zzz*", "--json").json() == []


def test_models_are_listed_with_their_parameters(vernier_here: Callable[..., Done]) -> None:
    rows = {row["name"]: row for row in vernier_here("models", "--json").json()}
    assert rows["resnet50"]["parameters"] == 25_557_032
    assert rows["ssd300-resnet34"]["family"] == "ssd"
