"""Rules between settings: what contradicts, or does nothing, is refused with the reason."""

import pytest

from vernier import recipes
from vernier.config import Config, override_from_text, refuse_training_settings
from vernier.config.checks import check_config
from vernier.errors import ConfigError
from vernier.models import info
from vernier.tasks import task_of

DETECTOR, CLASSIFIER = "ssd-shapes-quick", "shapes-quick"
MUON = ["optim.name=muon", "optim.nesterov=false", "optim.bias_lr=1", "optim.head_lr=1"]


def _check(recipe: str, *settings: str) -> None:
    config = Config(recipe=recipes.get(recipe))
    for setting in settings:
        config = override_from_text(config, setting)
    check_config(config, detector=info(config.recipe.model.name).ssd is not None)


@pytest.mark.parametrize("name", recipes.BUILT_IN)
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
    with pytest.raises(ConfigError, match=rf"{setting.split('=')[0]} = .* has no effect on ssd-small, a detector: .+"):
        _check(DETECTOR, setting)


@pytest.mark.parametrize(
    "setting", ["data.std=[0, 1, 1]", "data.std=[-1, 1, 1]", "data.std=[nan, 1, 1]", "data.mean=[inf, 0, 0]"]
)
def test_a_normalisation_that_makes_no_finite_pixels_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"data\.(std|mean) = \[.*must be (above 0|finite)"):
        _check(CLASSIFIER, setting)


@pytest.mark.parametrize(
    "setting",
    ["detect.min_score=0.1", "detect.max_detections=5", "eval.target_ap=0.2", "model.box_sizes=[0.1, 0.2, 0.3]"],
)
def test_a_setting_without_effect_on_a_classifier_is_refused_with_the_reason(setting: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"{setting.split('=')[0]} = .* has no effect on resnet8-small, a classifier"
    ):
        _check(CLASSIFIER, setting)


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        (CLASSIFIER, ["schedule.warmup_epochs=100"], "longer than the training .* schedule.warmup_epochs="),
        (CLASSIFIER, ["schedule.kind=list", "schedule.shares=[1.0]"], "one share more than milestones"),
        (CLASSIFIER, ["augment.start_px=128"], "images grow during training"),
        (CLASSIFIER, ["augment.ramp_epochs=[3, 1]"], "must not end before it begins"),
        (CLASSIFIER, ["augment.phase_epochs=[3]"], "need the first image side"),
        (CLASSIFIER, ["augment.start_px=16", "augment.phase_px=[24]", "augment.phase_epochs=[3]"], "need 2 epochs"),
        (CLASSIFIER, ["augment.start_px=16", "augment.phase_epochs=[3]", "augment.ramp_epochs=[0, 1]"], "in phases or"),
        (CLASSIFIER, ["augment.start_px=16", "augment.phase_px=[24]", "augment.phase_epochs=[3, 1]"], "must rise"),
        (CLASSIFIER, ["loss.bce_threshold=0.5"], "for loss.kind = bce"),
        (CLASSIFIER, ["optim.name=lars", "optim.nesterov=true"], "for optim.name = sgd"),
        (CLASSIFIER, [*MUON, "optim.nesterov=true"], "for optim.name = sgd"),
        (CLASSIFIER, [*MUON, "optim.bias_lr=none"], "three learning rates"),
        (CLASSIFIER, ["optim.head_lr=1"], "optim.head_lr is for optim.name = muon, and this is sgd"),
        (CLASSIFIER, [*MUON, "optim.layer_decay=0.5"], "learning rates of its own"),
        (DETECTOR, MUON, "a detector's last ones must grow"),
        (CLASSIFIER, ["augment.flip_rule=alternate", "augment.flip=0.3"], "mirrors half of the images"),
        (DETECTOR, ["augment.flip_rule=alternate"], "is for classifiers"),
        (CLASSIFIER, ["augment.crop=none", "augment.border=reflect"], "is for augment.crop = pad, not none"),
        (CLASSIFIER, ["model.reset_head=true"], "needs a weights file"),
        (CLASSIFIER, ["data.eval_short_side_px=32"], "nothing to crop from"),
        (CLASSIFIER, ["augment.crop=ssd"], "is for detectors"),
        (CLASSIFIER, ["machine.backend=dali-cpu", "augment.crop=pad"], "needs augment.crop = random-resized"),
        (CLASSIFIER, ["machine.backend=dali-cpu", "augment.crop=random-resized", "augment.erase=0.5"], "nothing else"),
        (DETECTOR, ["data.eval_px=64"], "one image size"),
        (DETECTOR, ["augment.crop=pad"], "ignores boxes"),
        (DETECTOR, ["machine.backend=dali-cpu"], "reads for classifiers"),
        (DETECTOR, ["augment.jitter=tf", "data.mean=[0.5]"], "images in colour"),
    ],
)
def test_settings_that_contradict_each_other_say_what_to_change(recipe: str, settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _check(recipe, *settings)


def test_layer_wise_rates_are_for_detectors_too() -> None:
    _check(DETECTOR, "optim.layer_decay=0.7")


def test_making_a_task_checks_its_recipe() -> None:
    recipe = override_from_text(Config(recipe=recipes.get(DETECTOR)), "loss.label_smoothing=0.1").recipe
    with pytest.raises(ConfigError, match="has no effect"):
        task_of(recipe)


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        (CLASSIFIER, ("data.epoch_images=100", "augment.repeats=2"), "both say how often an image comes in an epoch"),
        (CLASSIFIER, ("model.checkpoint=a.pth.tar", "model.weights=b.pth"), "has weights of its own"),
        (CLASSIFIER, ("machine.workers=0", "machine.backend=dali-cpu"), "has threads of its own"),
        (DETECTOR, ("limits.train_accuracy=true",), "top-1 counts images with one class each"),
        (DETECTOR, ("model.checkpoint=a.pth.tar",), "only checkpoints of classifiers are read"),
    ],
)
def test_what_belongs_to_other_systems_is_checked_too(recipe: str, settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _check(recipe, *settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("virtual_shards=4",), "has no effect with machine.reduction = ddp"),
        (("machine.reduction=exact", "machine.mode=compile"), "a resumed run would differ. Use --mode eager"),
        (("machine.reduction=exact", "machine.mode=trace"), "does not work with --mode trace"),
        (
            ("machine.reduction=exact", "machine.backend=dali-gpu", "augment.crop=random-resized"),
            "Use machine.backend=native or dali-cpu",
        ),
        (("machine.reduction=exact", "machine.batch_norm_statistics=first"), "all processes have the same statistics"),
    ],
)
def test_what_would_break_exact_reduction_is_refused(settings: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _check(CLASSIFIER, *settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("machine.precision=bf16",), "needs --precision fp32, not bf16"),
        (("machine.channels_last=false",), "needs machine.channels_last=true"),
        (("machine.reduction=exact",), "needs machine.reduction=ddp: exact has convolutions of its own"),
    ],
)
def test_winograd_is_refused_where_it_would_not_be_used(settings: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=f"machine.convolution = winograd {words}"):
        _check(CLASSIFIER, "machine.convolution=winograd", *settings)


@pytest.mark.parametrize("recipe", [CLASSIFIER, DETECTOR])
def test_exact_reduction_suits_classifiers_and_detectors(recipe: str) -> None:
    _check(recipe, "machine.reduction=exact", "virtual_shards=4")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("machine.powersgd_rank=4",), "powersgd_rank = 4 has no effect with machine.gradient_compression = none"),
        (("machine.gradient_compression=bf16", "machine.powersgd_start=9"), "powersgd_start = 9 has no effect"),
        (("machine.gradient_compression=bf16", "machine.reduction=exact"), "does not work with machine.reduction"),
        (("machine.gradient_compression=powersgd", "machine.precision=fp16"), "Use --precision bf16"),
        (("machine.gradient_compression=powersgd", "limits.on_divergence=rollback"), "also infinite ones"),
    ],
)
def test_compressed_gradients_that_break_a_promise_are_refused(settings: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _check(CLASSIFIER, *settings)


@pytest.mark.parametrize("kind", ["bf16", "powersgd"])
def test_compressed_gradients_suit_classifiers_and_detectors(kind: str) -> None:
    for recipe in (CLASSIFIER, DETECTOR):
        _check(recipe, f"machine.gradient_compression={kind}")


def test_settings_of_training_are_refused_in_inference() -> None:
    refuse_training_settings(["machine.threads=2", "eval.flip_tta=true"])
    for name in ("machine.backend", "machine.convolution", "machine.activation_checkpointing"):
        with pytest.raises(ConfigError, match=f"{name} has no effect here"):
            refuse_training_settings(["machine.threads=2", f"{name}=x"])
