import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, get_origin

import pytest

from vernier import recipes
from vernier.config import (
    Config,
    Machine,
    Recipe,
    described_settings,
    differences,
    digest,
    from_dict,
    load_file,
    optimizers,
    override,
    override_from_text,
    setting_name,
    to_dict,
    to_toml,
)
from vernier.errors import ConfigError
from vernier.optim.kinds.sgd import Sgd


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_survives_toml_and_json(name: str, tmp_path: Path) -> None:
    recipe = recipes.get(name)
    mine = tmp_path / "mine.toml"
    mine.write_text(to_toml(recipe))
    assert load_file(mine).recipe == recipe
    assert from_dict(Recipe, json.loads(json.dumps(to_dict(recipe)))) == recipe


def test_a_partial_toml_keeps_the_defaults_of_the_rest(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('name = "mine"\n[optim]\nlr = 1\n[machine]\nworkers = 7\n[checkpoint]\nevery_steps = 5\n')
    config = load_file(mine)
    assert (config.recipe.name, config.recipe.optim.lr, config.machine.workers, config.checkpoint.every_steps) == (
        "mine",
        1.0,
        7,
        5,
    )
    assert config.recipe.optim.momentum == Sgd().momentum


@pytest.mark.parametrize(
    ("assignment", "path", "expected"),
    [
        ("optim.lr=0.5", ("recipe", "optim", "lr"), 0.5),
        ("optim.lr=1", ("recipe", "optim", "lr"), 1.0),
        ("recipe.optim.lr=0.5", ("recipe", "optim", "lr"), 0.5),
        ("schedule.epochs=3", ("recipe", "schedule", "epochs"), 3.0),
        ("schedule.milestones=[1, 2]", ("recipe", "schedule", "milestones"), (1.0, 2.0)),
        ("optim.nesterov=true", ("recipe", "optim", "nesterov"), True),
        ("model.name=resnet18", ("recipe", "model", "name"), "resnet18"),
        ("model.num_classes=none", ("recipe", "model", "num_classes"), None),
        ("name=none", ("recipe", "name"), "none"),
        ("recipe.name=2024", ("recipe", "name"), "2024"),
        ('name="quoted"', ("recipe", "name"), "quoted"),
        ("augment.policy=none", ("recipe", "augment", "policy"), "none"),
        ("augment.crop=none", ("recipe", "augment", "crop"), "none"),
        ("eval.target_ap=none", ("recipe", "eval", "target_ap"), None),
        ("optim.nesterov=False", ("recipe", "optim", "nesterov"), False),
        ("data.workers=3", ("machine", "workers"), 3),
        ("machine.workers=3", ("machine", "workers"), 3),
        ("checkpoint.every_steps=9", ("checkpoint", "every_steps"), 9),
        ("checkpoint.every_epochs=0.5", ("checkpoint", "every_epochs"), 0.5),
        ("global_batch=12", ("recipe", "global_batch"), 12),
    ],
)
def test_set_reaches_any_field(assignment: str, path: tuple[str, ...], expected: object) -> None:
    value: object = override_from_text(Config(), assignment)
    for part in path:
        value = getattr(value, part)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("optim.lrr=0.5", r"Did you mean optim\.lr\?"),
        ("lr=0.5", r"Did you mean optim\.lr\?"),
        ("learning_rate=0.5", r"Did you mean optim\.lr\?"),
        ("zzz=1", "vernier recipes shapes-quick"),
        ("optm.lr=0.5", r"Did you mean optim\.lr"),
        ("optim=3", "group of settings"),
        ("optim.lr", "NAME=VALUE"),
        ("=3", "NAME=VALUE"),
        ("optim.lr.x=1", "Unknown setting"),
    ],
)
def test_a_name_that_is_no_setting_leads_to_one_that_is(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        override_from_text(Config(), assignment)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("optim.lr", "fast", "must be a number"),
        ("optim.lr", -1, "above 0"),
        ("optim.lr", math.inf, "a finite number"),
        ("optim.lr", True, "must be a number"),
        ("global_batch", 0, "1 or more"),
        ("global_batch", 1.5, "whole number"),
        ("schedule.kind", "cosin", "cosine, step"),
        ("augment.area", [0.1], "list of 2"),
        ("augment.area", 0.1, "must be a list"),
        ("augment.flip", 2, "1 or less"),
        ("machine.workers", -1, "0 or more"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_the_setting_and_the_reason(
    path: str, value: object, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        override(Config(), path, value)
    assert refused.value.given == {path: value}


@pytest.mark.parametrize("name", ["", "shapes-quick", "ffcv-resnet50-16e", "mlperf-ssd", "airbench-cifar10"])
def test_overriding_one_setting_gives_what_reading_the_whole_configuration_anew_gives(name: str) -> None:
    """With other values than the settings have, so that one which follows from another is noticed if it moves."""
    config = Config(recipe=recipes.get(name)) if name else Config()
    others = to_dict(Config(recipe=recipes.get("habana-ssd-8")))
    for kind in optimizers().values():
        others["recipe"]["optim"] = to_dict(kind()) | others["recipe"]["optim"]
    for path in described_settings():
        *groups, last = setting_name(path).split(".")
        other = functools.reduce(dict.__getitem__, [*groups, last], others)
        # A file may name a plug-in that is not installed here; a person who sets it wants to use it.
        texts = [] if get_origin(described_settings()[path][1]) is Annotated else ["x"]
        for value in (other, 2, *texts, None, [1, 2], {"a": 1}):
            tree = to_dict(config)
            functools.reduce(dict.__getitem__, groups, tree)[last] = value
            expected, found = _result(from_dict, Config, tree), _result(override, config, path, value)
            assert found == expected, (path, value)


def _result(make: Callable[..., Config], *args: object) -> tuple[str, str]:
    """The digest of a configuration, which also sees 1 and 1.0 as different; or the message of its refusal."""
    try:
        config = make(*args)
    except ConfigError as error:
        return "", error.message
    return digest(config), ""


@pytest.mark.parametrize("name", recipes.names())
def test_the_digest_of_a_recipe_does_not_depend_on_a_change_that_changes_nothing(name: str) -> None:
    config = Config(recipe=recipes.get(name))
    assert digest(override(config, "seed", config.recipe.seed)) == digest(config)
    assert digest(from_dict(Config, to_dict(config))) == digest(config)


def test_a_table_changes_the_settings_of_a_group_that_it_names_and_no_others() -> None:
    config = override(override(Config(), "data.source", "photos"), "data", {"image_px": 64})
    assert (config.recipe.data.image_px, config.recipe.data.source) == (64, "photos")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        load_file(tmp_path / "nowhere.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("a = [")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_file(broken)
    unknown = tmp_path / "unknown.toml"
    unknown.write_text("[optim]\nlearning_rate = 1\n")
    with pytest.raises(ConfigError, match=r"unknown\.toml: Unknown setting 'optim.learning_rate'"):
        load_file(unknown)


def test_digest_and_differences_see_every_change() -> None:
    a, b = Config(), override(Config(), "optim.lr", 0.7)
    assert digest(a.recipe) != digest(b.recipe)
    assert differences(a, b) == {"recipe.optim.lr": (0.1, 0.7)}
    assert digest(a) == digest(from_dict(Config, to_dict(a)))


def test_graph_is_another_word_for_compile() -> None:
    assert override(Config(), "machine.mode", "graph").machine.mode == "compile"


@pytest.mark.parametrize(("word", "kind"), [("gpu", "cuda"), ("gaudi", "hpu"), ("cpu", "cpu"), ("mine", "mine")])
def test_devices_have_the_same_other_names_in_files_assignments_and_options(word: str, kind: str) -> None:
    assert from_dict(Machine, {"device": word}, "machine").device == kind
    assert override_from_text(Config(), f"machine.device={word}").machine.device == kind


@pytest.mark.parametrize(
    ("name", "value"),
    [("augment.area", [float("nan"), 1.0]), ("augment.area", [-5, 1]), ("schedule.milestones", [float("inf")])],
)
def test_numbers_in_lists_have_ranges_too(name: str, value: list[float]) -> None:
    """NaN in a list was accepted, and every crop of a training run was computed with it."""
    with pytest.raises(ConfigError) as error:
        override(Config(), name, value)
    assert list(error.value.given) == [name]
