"""Rules between settings: what no single field can see. One place, so that every command refuses the same things.

A setting that has no effect on the task of the recipe is refused with the reason, instead of being ignored. Ranges of
single fields are in `config.settings`; what depends on the data or on the device is checked where those are known.
"""

import math
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any

from vernier.errors import ConfigError
from vernier.own_code import is_own
from vernier.plugins import describe_failures, plugin_names
from vernier.quantities import parse_duration
from vernier.references import given, use
from vernier.wording import plural

from .parsing import check_plugins, parse_value
from .settings import (
    BUILT_IN_LOSSES,
    DECODERS,
    LOADERS,
    OPTIMIZERS,
    Config,
    Data,
    Machine,
    Optim,
    Recipe,
    optimizers,
    short_side_of,
)

UNTIL_JOB_ENDS = "auto"
"""Value of limits.max_time: until the Slurm job ends."""
_BOX_CROPS = ("ssd", "ssd-tf", "ssd-tf-tall")
_WITHOUT_EFFECT_ON_DETECTORS = {
    "loss": "the loss of a detector is SSD's and has no settings there",
    "model.unused_outputs": "a detector's outputs are its classes and the background",
    "data.scaled_decode": "a detector's images are always decoded whole",
    "eval.target_top1": f"a detector is measured by AP: use {use('eval.target_ap')}",
    "eval.metrics": "detectors are measured by COCO's metrics",
    "eval.best": "detectors are compared by AP",
    "eval.flip_tta": "it adds the class scores of the mirrored image",
    "model.checkpoint": f"only checkpoints of classifiers are read: use {use('model.weights')}",
    "augment.policy": f"it changes where objects are: use {use('augment.jitter')} for colors",
    "augment.erase": f"it removes objects: use {use('augment.crop')} and {use('augment.jitter')}",
    "augment.mixup": "it mixes images with one class each",
    "augment.cutmix": "it mixes images with one class each",
    "augment.start_px": "a detector's default boxes belong to one image size",
    "augment.phase_epochs": "a detector's default boxes belong to one image size",
}
_WITHOUT_EFFECT_ON_CLASSIFIERS = {
    "detect": "it matches and filters boxes",
    "eval.target_ap": f"a classifier is measured by top-1: use {use('eval.target_top1')}",
    "model.box_sizes": "a classifier has no default boxes",
    "model.backbone_weights": f"it is for the backbone of a detector: use {use('model.weights')}",
    "augment.jitter": f"it is for detectors: use {use('augment.policy')}",
    "augment.crop_trials": f"it is for {use('augment.crop', 'ssd')}",
}


def check_recipe(recipe: Recipe, *, detector: bool) -> None:
    """Refuse settings that contradict each other, or that do nothing for this task. Raises ConfigError."""
    _check_effect(recipe, _WITHOUT_EFFECT_ON_DETECTORS if detector else _WITHOUT_EFFECT_ON_CLASSIFIERS, detector)
    _check_schedule(recipe)
    _check_sizes(recipe, detector)
    _check_crop(recipe, detector)
    _check_normalisation(recipe.data)
    if recipe.data.epoch_images is not None and recipe.augment.repeats > 1:
        raise ConfigError(
            f"{given('data.epoch_images', recipe.data.epoch_images)} and "
            f"{given('augment.repeats', recipe.augment.repeats)} both define how often an image is used in an epoch. "
            "Omit one of them."
        )
    if recipe.loss.bce_threshold is not None and recipe.loss.kind != "bce":
        raise ConfigError(
            f"{given('loss.bce_threshold', recipe.loss.bce_threshold)} is for {use('loss.kind', 'bce')}, and this is "
            f"{given('loss.kind', recipe.loss.kind)}. Change that, or use {use('loss.bce_threshold', None)}."
        )
    if recipe.loss.kind not in BUILT_IN_LOSSES:
        _check_effect(recipe, {"loss.label_smoothing": "your own loss gets class numbers"}, detector)
    recipe.optim.check(detector=detector)
    if recipe.model.checkpoint and (recipe.model.weights or recipe.model.backbone_weights):
        raise ConfigError(
            f"{given('model.checkpoint', recipe.model.checkpoint)} has weights of its own. Omit "
            f"{given('model.weights')} and {given('model.backbone_weights')}."
        )
    if recipe.model.reset_head and not recipe.model.weights:
        raise ConfigError(
            f"{given('model.reset_head', True)} needs a weights file whose head is not loaded. Give "
            f"{use('model.weights', slot='FILE')} as well, or omit it."
        )


def check_optimizer(optim: Optim) -> None:
    """Refuse to train with an optimizer that is not installed; models trained with it can still be used."""
    if optim.name not in (names := optimizers()) and not is_own(optim.name):
        why = describe_failures(OPTIMIZERS)
        raise ConfigError(f"{given('optim.name', optim.name)} is not one of: {', '.join(names)}.{why}")


CROPS_OF_WHOLE_IMAGES = ("none", "pad")
"""Values of augment.crop with which all pixels of an image are used."""


def check_loader(machine: Machine, recipe: Recipe, *, detector: bool) -> None:
    """Refuse a loader that does not support the augmentation of the recipe. Raises ConfigError."""
    # The native loader does everything that a recipe can contain.
    if machine.backend in ("auto", "native"):
        return
    augment, data = recipe.augment, recipe.data
    backend, native = given("machine.backend", machine.backend), use("machine.backend", "native")
    if machine.backend in plugin_names(DECODERS):
        if augment.crop in CROPS_OF_WHOLE_IMAGES:
            raise ConfigError(
                f"{backend} decodes crops of JPEGs, and {given('augment.crop', augment.crop)} needs whole images. Use "
                f"{native}."
            )
        return
    if machine.workers == 0:
        raise ConfigError(
            f"{backend} has threads of its own, and {given('machine.workers', 0)} allows none. Use "
            f"{use('machine.workers', 1)} or more."
        )
    if detector:
        raise ConfigError(f"{backend} loads images for classifiers. Use {native} for a detector.")
    if augment.crop != "random-resized":
        raise ConfigError(
            f"{backend} needs {use('augment.crop', 'random-resized')}, and this is "
            f"{given('augment.crop', augment.crop)}. Change that, or use {native}."
        )
    more = augment.policy != "none" or augment.erase > 0 or augment.start_px is not None or augment.extra
    if more or data.interpolation != "bilinear" or data.scaled_decode:
        raise ConfigError(
            f"{backend} crops, resizes (bilinear) and flips, nothing else; this recipe needs more. Use {native}."
        )


def check_config(config: Config, *, detector: bool) -> None:
    """All rules between the settings of a run. Raises ConfigError."""
    check_recipe(config.recipe, detector=detector)
    check_optimizer(config.recipe.optim)
    check_plugins(config)
    check_loader(config.machine, config.recipe, detector=detector)
    check_reduction(config)
    _check_time_limit(config.limits.max_time)
    for name in ("engine", "int8", "allow_lower_precision"):
        value = getattr(config.machine, name)
        if value != getattr(Machine(), name):
            raise ConfigError(
                f"{given(f'machine.{name}', value)} is for eval, predict and bench infer; PyTorch trains. Omit it."
            )
    traces, untraced = (
        given("machine.mode", "trace"),
        f"{use('machine.mode', 'eager')} or {use('machine.mode', 'compile')}",
    )
    if config.recipe.schedule.head_epochs and config.machine.mode == "trace":
        raise ConfigError(
            f"{traces} records one path through the model, and "
            f"{given('schedule.head_epochs', config.recipe.schedule.head_epochs)} needs two. Use {untraced}, or "
            f"{use('schedule.head_epochs', 0)}."
        )
    if config.machine.activation_checkpointing and config.machine.mode == "trace":
        raise ConfigError(
            f"{traces} keeps what it recorded for the backward pass, so "
            f"{given('machine.activation_checkpointing', True)} has no effect. Use {untraced}, or omit it."
        )
    if config.machine.mode != "compile" and config.machine.compile != "default":
        raise ConfigError(
            f"{given('machine.compile', config.machine.compile)} is a way to compile, and this is "
            f"{given('machine.mode', config.machine.mode)}. Use {use('machine.mode', 'compile')}, or omit it."
        )
    _check_convolution(config.machine)
    if detector and config.limits.train_accuracy:
        raise ConfigError(
            f"{given('limits.train_accuracy', True)} has no effect on {config.recipe.model.name}, a detector: top-1 "
            "counts images with one class each. Omit it."
        )


def _check_time_limit(text: str | None) -> None:
    if text is None or text == UNTIL_JOB_ENDS:
        return
    try:
        parse_duration(text, positive=True)
    except ConfigError as error:
        raise ConfigError(
            f"{given('limits.max_time', text)}: {error.message} `{UNTIL_JOB_ENDS}` is until the end of the Slurm job."
        ) from None


def _check_convolution(machine: Machine) -> None:
    """Refuse Winograd convolutions with settings that never use them. Whether a layer can use them is known later."""
    if machine.convolution != "winograd":
        return
    needs = {"machine.precision": "fp32", "machine.channels_last": True, "machine.reduction": "ddp"}
    for name, needed in needs.items():
        value = getattr(machine, name.removeprefix("machine."))
        if value != needed:
            raise ConfigError(
                f"{given('machine.convolution', 'winograd')} does not work with {given(name, value)}. Use "
                f"{use(name, needed)} or {use('machine.convolution', 'torch')}."
            )


_OF_TRAINING = ("machine.backend", "machine.convolution", "machine.activation_checkpointing")


def refuse_training_settings(assignments: Iterable[str]) -> None:
    """Refuse settings, given as NAME=VALUE, that change how a model is trained and nothing in inference."""
    for name, _, value in (assignment.partition("=") for assignment in assignments):
        if name.strip() in _OF_TRAINING:
            setting = given(name.strip(), parse_value(value.strip(), str))
            raise ConfigError(f"{setting} has no effect here: it is for training. Omit it.")


def check_reduction(config: Config) -> None:
    """Refuse what would make the weights of exact reduction depend on the processes, or would have no effect."""
    recipe, machine = config.recipe, config.machine
    if config.audit.spot_check and machine.reduction != "exact":
        raise ConfigError(
            f"{given('audit.spot_check', config.audit.spot_check)} computes virtual shards twice, and only "
            f"{use('machine.reduction', 'exact')} has those. Use it, or omit the setting."
        )
    if machine.reduction != "exact":
        if recipe.virtual_shards is not None:
            raise ConfigError(
                f"{given('virtual_shards', recipe.virtual_shards)} has no effect with "
                f"{given('machine.reduction', machine.reduction)}. Omit it, or use {use('machine.reduction', 'exact')}."
            )
        return
    exact = given("machine.reduction", "exact")
    if machine.mode != "eager":
        raise ConfigError(
            f"{exact} does not work with {given('machine.mode', machine.mode)}: its kernels depend on which image "
            f"sizes the process saw before, so a resumed run would differ. Use {use('machine.mode', 'eager')}, or "
            f"{use('machine.reduction', 'ddp')}."
        )
    if machine.backend in plugin_names(LOADERS) and machine.backend != "dali-cpu":
        raise ConfigError(
            f"{exact} does not work with {given('machine.backend', machine.backend)}: nobody has shown that its "
            f"decoder gives the same pixels each time. Use {use('machine.backend', 'native')} or "
            f"{use('machine.backend', 'dali-cpu')}."
        )
    if machine.batch_norm_statistics != "average":
        raise ConfigError(
            f"{given('machine.batch_norm_statistics', machine.batch_norm_statistics)} has no effect with {exact}: all "
            "processes have the same statistics, the mean over the virtual shards. Omit it."
        )


def _check_effect(recipe: Recipe, reasons: dict[str, str], detector: bool) -> None:
    for path, reason in reasons.items():
        setting = attrgetter(path)
        # Compared with the defaults: whether a person or a recipe set it is not known here.
        for name, value in _changed(setting(recipe), setting(Recipe()), path):
            raise ConfigError(
                f"{given(name, value)} has no effect on {recipe.model.name}, a "
                f"{'detector' if detector else 'classifier'}: {reason}. Omit {given(name)}."
            )


def _changed(value: Any, default: Any, path: str) -> list[tuple[str, Any]]:
    """The settings at or below `path` that are not at their default."""
    if is_dataclass(value):
        pairs = [(f"{path}.{f.name}", getattr(value, f.name), getattr(default, f.name)) for f in fields(value)]
        return [(name, mine) for name, mine, other in pairs if mine != other]
    return [(path, value)] if value != default else []


def _check_schedule(recipe: Recipe) -> None:
    schedule, augment = recipe.schedule, recipe.augment
    if schedule.warmup_epochs > schedule.epochs:
        raise ConfigError(
            f"{given('schedule.warmup_epochs', schedule.warmup_epochs)} is longer than the run "
            f"({given('schedule.epochs', schedule.epochs)}). Train for longer, or shorten the warm-up: "
            f"{use('schedule.warmup_epochs', schedule.epochs / 10)}."
        )
    if schedule.kind == "list" and len(schedule.shares) != len(schedule.milestones) + 1:
        raise ConfigError(
            f"{given('schedule.kind', 'list')} needs one share more than milestones, and there are "
            f"{given('schedule.shares', schedule.shares)} and {given('schedule.milestones', schedule.milestones)}. "
            "Change one of them."
        )
    if schedule.head_epochs >= schedule.epochs > 0 and schedule.head_epochs > 0:
        raise ConfigError(
            f"{given('schedule.head_epochs', schedule.head_epochs)} is the whole run "
            f"({given('schedule.epochs', schedule.epochs)}). To train the head alone: "
            f"{use('model.freeze', ['backbone'])}. To train all layers after it: fewer {use('schedule.head_epochs')}."
        )
    if augment.start_px is not None and augment.start_px > recipe.data.image_px:
        raise ConfigError(
            f"{given('augment.start_px', augment.start_px)} is larger than "
            f"{given('data.image_px', recipe.data.image_px)}: images grow during training. Swap them, or use "
            f"{use('augment.start_px', None)}."
        )
    if augment.ramp_epochs[0] > augment.ramp_epochs[1]:
        raise ConfigError(f"{given('augment.ramp_epochs', augment.ramp_epochs)} must not end before it begins.")
    _check_phases(recipe)


def _check_phases(recipe: Recipe) -> None:
    """Progressive resizing in phases: sizes and epochs that rise, one epoch per size after the first."""
    augment = recipe.augment
    epochs = augment.phase_epochs
    if not augment.phase_px and not epochs:
        return
    if augment.start_px is None:
        raise ConfigError(
            f"{given('augment.phase_px', augment.phase_px)} and {given('augment.phase_epochs', epochs)} need the first "
            f"image side: {use('augment.start_px', 128)}, for example."
        )
    sizes = (augment.start_px, *augment.phase_px, recipe.data.image_px)
    if any(augment.ramp_epochs):
        raise ConfigError(
            f"Images grow in phases or along a ramp: omit {given('augment.ramp_epochs', augment.ramp_epochs)} or "
            f"{given('augment.phase_epochs', epochs)}."
        )
    if len(epochs) != len(sizes) - 1:
        raise ConfigError(
            f"Image sides {', '.join(map(str, sizes))} (augment.start_px, augment.phase_px, data.image_px) need "
            f"{len(sizes) - 1} epochs at which the next one begins, not {given('augment.phase_epochs', epochs)}."
        )
    if list(epochs) != sorted(set(epochs)) or list(sizes) != sorted(set(sizes)):
        raise ConfigError(
            f"{given('augment.phase_epochs', epochs)} and the image sides {', '.join(map(str, sizes))} must rise."
        )


def _check_sizes(recipe: Recipe, detector: bool) -> None:
    data = recipe.data
    if detector and data.image_px != data.eval_px:
        raise ConfigError(
            f"{given('data.image_px', data.image_px)} and {given('data.eval_px', data.eval_px)}: a detector's default "
            "boxes belong to one image size. Set both to the same number."
        )
    if detector and data.eval_short_side_px != short_side_of(data.eval_px):
        raise ConfigError(
            f"{given('data.eval_short_side_px', data.eval_short_side_px)} has no effect on {recipe.model.name}, a "
            "detector: its images are resized to data.eval_px without a crop. Omit it."
        )
    if not detector and data.eval_short_side_px < data.eval_px:
        raise ConfigError(
            f"{given('data.eval_short_side_px', data.eval_short_side_px)} is smaller than "
            f"{given('data.eval_px', data.eval_px)}: there would be nothing to crop from. Raise the first or lower the "
            "second."
        )


def _check_crop(recipe: Recipe, detector: bool) -> None:
    augment = recipe.augment
    crop = given("augment.crop", augment.crop)
    if detector and augment.crop not in (*_BOX_CROPS, "none"):
        raise ConfigError(
            f"{crop} ignores boxes. For a detector use {_any_of('augment.crop', 'ssd', 'ssd-tf', 'none')}."
        )
    if not detector and augment.crop in _BOX_CROPS:
        raise ConfigError(
            f"{crop} is for detectors. For a classifier use {_any_of('augment.crop', 'random-resized', 'pad', 'none')}."
        )
    if augment.flip_rule == "alternate" and (detector or augment.flip != 0.5):
        problem = (
            "is for classifiers"
            if detector
            else f"mirrors half of the images, not {given('augment.flip', augment.flip)}"
        )
        raise ConfigError(
            f"{given('augment.flip_rule', 'alternate')} {problem}. Use {use('augment.flip_rule', 'random')}."
        )
    if augment.border != "zeros" and augment.crop != "pad":
        raise ConfigError(
            f"{given('augment.border', augment.border)} is for {use('augment.crop', 'pad')}, not {crop}. Omit it."
        )
    if detector and augment.jitter != "none" and len(recipe.data.mean) != 3:
        raise ConfigError(
            f"{given('augment.jitter', augment.jitter)} needs color images. Use {use('augment.jitter', 'none')}."
        )


def _any_of(name: str, *values: str) -> str:
    references = [use(name, value) for value in values]
    return f"{', '.join(references[:-1])} or {references[-1]}"


def _check_normalisation(data: Data) -> None:
    """Pixels become (value - mean) / std: a std of 0 would make every one of them infinite."""
    if len(data.mean) != len(data.std) or len(data.mean) not in (1, 3):
        raise ConfigError(
            f"{given('data.mean', data.mean)} and {given('data.std', data.std)} have {len(data.mean)} and "
            f"{plural(len(data.std), 'value')}. Give one per channel in both: 3 for color, 1 for gray images."
        )
    if not all(0 < value < math.inf for value in data.std):
        raise ConfigError(
            f"{given('data.std', data.std)} must be above 0: images are divided by it. Give the standard deviation of "
            f"each channel, such as {use('data.std', [0.229, 0.224, 0.225])}."
        )
