"""Rules between settings: what contradicts, or does nothing, is refused with the reason."""

import pytest

from tests.refusals import names_given, what_works
from vernier import recipes
from vernier.config import Config, override_from_text, refuse_training_settings
from vernier.config.checks import _check_time_limit, check_config
from vernier.errors import ConfigError
from vernier.models import info
from vernier.tasks import task_of

DETECTOR, CLASSIFIER = "ssd-shapes-quick", "shapes-quick"
MUON = ["optim.name=muon", "optim.nesterov=false", "optim.bias_lr=1", "optim.head_lr=1"]


def _check(recipe: str, *settings: str) -> None:
    config = Config(recipe=recipes.get(recipe))
    config = override_from_text(config, *settings)
    check_config(config, detector=info(config.recipe.model.name).detector)


@pytest.mark.parametrize("name", recipes.names())
def test_every_built_in_recipe_follows_the_rules(name: str) -> None:
    _check(name)


@pytest.mark.parametrize(
    "setting",
    [
        "loss.label_smoothing=0.1",
        "loss.kind=bce",
        "model.unused_outputs=1",
        "data.scaled_decode=true",
        "data.eval_short_side_px=300",
        "eval.target_top1=75",
        "eval.flip_tta=true",
        "augment.policy=rand",
        "augment.mixup=0.2",
    ],
)
def test_a_setting_without_effect_on_a_detector_is_refused_with_the_reason(setting: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _check(DETECTOR, setting)
    assert names_given(refused.value) == setting.partition("=")[0]


@pytest.mark.parametrize(
    "setting", ["data.std=[0, 1, 1]", "data.std=[-1, 1, 1]", "data.std=[nan, 1, 1]", "data.mean=[inf, 0, 0]"]
)
def test_a_normalisation_that_makes_no_finite_pixels_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _check(CLASSIFIER, setting)
    assert names_given(refused.value) == setting.partition("=")[0]


@pytest.mark.parametrize(
    "setting",
    ["detect.min_score=0.1", "detect.max_detections=5", "eval.target_ap=0.2", "model.box_sizes=[0.1, 0.2, 0.3]"],
)
def test_a_setting_without_effect_on_a_classifier_is_refused_with_the_reason(setting: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _check(CLASSIFIER, setting)
    assert names_given(refused.value) == setting.partition("=")[0]


@pytest.mark.parametrize(
    ("recipe", "settings", "given", "works"),
    [
        (
            CLASSIFIER,
            ["schedule.warmup_epochs=100"],
            "schedule.epochs schedule.warmup_epochs",
            "schedule.warmup_epochs=0.6",
        ),
        (
            CLASSIFIER,
            ["schedule.kind=list", "schedule.shares=[1.0]"],
            "schedule.kind schedule.milestones schedule.shares",
            "",
        ),
        (CLASSIFIER, ["augment.start_px=128"], "augment.start_px data.image_px", "augment.start_px"),
        (CLASSIFIER, ["augment.ramp_epochs=[3, 1]"], "augment.ramp_epochs", ""),
        (CLASSIFIER, ["augment.phase_epochs=[3]"], "augment.phase_epochs augment.phase_px", "augment.start_px=128"),
        (
            CLASSIFIER,
            ["augment.start_px=16", "augment.phase_px=[24]", "augment.phase_epochs=[3]"],
            "augment.phase_epochs",
            "",
        ),
        (
            CLASSIFIER,
            ["augment.start_px=16", "augment.phase_epochs=[3]", "augment.ramp_epochs=[0, 1]"],
            "augment.phase_epochs augment.ramp_epochs",
            "",
        ),
        (
            CLASSIFIER,
            ["augment.start_px=16", "augment.phase_px=[24]", "augment.phase_epochs=[3, 1]"],
            "augment.phase_epochs",
            "",
        ),
        (CLASSIFIER, ["loss.bce_threshold=0.5"], "loss.bce_threshold loss.kind", "loss.kind=bce loss.bce_threshold"),
        (
            CLASSIFIER,
            ["optim.name=lars", "optim.nesterov=true"],
            "optim.name optim.nesterov",
            "optim.nesterov=false optim.name=sgd",
        ),
        (
            CLASSIFIER,
            [*MUON, "optim.nesterov=true"],
            "optim.name optim.nesterov",
            "optim.nesterov=false optim.name=sgd",
        ),
        (CLASSIFIER, [*MUON, "optim.bias_lr=none"], "optim.name", "optim.bias_lr=100 optim.head_lr=0.02"),
        (CLASSIFIER, ["optim.head_lr=1"], "optim.head_lr optim.name", "optim.head_lr optim.name=muon"),
        (
            CLASSIFIER,
            [*MUON, "optim.layer_decay=0.5"],
            "optim.backbone_lr_share optim.layer_decay optim.name",
            "optim.name=sgd",
        ),
        (DETECTOR, MUON, "optim.name", "optim.name=sgd"),
        (CLASSIFIER, ["optim.name=adam"], "optim.name", ""),
        (
            CLASSIFIER,
            ["augment.flip_rule=alternate", "augment.flip=0.3"],
            "augment.flip augment.flip_rule",
            "augment.flip_rule=random",
        ),
        (DETECTOR, ["augment.flip_rule=alternate"], "augment.flip_rule", "augment.flip_rule=random"),
        (
            CLASSIFIER,
            ["augment.crop=none", "augment.border=reflect"],
            "augment.border augment.crop",
            "augment.crop=pad",
        ),
        (CLASSIFIER, ["model.reset_head=true"], "model.reset_head", "model.weights=FILE"),
        (CLASSIFIER, ["data.eval_short_side_px=32"], "data.eval_px data.eval_short_side_px", ""),
        (
            CLASSIFIER,
            ["augment.crop=ssd"],
            "augment.crop",
            "augment.crop=random-resized augment.crop=pad augment.crop=none",
        ),
        (
            CLASSIFIER,
            ["machine.backend=dali-cpu", "augment.crop=pad"],
            "augment.crop machine.backend",
            "augment.crop=random-resized machine.backend=native",
        ),
        (
            CLASSIFIER,
            ["machine.backend=dali-cpu", "augment.crop=random-resized", "augment.erase=0.5"],
            "machine.backend",
            "machine.backend=native",
        ),
        (DETECTOR, ["data.eval_px=64"], "data.eval_px data.image_px", ""),
        (DETECTOR, ["augment.crop=pad"], "augment.crop", "augment.crop=ssd augment.crop=ssd-tf augment.crop=none"),
        (DETECTOR, ["machine.backend=dali-cpu"], "machine.backend", "machine.backend=native"),
        (DETECTOR, ["augment.jitter=tf", "data.mean=[0.5]"], "augment.jitter", "augment.jitter=none"),
    ],
)
def test_settings_that_contradict_each_other_say_what_to_change(
    recipe: str, settings: list[str], given: str, works: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        _check(recipe, *settings)
    assert (names_given(refused.value), what_works(refused.value)) == (given, works)


def test_layer_wise_rates_are_for_detectors_too() -> None:
    _check(DETECTOR, "optim.layer_decay=0.7")


def test_making_a_task_checks_its_recipe() -> None:
    recipe = override_from_text(Config(recipe=recipes.get(DETECTOR)), "loss.label_smoothing=0.1").recipe
    with pytest.raises(ConfigError) as refused:
        task_of(recipe)
    assert refused.value.given == {"loss.label_smoothing": 0.1}


@pytest.mark.parametrize(
    ("recipe", "settings", "given", "works"),
    [
        (CLASSIFIER, ["data.epoch_images=100", "augment.repeats=2"], "augment.repeats data.epoch_images", ""),
        (
            CLASSIFIER,
            ["model.checkpoint=a.pth.tar", "model.weights=b.pth"],
            "model.backbone_weights model.checkpoint model.weights",
            "",
        ),
        (
            CLASSIFIER,
            ["machine.compile=max-autotune"],
            "machine.compile machine.mode",
            "machine.mode=compile",
        ),
        (
            CLASSIFIER,
            ["machine.workers=0", "machine.backend=dali-cpu"],
            "machine.backend machine.workers",
            "machine.workers=1",
        ),
        (DETECTOR, ["limits.train_accuracy=true"], "limits.train_accuracy", ""),
        (DETECTOR, ["model.checkpoint=a.pth.tar"], "model.checkpoint", "model.weights"),
    ],
)
def test_what_belongs_to_other_systems_is_checked_too(recipe: str, settings: list[str], given: str, works: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _check(recipe, *settings)
    assert (names_given(refused.value), what_works(refused.value)) == (given, works)


@pytest.mark.parametrize(
    ("settings", "given", "works"),
    [
        (["virtual_shards=4"], "machine.reduction virtual_shards", "machine.reduction=exact"),
        (
            ["machine.reduction=exact", "machine.mode=compile"],
            "machine.mode machine.reduction",
            "machine.mode=eager machine.reduction=ddp",
        ),
        (
            ["machine.reduction=exact", "machine.mode=trace"],
            "machine.mode machine.reduction",
            "machine.mode=eager machine.reduction=ddp",
        ),
        (
            ["machine.reduction=exact", "machine.backend=dali-gpu", "augment.crop=random-resized"],
            "machine.backend machine.reduction",
            "machine.backend=native machine.backend=dali-cpu",
        ),
        (
            ["machine.reduction=exact", "machine.batch_norm_statistics=first"],
            "machine.batch_norm_statistics machine.reduction",
            "",
        ),
    ],
)
def test_what_would_break_exact_reduction_is_refused(settings: list[str], given: str, works: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _check(CLASSIFIER, *settings)
    assert (names_given(refused.value), what_works(refused.value)) == (given, works)


@pytest.mark.parametrize(
    ("settings", "given", "works"),
    [
        (
            ["machine.precision=bf16"],
            "machine.convolution machine.precision",
            "machine.precision=fp32 machine.convolution=torch",
        ),
        (
            ["machine.channels_last=false"],
            "machine.channels_last machine.convolution",
            "machine.channels_last=true machine.convolution=torch",
        ),
        (
            ["machine.reduction=exact"],
            "machine.convolution machine.reduction",
            "machine.reduction=ddp machine.convolution=torch",
        ),
    ],
)
def test_winograd_is_refused_where_it_would_not_be_used(settings: list[str], given: str, works: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _check(CLASSIFIER, "machine.convolution=winograd", *settings)
    assert (names_given(refused.value), what_works(refused.value)) == (given, works)


@pytest.mark.parametrize("recipe", [CLASSIFIER, DETECTOR])
def test_exact_reduction_suits_classifiers_and_detectors(recipe: str) -> None:
    _check(recipe, "machine.reduction=exact", "virtual_shards=4")


def test_settings_of_training_are_refused_in_inference() -> None:
    refuse_training_settings(["machine.threads=2", "eval.flip_tta=true"])
    for name in ("machine.backend", "machine.convolution", "machine.activation_checkpointing"):
        for value in ("x", '"x"'):  # as typed, and as a call of Python has it
            with pytest.raises(ConfigError) as refused:
                refuse_training_settings(["machine.threads=2", f"{name}={value}"])
            assert refused.value.given == {name: "x"}


def test_a_time_limit_may_be_absent_or_that_of_the_job() -> None:
    _check_time_limit(None)
    _check_time_limit("auto")
    _check_time_limit("90s")
    for wrong in ("fast", "0s"):
        with pytest.raises(ConfigError) as refused:
            _check_time_limit(wrong)
        assert refused.value.given == {"limits.max_time": wrong}
