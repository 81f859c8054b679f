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

from .durations import check_time_limit
from .settings import Config, Data, Machine, Recipe, short_side_of

_BOX_CROPS = ("ssd", "ssd-tf", "ssd-tf-tall")
_WITHOUT_EFFECT_ON_DETECTORS = {
    "loss": "the loss of a detector is SSD's and has no settings there",
    "model.unused_outputs": "a detector's outputs are its classes and the background",
    "data.scaled_decode": "a detector's images are always decoded whole",
    "eval.target_top1": "a detector is measured by AP: use eval.target_ap",
    "eval.flip_tta": "it adds the class scores of the mirrored image",
    "model.checkpoint": "only checkpoints of classifiers are read: use model.weights",
    "augment.policy": "it changes where objects are: use augment.jitter for colours",
    "augment.erase": "it removes objects: use augment.crop, augment.flip and augment.jitter",
    "augment.mixup": "it mixes images with one class each",
    "augment.cutmix": "it mixes images with one class each",
    "augment.start_px": "a detector's default boxes belong to one image size",
    "augment.phase_epochs": "a detector's default boxes belong to one image size",
}
_WITHOUT_EFFECT_ON_CLASSIFIERS = {
    "detect": "it matches and filters boxes",
    "eval.target_ap": "a classifier is measured by top-1: use eval.target_top1",
    "model.box_sizes": "a classifier has no default boxes",
    "model.backbone_weights": "it is for the backbone of a detector: use model.weights",
    "augment.jitter": "it is for detectors: use augment.policy",
    "augment.crop_trials": "it is for augment.crop = ssd",
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
            f"data.epoch_images = {recipe.data.epoch_images} and augment.repeats = {recipe.augment.repeats} both say "
            "how often an image comes in an epoch. Leave one of them out."
        )
    if recipe.loss.bce_threshold is not None and recipe.loss.kind != "bce":
        raise ConfigError("loss.bce_threshold is for loss.kind = bce. Leave it out, or change loss.kind.")
    _check_muon(recipe, detector)
    if recipe.optim.nesterov and recipe.optim.name != "sgd":
        raise ConfigError(f"optim.nesterov is for optim.name = sgd, not {recipe.optim.name}. Set optim.nesterov=false.")
    if recipe.model.checkpoint and (recipe.model.weights or recipe.model.backbone_weights):
        raise ConfigError(
            f"--resume {recipe.model.checkpoint} has weights of its own. Leave out --weights and --backbone-weights."
        )
    if recipe.model.reset_head and not recipe.model.weights:
        raise ConfigError(
            "model.reset_head needs a weights file whose head is left out. Give --weights FILE, or drop it."
        )


def _check_muon(recipe: Recipe, detector: bool) -> None:
    """Refuse Muon where it cannot train, or without one of its learning rates, and these rates with others."""
    optim = recipe.optim
    if optim.name != "muon":
        if given := next((name for name in ("bias_lr", "head_lr") if getattr(optim, name) is not None), None):
            raise ConfigError(
                f"optim.{given} is for optim.name = muon, and this is {optim.name}, whose rate is optim.lr. Set "
                "optim.bias_lr=none and optim.head_lr=none."
            )
        return
    if detector:
        raise ConfigError(
            "optim.name = muon keeps the length of all filters, and a detector's last ones must grow. Use "
            "optim.name=sgd."
        )
    if optim.bias_lr is None or optim.head_lr is None:
        raise ConfigError(
            "optim.name = muon has three learning rates: optim.lr of convolutions, optim.bias_lr and optim.head_lr. "
            "Set all of them, for example optim.bias_lr=100 and optim.head_lr=0.02 (those of airbench-cifar10)."
        )
    if optim.layer_decay != 1 or optim.backbone_lr_share != 1:
        raise ConfigError(
            "optim.name = muon has learning rates of its own: leave optim.layer_decay and optim.backbone_lr_share out, "
            "or use optim.name=sgd."
        )


CROPS_OF_WHOLE_IMAGES = ("none", "pad")
"""Values of augment.crop with which all pixels of an image are used."""


def check_loader(machine: Machine, recipe: Recipe, *, detector: bool) -> None:
    """Refuse a loader that cannot do what the recipe asks of it. Raises ConfigError."""
    if machine.backend == "native":
        return
    augment, data = recipe.augment, recipe.data
    if machine.backend == "compiled":
        if augment.crop in CROPS_OF_WHOLE_IMAGES:
            raise ConfigError(
                f"machine.backend = compiled decodes crops of JPEGs, and augment.crop = {augment.crop} needs whole "
                "images. Use machine.backend=native."
            )
        return
    if machine.workers == 0:
        raise ConfigError(f"machine.backend = {machine.backend} has threads of its own. Use --workers 1 or more.")
    if detector:
        raise ConfigError(f"machine.backend = {machine.backend} reads for classifiers. Use native for a detector.")
    if augment.crop != "random-resized":
        raise ConfigError(
            f"machine.backend = {machine.backend} needs augment.crop = random-resized, not {augment.crop}. "
            "Use machine.backend=native."
        )
    more = augment.policy != "none" or augment.erase > 0 or augment.start_px is not None
    if more or data.interpolation != "bilinear" or data.scaled_decode:
        raise ConfigError(
            f"machine.backend = {machine.backend} crops, resizes (bilinear) and flips, nothing else; this recipe needs "
            "more. Use machine.backend=native."
        )


def check_config(config: Config, *, detector: bool) -> None:
    """All rules between the settings of a run. Raises ConfigError."""
    check_recipe(config.recipe, detector=detector)
    check_loader(config.machine, config.recipe, detector=detector)
    check_reduction(config)
    check_compression(config)
    _check_all_reduce(config.machine)
    check_time_limit(config.limits.max_time)
    if config.machine.engine != "torch" or config.machine.int8:
        raise ConfigError(
            "machine.engine and machine.int8 are for eval, predict and bench infer; PyTorch trains. Leave them out."
        )
    if config.recipe.schedule.head_epochs and config.machine.mode == "trace":
        raise ConfigError(
            "--mode trace records one way through the network, and schedule.head_epochs = "
            f"{config.recipe.schedule.head_epochs:g} needs two. Use --mode eager or compile, or "
            "--set schedule.head_epochs=0."
        )
    if config.machine.activation_checkpointing and config.machine.mode == "trace":
        raise ConfigError(
            "--mode trace keeps what it recorded for the backward pass, so machine.activation_checkpointing = true has "
            "no effect. Use --mode eager or compile, or leave it out."
        )
    check_convolution(config.machine)
    if detector and config.limits.train_accuracy:
        raise ConfigError(
            f"limits.train_accuracy has no effect on {config.recipe.model.name}, a detector: top-1 counts images with "
            "one class each. Leave --train-accuracy out."
        )


def check_convolution(machine: Machine) -> None:
    """Refuse Winograd's algorithm where its kernels would not be used. Whether they can be is known when they are."""
    if machine.convolution != "winograd":
        return
    needs = {
        f"--precision fp32, not {machine.precision}": machine.precision == "fp32",
        "machine.channels_last=true": machine.channels_last,
        "machine.reduction=ddp: exact has convolutions of its own": machine.reduction == "ddp",
    }
    for need, given in needs.items():
        if not given:
            raise ConfigError(f"machine.convolution = winograd needs {need}. Change that, or leave it out.")


_OF_TRAINING = ("machine.backend", "machine.convolution", "machine.activation_checkpointing")


def refuse_training_settings(assignments: Iterable[str]) -> None:
    """Refuse settings, given as NAME=VALUE, that change how a network is trained and nothing in inference."""
    for name in (assignment.partition("=")[0].strip() for assignment in assignments):
        if name in _OF_TRAINING:
            raise ConfigError(f"{name} has no effect here: it is for training. Leave it out.")


def check_reduction(config: Config) -> None:
    """Refuse what would make the weights of exact reduction depend on the processes, or would have no effect."""
    recipe, machine = config.recipe, config.machine
    if machine.reduction != "exact":
        if recipe.virtual_shards is not None:
            raise ConfigError(
                f"virtual_shards = {recipe.virtual_shards} has no effect with machine.reduction = {machine.reduction}. "
                "Leave it out, or set machine.reduction=exact."
            )
        return
    if machine.mode != "eager":
        raise ConfigError(
            f"machine.reduction = exact does not work with --mode {machine.mode}: its kernels depend on which image "
            "sizes the process saw before, so a resumed run would differ. Use --mode eager, or machine.reduction=ddp."
        )
    if machine.backend in ("dali-gpu", "gaudi-media"):
        raise ConfigError(
            f"machine.reduction = exact does not work with machine.backend = {machine.backend}: nobody has shown that "
            "its decoder gives the same pixels each time. Use machine.backend=native or dali-cpu."
        )
    if machine.batch_norm_statistics != "average":
        raise ConfigError(
            f"machine.batch_norm_statistics = {machine.batch_norm_statistics} has no effect with machine.reduction = "
            "exact: all processes have the same statistics, the mean over the virtual shards. Leave it out."
        )


def _check_all_reduce(machine: Machine) -> None:
    """Refuse sums within hosts where gradients are not added up by an all-reduce."""
    if machine.all_reduce == "flat":
        return
    if machine.reduction == "exact":
        raise ConfigError(
            "machine.all_reduce = hierarchical does not work with machine.reduction = exact, which has an order of its "
            "own for the sums. Use machine.reduction=ddp, or machine.all_reduce=flat."
        )
    if machine.gradient_compression == "powersgd":
        raise ConfigError(
            "machine.all_reduce = hierarchical does not work with machine.gradient_compression = powersgd, which sends "
            "matrices by PyTorch's own all-reduce. Use gradient_compression=bf16, or machine.all_reduce=flat."
        )


def check_compression(config: Config) -> None:
    """Refuse compressed gradients where they would break a promise or never recover, and settings without effect."""
    machine, kind = config.machine, config.machine.gradient_compression
    if kind != "powersgd":
        for name, value in _changed(machine, Machine(), "machine"):
            if name.startswith("machine.powersgd_"):
                raise ConfigError(
                    f"{name} = {value} has no effect with machine.gradient_compression = {kind}. Leave it out, or set "
                    "machine.gradient_compression=powersgd."
                )
    if kind == "none":
        return
    if machine.reduction == "exact":
        raise ConfigError(
            f"machine.gradient_compression = {kind} does not work with machine.reduction = exact, which adds up whole "
            "gradients in one order. Use machine.reduction=ddp, or machine.gradient_compression=none."
        )
    if kind == "powersgd" and machine.precision == "fp16":
        raise ConfigError(
            "machine.gradient_compression = powersgd does not work with --precision fp16: it carries its errors to the "
            "next step, also those of gradients that overflowed. Use --precision bf16, or gradient_compression=bf16."
        )
    if kind == "powersgd" and config.limits.on_divergence == "rollback":
        raise ConfigError(
            "machine.gradient_compression = powersgd does not work with limits.on_divergence = rollback: it carries "
            "its errors to the next step, also infinite ones. Use limits.on_divergence=stop, or "
            "machine.gradient_compression=bf16."
        )


def _check_effect(recipe: Recipe, reasons: dict[str, str], detector: bool) -> None:
    for path, reason in reasons.items():
        setting = attrgetter(path)
        for name, value in _changed(setting(recipe), setting(_DEFAULTS), path):
            raise ConfigError(
                f"{name} = {_shown(value)} has no effect on {recipe.model.name}, a "
                f"{'detector' if detector else 'classifier'}: {reason}. Leave {name} out."
            )


_DEFAULTS = Recipe()


def _changed(value: Any, default: Any, path: str) -> list[tuple[str, Any]]:
    """The settings at or below `path` that are not at their default."""
    if is_dataclass(value):
        pairs = [(f"{path}.{f.name}", getattr(value, f.name), getattr(default, f.name)) for f in fields(value)]
        return [(name, mine) for name, mine, other in pairs if mine != other]
    return [(path, value)] if value != default else []


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(list(value) if isinstance(value, tuple) else value)


def _check_schedule(recipe: Recipe) -> None:
    schedule, augment = recipe.schedule, recipe.augment
    if schedule.warmup_epochs > schedule.epochs:
        raise ConfigError(
            f"schedule.warmup_epochs = {schedule.warmup_epochs} is longer than the training (schedule.epochs = "
            f"{schedule.epochs}). Train for longer, or shorten the warm-up: --set schedule.warmup_epochs="
            f"{schedule.epochs / 10:g}."
        )
    if schedule.kind == "list" and len(schedule.shares) != len(schedule.milestones) + 1:
        raise ConfigError(
            f"schedule.kind = list needs one share more than milestones: {len(schedule.shares)} shares and "
            f"{len(schedule.milestones)} milestones are given. Change schedule.shares or schedule.milestones."
        )
    if schedule.head_epochs >= schedule.epochs > 0 and schedule.head_epochs > 0:
        raise ConfigError(
            f"schedule.head_epochs = {schedule.head_epochs:g} is the whole training (schedule.epochs = "
            f"{schedule.epochs:g}). To train the head alone: --freeze backbone. To train all layers after it: fewer "
            "schedule.head_epochs."
        )
    if augment.start_px is not None and augment.start_px > recipe.data.image_px:
        raise ConfigError(
            f"augment.start_px = {augment.start_px} is larger than data.image_px = {recipe.data.image_px}: images grow "
            "during training. Swap them, or leave augment.start_px out."
        )
    if augment.ramp_epochs[0] > augment.ramp_epochs[1]:
        raise ConfigError(f"augment.ramp_epochs = {list(augment.ramp_epochs)} must not end before it begins.")
    _check_phases(recipe)


def _check_phases(recipe: Recipe) -> None:
    """Progressive resizing in phases: sizes and epochs that rise, one epoch per size after the first."""
    augment = recipe.augment
    epochs = augment.phase_epochs
    if not augment.phase_px and not epochs:
        return
    if augment.start_px is None:
        raise ConfigError(
            "augment.phase_px and augment.phase_epochs need the first image side: --set augment.start_px=128, for "
            "example."
        )
    sizes = (augment.start_px, *augment.phase_px, recipe.data.image_px)
    if any(augment.ramp_epochs):
        raise ConfigError(
            "Images grow in phases or along a ramp: leave augment.ramp_epochs or augment.phase_epochs out."
        )
    if len(epochs) != len(sizes) - 1:
        raise ConfigError(
            f"Image sides {', '.join(map(str, sizes))} (augment.start_px, augment.phase_px, data.image_px) need "
            f"{len(sizes) - 1} epochs at which the next one begins, not augment.phase_epochs = {list(epochs)}."
        )
    if list(epochs) != sorted(set(epochs)) or list(sizes) != sorted(set(sizes)):
        raise ConfigError(
            f"augment.phase_epochs = {list(epochs)} and the image sides {', '.join(map(str, sizes))} must rise."
        )


def _check_sizes(recipe: Recipe, detector: bool) -> None:
    data = recipe.data
    if detector and data.image_px != data.eval_px:
        raise ConfigError(
            f"data.image_px = {data.image_px} and data.eval_px = {data.eval_px}: a detector's default boxes belong to "
            "one image size. Set both to the same number."
        )
    if detector and data.eval_short_side_px != short_side_of(data.eval_px):
        raise ConfigError(
            f"data.eval_short_side_px = {data.eval_short_side_px} has no effect on {recipe.model.name}, a detector: "
            "its images are resized to data.eval_px without a crop. Leave data.eval_short_side_px out."
        )
    if not detector and data.eval_short_side_px < data.eval_px:
        raise ConfigError(
            f"data.eval_short_side_px = {data.eval_short_side_px} is smaller than data.eval_px = {data.eval_px}: there "
            "would be nothing to crop from. Raise the first or lower the second."
        )


def _check_crop(recipe: Recipe, detector: bool) -> None:
    augment = recipe.augment
    if detector and augment.crop not in (*_BOX_CROPS, "none"):
        raise ConfigError(
            f"augment.crop = {augment.crop} ignores boxes. For a detector use augment.crop=ssd, ssd-tf or none."
        )
    if not detector and augment.crop in _BOX_CROPS:
        raise ConfigError(
            f"augment.crop = {augment.crop} is for detectors. For a classifier use random-resized, pad or none."
        )
    if augment.flip_rule == "alternate" and (detector or augment.flip != 0.5):
        problem = (
            "is for classifiers" if detector else f"mirrors half of the images, and augment.flip = {augment.flip:g}"
        )
        raise ConfigError(f"augment.flip_rule = alternate {problem}. Set augment.flip_rule=random.")
    if augment.border != "zeros" and augment.crop != "pad":
        raise ConfigError(
            f"augment.border = {augment.border} is for augment.crop = pad, not {augment.crop}. Leave it out."
        )
    if detector and augment.jitter != "none" and len(recipe.data.mean) != 3:
        raise ConfigError("augment.jitter needs images in colour. Set augment.jitter=none.")


def _check_normalisation(data: Data) -> None:
    """Pixels become (value - mean) / std: a std of 0 would make every one of them infinite."""
    if not all(math.isfinite(value) for value in data.mean):
        raise ConfigError(f"data.mean = {list(data.mean)} must be finite numbers, one per channel.")
    if not all(0 < value < math.inf for value in data.std):
        raise ConfigError(
            f"data.std = {list(data.std)} must be above 0: images are divided by it. Give the standard deviation of "
            "each channel, such as [0.229, 0.224, 0.225]."
        )
