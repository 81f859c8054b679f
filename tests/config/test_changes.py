"""What follows when a person changes a configuration."""

import pytest

from vernier import recipes
from vernier.config import Changed, Config, apply_changes, check_batch_rule, derive
from vernier.errors import ConfigError
from vernier.optim.schedules import learning_rate
from vernier.references import references


def changed(recipe: str, *settings: str, **flags: object) -> Changed:
    return apply_changes(
        Config(recipe=recipes.get(recipe)), {k.replace("__", "."): v for k, v in flags.items()}, settings
    )


@pytest.mark.parametrize("name", sorted(recipes.names()))
def test_a_shorter_training_has_the_same_curve(name: str) -> None:
    config = Config(recipe=recipes.get(name))
    short = changed(name, schedule__epochs=config.recipe.schedule.epochs / 2).config
    shares = []
    for each in (config, short):
        derived = derive(each, train_samples=200_000)
        steps = [round(share * (derived.total_steps - 1)) for share in (0.2, 0.4, 0.6, 0.8, 0.97)]
        peak = max(learning_rate(step, each.recipe.schedule, derived) for step in range(0, derived.total_steps, 7))
        shares.append([learning_rate(step, each.recipe.schedule, derived) / peak for step in steps])
    assert shares[1] == pytest.approx(shares[0], abs=0.12)


def test_epochs_scale_what_is_counted_in_epochs_and_say_so() -> None:
    half = changed("ffcv-resnet50-16e", schedule__epochs=8.0)
    whole = recipes.get("ffcv-resnet50-16e")
    assert half.config.recipe.augment.ramp_epochs == tuple(e / 2 for e in whole.augment.ramp_epochs)
    assert half.config.recipe.schedule.warmup_epochs == whole.schedule.warmup_epochs / 2
    assert [(each.name, each.value) for each in references(half.notes[0])] == [("schedule.epochs", 8.0)]
    assert "image size grows" in half.notes[0]


def test_setting_the_epochs_changes_the_length_alone() -> None:
    alone = changed("cifar10", "schedule.epochs=20")
    assert alone.config.recipe.schedule.milestones == (82.0, 123.0)
    assert alone.notes == ()


def test_settings_win_over_what_a_flag_scales() -> None:
    both = changed("cifar10", "schedule.milestones=[5, 9]", schedule__epochs=20.0)
    assert both.config.recipe.schedule.milestones == (5.0, 9.0)


def test_the_rate_of_the_flag_is_the_rate_that_is_used() -> None:
    config = changed("torchvision-resnet50-v1", optim__lr=0.005, global_batch=32).config
    assert derive(config, train_samples=1000).lr == 0.005


def test_the_final_rate_keeps_its_value_with_a_peak_rate() -> None:
    before = Config(recipe=recipes.get("habana-resnet50-lars"))
    after = changed("habana-resnet50-lars", optim__lr=4.5).config
    assert derive(after, train_samples=10_000).end_lr == derive(before, train_samples=10_000).end_lr


@pytest.mark.parametrize(
    ("recipe", "px", "expected"),
    [
        ("shapes-quick", 128, (128, 146)),
        ("torchvision-resnet50-v1", 32, (32, 32)),
        ("torchvision-resnet50-v2", 88, (112, 116)),
        ("ffcv-resnet50-16e", 96, (128, 146)),
    ],
)
def test_the_evaluation_follows_the_image_size(recipe: str, px: int, expected: tuple[int, int]) -> None:
    result = changed(recipe, f"data.image_px={px}")
    data = result.config.recipe.data
    assert (data.eval_px, data.eval_short_side_px) == expected
    assert [(each.name, each.value) for each in references(result.notes[0])] == [("data.image_px", px)]


def test_an_evaluation_size_that_was_set_stays() -> None:
    for order in (("data.eval_px=96", "data.image_px=128"), ("data.image_px=128", "data.eval_px=96")):
        assert changed("shapes-quick", *order).config.recipe.data.eval_px == 96


def test_optimisers_without_a_rule_for_another_batch_need_a_rate() -> None:
    base = recipes.get("habana-resnet50-lars")
    other = changed("habana-resnet50-lars", global_batch=256)
    with pytest.raises(ConfigError) as refused:
        check_batch_rule(other.config.recipe, base, other.named)
    assert (refused.value.given, refused.value.works) == (
        {"global_batch": 256},
        [("optim.lr", pytest.approx(3.18, abs=0.01)), ("optim.lr", pytest.approx(1.12, abs=0.01))],
    )
    for more in ({"optim__lr": 2.0}, {}):
        settings = () if more else ("optim.lr=2",)
        given = changed("habana-resnet50-lars", *settings, global_batch=256, **more)
        check_batch_rule(given.config.recipe, base, given.named)


def test_a_scaled_rate_needs_no_more() -> None:
    other = changed("nvidia-resnet50-90e", global_batch=256)
    check_batch_rule(other.config.recipe, recipes.get("nvidia-resnet50-90e"), other.named)


def test_a_bad_value_is_named_by_its_setting() -> None:
    with pytest.raises(ConfigError) as refused:
        changed("shapes-quick", schedule__epochs=0.0)
    assert refused.value.given == {"schedule.epochs": 0.0}
