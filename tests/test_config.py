import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vernier import recipes
from vernier.config import (
    Config,
    Machine,
    Optim,
    Recipe,
    Schedule,
    derive,
    differences,
    digest,
    from_dict,
    load_file,
    override,
    override_from_text,
    to_dict,
    to_toml,
)
from vernier.errors import ConfigError


@pytest.mark.parametrize("name", recipes.BUILT_IN)
def test_a_recipe_survives_toml_and_json(name: str, tmp_path: Path) -> None:
    recipe = recipes.named(name)
    mine = tmp_path / "mine.toml"
    mine.write_text(to_toml(recipe))
    assert load_file(mine, Config()).recipe == recipe
    assert from_dict(Recipe, json.loads(json.dumps(to_dict(recipe)))) == recipe


def test_a_partial_toml_keeps_the_defaults_of_the_rest(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('name = "mine"\n[optim]\nlr = 1\n[machine]\nworkers = 7\n[checkpoint]\nevery_steps = 5\n')
    config = load_file(mine, Config())
    assert (config.recipe.name, config.recipe.optim.lr, config.machine.workers, config.checkpoint.every_steps) == (
        "mine",
        1.0,
        7,
        5,
    )
    assert config.recipe.optim.momentum == Optim().momentum


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
        ("optim.lrr=0.5", "Did you mean lr"),
        ("optm.lr=0.5", "Did you mean optim"),
        ("optim=3", "group of settings"),
        ("optim.lr", "NAME=VALUE"),
        ("=3", "NAME=VALUE"),
        ("optim.lr=fast", "must be a number"),
        ("optim.lr=-1", "above 0"),
        ("optim.lr=nan", "not a finite number"),
        ("optim.lr=true", "must be a number"),
        ("global_batch=0", "1 or more"),
        ("global_batch=1.5", "whole number"),
        ("schedule.kind=cosin", "cosine, step"),
        ("augment.area=[0.1]", "list of 2"),
        ("augment.flip=2", "1 or less"),
        ("machine.workers=0", "1 or more"),
        ("optim.lr.x=1", "Unknown setting"),
    ],
)
def test_a_wrong_setting_says_what_would_work(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        override_from_text(Config(), assignment)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        load_file(tmp_path / "nowhere.toml", Config())
    broken = tmp_path / "broken.toml"
    broken.write_text("a = [")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_file(broken, Config())
    unknown = tmp_path / "unknown.toml"
    unknown.write_text("[optim]\nlearning_rate = 1\n")
    with pytest.raises(ConfigError, match=r"unknown\.toml: Unknown setting 'optim.learning_rate'"):
        load_file(unknown, Config())


def _config(
    *, global_batch: int, procs: int = 1, accumulation: int = 1, process_batch: int | None = None, **optim: object
) -> Config:
    return Config(
        recipe=Recipe(global_batch=global_batch, optim=Optim(**optim), schedule=Schedule(epochs=2.5)),  # type: ignore[arg-type]
        machine=Machine(procs=procs, accumulation=accumulation, process_batch=process_batch),
    )


@given(procs=st.integers(1, 16), accumulation=st.integers(1, 8), per=st.integers(1, 64), samples=st.integers(1, 10_000))
def test_derived_values_multiply_back(procs: int, accumulation: int, per: int, samples: int) -> None:
    total = procs * accumulation * per
    config = _config(global_batch=total, procs=procs, accumulation=accumulation)
    if samples < total:
        with pytest.raises(ConfigError, match="more than the"):
            derive(config, train_samples=samples)
        return
    derived = derive(config, train_samples=samples)
    assert derived.process_batch * derived.accumulation * derived.world == total
    assert derived.steps_per_epoch * total <= samples < (derived.steps_per_epoch + 1) * total
    assert (
        derive(_config(global_batch=total, procs=procs, process_batch=per), train_samples=samples).accumulation
        == accumulation
    )


def test_a_batch_that_does_not_divide_says_what_does() -> None:
    with pytest.raises(ConfigError, match=r"does not divide by 3 process\(es\) x 2 .* Use --global-batch 96 or 102"):
        derive(_config(global_batch=100, procs=3, accumulation=2), train_samples=1000)
    with pytest.raises(ConfigError, match="60 does not divide it"):
        derive(_config(global_batch=100, procs=3, process_batch=20), train_samples=1000)
    with pytest.raises(ConfigError, match="contradicts"):
        derive(_config(global_batch=120, procs=3, process_batch=20, accumulation=4), train_samples=1000)


def test_learning_rate_scales_with_the_batch_only_when_asked() -> None:
    assert derive(_config(global_batch=512, lr=0.256, lr_batch=256), train_samples=1000).lr == pytest.approx(0.512)
    assert derive(_config(global_batch=512, lr=0.256), train_samples=1000).lr == 0.256


def test_warmup_longer_than_training_is_refused() -> None:
    config = override(Config(), "schedule.warmup_epochs", 100)
    with pytest.raises(ConfigError, match="longer than the training"):
        derive(config, train_samples=1000)


def test_digest_and_differences_see_every_change() -> None:
    a, b = Config(), override(Config(), "optim.lr", 0.7)
    assert digest(a.recipe) != digest(b.recipe)
    assert differences(a, b) == {"recipe.optim.lr": (0.1, 0.7)}
    assert digest(a) == digest(from_dict(Config, to_dict(a)))
