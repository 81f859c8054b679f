"""Files of other versions: older ones are brought up to date, newer ones are refused with a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from vernier import recipes
from vernier.config import (
    Config,
    config_from_tree,
    derive,
    described_settings,
    load_file,
    override_from_text,
    to_dict,
)
from vernier.config.migrations import SCHEMAS, NewerFile, migrated
from vernier.config.names import RENAMED_SETTINGS
from vernier.config.settings import short_side_of
from vernier.errors import ConfigError
from vernier.optim.kinds.lamb import Lamb

OF_OPTIMIZERS = {
    "nesterov": False,
    "trust_coefficient": 0.001,
    "beta2": 0.999,
    "eps": 1e-6,
    "filter_momentum": 0.6,
    "bias_lr": None,
    "head_lr": None,
}
"""Every file before 0.4 had the settings of all four optimizers, at these values unless they were changed."""


def _old_tree(recipe: str = "ssd-shapes-quick") -> dict[str, Any]:
    """A configuration as schema 1 wrote it: old names, and a setting that had no effect."""
    tree = to_dict(Config(recipe=recipes.get(recipe)))
    tree["recipe"]["optim"] = OF_OPTIMIZERS | tree["recipe"]["optim"]
    for old, new in RENAMED_SETTINGS.items():
        *groups, name = old.split(".")
        group = tree
        for part in groups:
            group = group[part]
        group[name] = group.pop(new.rpartition(".")[2])
    return {"schema": 1, **tree}


def test_a_configuration_of_schema_1_is_read_with_its_values() -> None:
    tree = _old_tree()
    tree["recipe"]["detect"]["most"] = 17
    tree["recipe"]["data"]["eval_short_side_px"] = 128
    before = json.dumps(tree)
    config = config_from_tree(migrated("config", tree, "config.json"))
    assert config.recipe.detect.max_detections == 17
    assert config.recipe.data.eval_short_side_px == short_side_of(128)
    assert json.dumps(tree) == before


def test_settings_of_other_optimizers_which_earlier_versions_recorded_and_ignored_are_ignored() -> None:
    tree = to_dict(Config())
    ignored = {"trust_coefficient": 0.02, "beta2": 0.9, "eps": 1e-3, "filter_momentum": 0.1}
    tree["recipe"]["optim"] |= OF_OPTIMIZERS | ignored
    assert config_from_tree(migrated("config", {**tree, "schema": 3}, "config.json")) == Config()
    tree["recipe"]["optim"]["name"] = "lamb"
    assert config_from_tree(tree).recipe.optim == Lamb(beta2=0.9, eps=1e-3)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_file_of_a_newer_version_is_refused_with_a_sentence_that_says_so(kind: str) -> None:
    with pytest.raises(
        NewerFile, match=r"x\.json was written by a newer version of Vernier \(schema 99.*Update Vernier"
    ):
        migrated(kind, {"schema": 99}, "x.json")


@pytest.mark.parametrize(
    ("kind", "tree"),
    [
        ("config", {"recipe": 3}),
        ("config", {"recipe": {"model": []}}),
        ("config", {"machine": None}),
        ("checkpoint", {"config": "x"}),
        ("bench", {"asked": {"config": {"limits": 1}}}),
    ],
)
def test_settings_that_are_no_tables_are_damage(kind: str, tree: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="settings are damaged"):
        migrated(kind, {"schema": SCHEMAS[kind], **tree}, "x.json")


@pytest.mark.parametrize("schema", ["two", 0, True, None])
def test_a_schema_that_is_no_number_is_damage(schema: object) -> None:
    with pytest.raises(ConfigError, match="damaged"):
        migrated("run", {"schema": schema}, "run.json")


@pytest.mark.parametrize(
    ("kind", "path"), [("checkpoint", ["config"]), ("bench", ["config"]), ("bench", ["asked", "config"])]
)
def test_configurations_inside_other_files_are_migrated_too(kind: str, path: list[str]) -> None:
    tree: dict[str, Any] = {k: v for k, v in _old_tree().items() if k != "schema"}
    for part in reversed(path):
        tree = {part: tree}
    out: Any = migrated(kind, tree, "x.json")
    for part in path:
        out = out[part]
    assert config_from_tree(out) == Config(recipe=recipes.get("ssd-shapes-quick"))


def test_every_old_name_of_a_setting_is_an_error_with_the_new_name() -> None:
    base = Config(recipe=recipes.get("ssd-shapes-quick"))
    for old, new in RENAMED_SETTINGS.items():
        old_name, new_name = old.removeprefix("recipe."), new.removeprefix("recipe.")
        assert new_name in described_settings()
        with pytest.raises(ConfigError, match=rf"Unknown setting '{old_name}'\. It is called {new_name}\."):
            override_from_text(base, f"{old_name}=1")


def test_an_old_name_in_a_recipe_file_is_an_error_with_the_file_and_the_new_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[detect]\nmost = 9\n")
    with pytest.raises(ConfigError, match=r"mine\.toml: Unknown setting 'detect.most'\. .*detect\.max_detections"):
        load_file(path)
    path.write_text("[detect]\nmax_detections = 9\n")
    assert load_file(path).recipe.detect.max_detections == 9


def test_the_configuration_file_of_an_old_run_is_read_by_its_schema(tmp_path: Path) -> None:
    tree = _old_tree()
    tree["recipe"]["detect"]["most"] = 9
    path = tmp_path / "config.json"
    path.write_text(json.dumps(tree))
    assert load_file(path).recipe.detect.max_detections == 9


@pytest.mark.parametrize("schema", [1, 2])
def test_a_run_of_an_earlier_version_keeps_its_windows_and_steps(schema: int) -> None:
    """Its `ssd-tf` tested one side of a window; its epochs left out the last, incomplete batch."""
    tree = _old_tree("habana-ssd-1") if schema == 1 else to_dict(Config(recipe=recipes.get("habana-ssd-1")))
    del tree["recipe"]["data"]["last_batch"]
    config = config_from_tree(migrated("config", {**tree, "schema": schema}, "config.json"))
    assert config.recipe.augment.crop == "ssd-tf-tall"
    assert derive(config, train_samples=recipes.COCO_TRAIN).steps_per_epoch == 916


def test_settings_that_are_gone_are_left_out_of_earlier_configurations() -> None:
    tree = to_dict(Config())
    tree["machine"] |= {"all_reduce": "hierarchical", "powersgd_rank": 2, "gradient_compression": "powersgd"}
    assert config_from_tree(migrated("config", {**tree, "schema": 3}, "config.json")) == Config()
    for schema in (3, 5):
        for kind in ("none", "bf16"):
            tree = to_dict(Config())
            tree["machine"]["gradient_compression"] = kind
            assert config_from_tree(migrated("config", {**tree, "schema": schema}, "config.json")) == Config()


def test_a_setting_that_is_gone_is_an_error_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'machine.gradient_compression'\. It was removed in 0\.4\.0.*Omit it"):
        override_from_text(Config(), "machine.gradient_compression=bf16")
    path = tmp_path / "mine.toml"
    path.write_text('[machine]\ngradient_compression = "none"\n')
    with pytest.raises(ConfigError, match=r"mine\.toml: .*It was removed in 0\.4\.0"):
        load_file(path)
