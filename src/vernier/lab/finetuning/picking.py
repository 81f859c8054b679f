"""Chooses the settings of a fine-tuning from the photographs and the machine, and says why.

The choices are a function of the folder, the number of cores, the memory, the kind of device and the number of epochs,
which is the only one that may follow from a measured speed: the same command must choose the same again, or it could
not resume. Each of them can be overridden by a flag or `--set`; the others then take it into account.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import psutil

from vernier import recipes
from vernier.config import Augment, Changed, Checkpoint, Config, Data, Machine, Model, override
from vernier.cores import allowed_cores
from vernier.data.downloads import pretrained
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.models import info, is_detector, names
from vernier.models.catalogue import is_outside
from vernier.models.contract import BACKBONE
from vernier.models.cost import Cost, cost_of
from vernier.quantities import rough_memory
from vernier.wording import plural

from .survey import BoxSides, Survey

CORE_FLOPS, ACCELERATOR_FLOPS = 60e9, 8e12
"""Usual rates of training in fp32: of one core with AVX2 or AVX-512, and of a device that is no CPU."""
DETECTORS = "ssd-fpn-"
"""What the detector on a backbone is called, in front of the backbone's name."""
SMALL_SET, LARGE_SET = 1_000, 5_000
"""Below the first, the lowest layers are frozen; from the second on, all layers and statistics are trained."""
_LARGE_WEIGHTS, _SMALL_WEIGHTS = "torchvision:resnet50-v1", "torchvision:resnet18"
_DEFAULT_NETWORK = "resnet18"
_STEPS_ENOUGH = 1_500
_EPOCHS = (6, 40)
_EVALUATIONS = 10
_MEMORY_SHARE = 0.4
_SIZE_STEP_PX = 32
_IMAGE_PX = "data.image_px"
_MANY_HELD_OUT = 2_000


@frozen
class MachineFacts:
    """What the choices know about the machine. `device` is a kind: cpu, cuda, ..."""

    device: str
    cores: int
    memory_bytes: int

    @classmethod
    def here(cls, device: str) -> "MachineFacts":
        return cls(device=device, cores=len(allowed_cores()), memory_bytes=psutil.virtual_memory().total)

    @property
    def flops(self) -> float:
        return CORE_FLOPS * self.cores if self.device == "cpu" else ACCELERATOR_FLOPS

    def describe(self) -> str:
        what = plural(self.cores, "core") if self.device == "cpu" else self.device
        return f"{what}, {self.memory_bytes / 2**30:.0f} GiB of memory"


@frozen
class StartingWeights:
    """Weights to start from, as a person named them, and the network of the catalogue they belong to.

    A network of `network` that is a detector is taken whole, except for the layers that name classes.
    """

    text: str
    network: str
    why: str = "as given"
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings of the network that the file was written with, and `data.image_px`, the size it was trained at."""


@frozen
class Choice:
    """One line of the plan: what was chosen, and why."""

    name: str
    value: str
    why: str


@frozen
class Plan:
    """A fine-tuning that was chosen and not started. `expected_s` is by arithmetic, without evaluations."""

    survey: Survey
    machine: MachineFacts
    config: Config
    choices: tuple[Choice, ...]
    train_images: int
    held_out_images: int
    expected_s: float

    def lines(self, time: str) -> list[str]:
        """The plan for a person, with a line about how long it takes."""
        rows = {
            "found": self.survey.describe(),
            "machine": self.machine.describe(),
            **{choice.name: f"{choice.value}: {choice.why}" for choice in self.choices},
            "time": time,
        }
        return [f"fine-tuning on {self.survey.folder}", *(f"  {name:<14} {text}" for name, text in rows.items())]


def pick(
    photographs: Survey,
    machine: MachineFacts,
    weights: StartingWeights | None,
    given: Changed,
    *,
    minutes: float = 10.0,
    epochs: float | None = None,
) -> Plan:
    """Choose the settings. `given` has what a person set, on top of the defaults: it always wins.

    `epochs` are those that fit into the time by measured steps; None: estimated from FLOPs. Raises ConfigError where
    the weights are of no use for these images.
    """
    picker = (_BoxPicker if photographs.boxes else _ClassPicker)(photographs, machine, weights, given, minutes, epochs)
    return picker.plan()


def default_weights(photographs: Survey, machine: MachineFacts, given: Changed, minutes: float) -> StartingWeights:
    """The published weights to start from: of the larger network, if the time is enough for training it.

    Those of torchvision's first training (-v1): features from trainings with label smoothing and mixed images, as its
    second, are known to be worse for other tasks as they are (Kornblith et al. 2021), and the new layers begin on them.
    """
    large, small = (
        StartingWeights(
            text=name, network=pretrained(name).network, why=f"published, from a million photographs; {why}"
        )
        for name, why in (
            (_LARGE_WEIGHTS, f"the time is enough for this network ({minutes:g} minutes)"),
            (_SMALL_WEIGHTS, f"{minutes:g} minutes are too short for resnet50"),
        )
    )
    # With all that follows from the weights: image size and freezing change the cost, too.
    fits = pick(photographs, machine, large, given, minutes=minutes).expected_s <= 60 * minutes
    return large if fits else small


def _network_for(photographs: Survey, backbone: str) -> str:
    """The network that is trained from a backbone: itself for classes, a detector on it for boxes.

    Raises ConfigError where there is none.
    """
    if not photographs.boxes or is_detector(backbone):
        if photographs.boxes != is_detector(backbone):
            raise ConfigError(
                f"{backbone} is a detector, and {photographs.folder} has classes and no boxes. Give weights of a "
                "classifier."
            )
        return backbone
    if f"{DETECTORS}{backbone}" not in names():
        known = ", ".join(name.removeprefix(DETECTORS) for name in names() if name.startswith(DETECTORS))
        raise ConfigError(
            f"There is no detector on {backbone} for fine-tuning. Give weights of one of {known}, or train another "
            "detector with vernier train."
        )
    return f"{DETECTORS}{backbone}"


class _Picker:
    """What both tasks have in common. The choices depend on each other in the order in which they are made."""

    base: str
    """The file of settings that do not depend on the images or the machine."""
    smallest_batch: int
    head_share: float
    backbone_lr_share: float

    def __init__(
        self,
        photographs: Survey,
        machine: MachineFacts,
        weights: StartingWeights | None,
        given: Changed,
        minutes: float,
        epochs: float | None,
    ) -> None:
        self.photographs, self.machine, self.weights = photographs, machine, weights
        self.given, self.minutes, self.epochs = given, minutes, epochs
        self.choices: list[Choice] = []
        folder = Path(photographs.folder).resolve().name
        self.recipe = replace(
            recipes.load(str(Path(__file__).with_name(self.base))).recipe,
            name=f"finetune-{re.sub('[^a-z0-9]+', '-', folder.lower()).strip('-') or 'images'}",
            data=Data(source=photographs.folder),
        )

    def plan(self) -> Plan:
        # Everything below counts training images, of which this is the number.
        self._choose_held_out()
        self._choose_network()
        self._choose_size()
        self._choose_freezing()
        self._choose_batch()
        self._choose_length()
        self._choose_rest()
        return Plan(
            survey=self.photographs,
            machine=self.machine,
            config=Config(
                recipe=self.recipe,
                # Evaluation keeps no activations, so that a larger batch fits and is faster.
                machine=Machine(eval_batch=max(16, self.recipe.global_batch)),
                checkpoint=Checkpoint(every_epochs=self.recipe.eval.every_epochs, keep_last=1),
            ),
            choices=tuple(self.choices),
            train_images=self.train_images,
            held_out_images=self.photographs.images - self.train_images,
            expected_s=self._seconds(self.recipe.schedule.epochs, self.recipe.schedule.head_epochs),
        )

    # ------------------------------------------------------------------------------------------------- common parts

    def _is_given(self, path: str) -> bool:
        return f"recipe.{path}" in self.given.named

    def _change(self, path: str, value: object) -> Any:
        """Set one setting, unless a person set it; returns what it is then."""
        if self._is_given(path):
            value = attrgetter(path)(self.given.config.recipe)
        self.recipe = override(Config(recipe=self.recipe), path, value).recipe
        return attrgetter(path)(self.recipe)

    def _say(self, name: str, value: str, why: str, *settings: str) -> None:
        as_given = any(map(self._is_given, settings))
        self.choices.append(Choice(name=name, value=value, why="as given" if as_given else why))

    def _choose_held_out(self) -> None:
        photographs, images = self.photographs, self.photographs.images
        if "val" in photographs.splits and not self._is_given("data.hold_out"):
            self.train_images = images
            self._say("held out", "the validation split", "it has one")
            return
        # Of few images a larger share, or single ones would decide; of many no more than tell two models apart.
        share = min(0.15 if images < SMALL_SET else 0.1, _MANY_HELD_OUT / images)
        held_out = photographs.count_held_out(self._change("data.val_share", share))
        if photographs.splits:
            self._change("data.hold_out", True)
        self.train_images = images - held_out
        whose = "training images, as there is no validation split" if photographs.splits else "images"
        self._say(
            "held out",
            f"{held_out:,} of {images:,} {whose}",
            "chosen by the SHA-256 of their names, the same ones every time; held_out.json lists them",
        )

    def _choose_network(self) -> None:
        backbone = self.weights.network if self.weights else _DEFAULT_NETWORK
        proper = _network_for(self.photographs, backbone)
        network = self._change("model.name", proper)
        if is_outside(network):  # normalized as its weights were trained; the size is chosen later
            self.recipe = replace(self.recipe, data=info(network).prepare(self.recipe.data))
        if self.weights is None:
            self._say("network", network, "small enough to learn something from scratch", "model.name")
            return
        # A person who names another model does not want the settings of the one in the file.
        for path, value in self.weights.settings.items() if network == proper else ():
            if path != _IMAGE_PX:
                self._change(path, value)
        setting = "weights" if not self.photographs.boxes or is_detector(backbone) else "backbone_weights"
        self._change(f"model.{setting}", self.weights.text)
        if setting == "weights":
            # The classes are others, even if there are as many of them.
            self._change("model.reset_head", True)
        why = "that of the weights" if network == backbone else "a detector on the network of the weights"
        self._say("weights", self.weights.text, self.weights.why)
        self._say("network", network, why, "model.name")

    def _choose_freezing(self) -> None:
        lowest = info(self.recipe.model.name).layout.lowest
        # New weights must learn everything, also from few images.
        few = self.weights is not None and self.train_images < LARGE_SET
        if frozen_layers := self._change("model.freeze", lowest if few and self.train_images < SMALL_SET else ()):
            self._say(
                "frozen",
                "the stem and the first stage" if frozen_layers == lowest else ", ".join(frozen_layers),
                f"edges and textures are the same in all photographs; below {SMALL_SET:,} images there is little to "
                "learn them from",
                "model.freeze",
            )
        if self._change("model.freeze_statistics", few):
            self._say(
                "batch norm",
                "keeps the statistics of the weights",
                f"those of a few images per step are noise (below {LARGE_SET:,} images)",
                "model.freeze_statistics",
            )

    def _choose_batch(self) -> None:
        batch = self.smallest_batch
        if self.machine.device != "cpu" or self.train_images >= SMALL_SET:
            batch *= 2
        # At least one step per epoch.
        batch = min(batch, 2 ** int(math.log2(self.train_images)))
        cost = self._cost()
        # The rest of the memory is for the loader, its cache and the other programs of a desktop.
        while batch > 1 and _training_bytes(cost, batch) > _MEMORY_SHARE * self.machine.memory_bytes:
            batch //= 2
        batch = self._change("global_batch", batch)
        memory = rough_memory(_training_bytes(cost, batch))
        self._say("batch", plural(batch, "image"), f"many steps from few images; needs about {memory}", "global_batch")

    def _choose_length(self) -> None:
        """As many epochs as fit into the time, within limits; first the head alone, which costs a third."""
        low, high = _EPOCHS
        # Fine-tuning converges after a number of steps, not of epochs.
        enough = min(high, max(low, math.ceil(_STEPS_ENOUGH * self.recipe.global_batch / self.train_images)))
        # A warm-up of the head would be the same training twice.
        head_alone = BACKBONE in self.recipe.model.freeze  # all the time
        head_share = self.head_share if self.weights and not head_alone else 0.0
        longest = max(
            (e for e in range(low, enough + 1) if self._seconds(e, round(head_share * e)) <= 60 * self.minutes),
            default=low,
        )
        epochs = self._change("schedule.epochs", max(low, self.epochs or float(longest)))
        head = self._change("schedule.head_epochs", float(round(head_share * epochs)))
        phases = f" ({head:g} of the new layers alone, {epochs - head:g} of all)" if head else ""
        basis = "timed steps" if self.epochs else "FLOPs"
        limit = (
            f"what should fit into {self.minutes:g} minutes, estimated from {basis}"
            if epochs < enough
            else "enough for these images"
        )
        if epochs == low and self._seconds(epochs, head) > 60 * self.minutes:
            limit = f"fewer would learn little; LONGER than {self.minutes:g} minutes, estimated from {basis}"
        self._say("epochs", f"{epochs:g}{phases}", limit, "schedule.epochs")
        evaluations = epochs / self._change("eval.every_epochs", float(max(1, round(epochs / _EVALUATIONS))))
        # A late gain is common with a cosine schedule: the rate is still high until two thirds.
        self._change("eval.patience", max(3, math.ceil(0.4 * evaluations)))

    def _seconds(self, epochs: float, head_epochs: float) -> float:
        """Time of the training steps by arithmetic."""
        alone, everything = _macs_per_image(self._cost(), self.recipe.model, has_weights=self.weights is not None)
        # Two operations per multiply-accumulate.
        per_epoch = 2 * self.train_images / self.machine.flops
        return per_epoch * (head_epochs * alone + (epochs - head_epochs) * everything)

    def _cost(self) -> Cost:
        return cost_of(self.recipe.model, px=self.recipe.data.image_px, classes=len(self.photographs.classes))

    def _choose_rest(self) -> None:
        steps = self.train_images / self.recipe.global_batch
        # Averages over about two and a half epochs; a longer memory would keep untrained weights.
        self._change("ema.decay", round(min(0.999, max(0.9, 1 - 1 / (2.5 * steps))), 4))
        # New layers have large gradients, which would destroy the features below them.
        self._change("schedule.warmup_epochs", min(0.5, self.recipe.schedule.epochs / 4))
        if self.weights is not None:
            self._change("optim.backbone_lr_share", self.backbone_lr_share)
        self._choose_augmentation()
        optim, batch = self.recipe.optim, self.recipe.global_batch
        rate = optim.lr * batch / (optim.lr_batch or batch)
        if self._is_given("optim.lr"):
            rate = self.given.config.recipe.optim.lr
        share = {1.0: "", 0.1: "a tenth", 0.5: "half"}.get(optim.backbone_lr_share, f"{optim.backbone_lr_share:.0%}")
        slower = f"; {share} of it for what came with the weights" if share else ""
        self._say(
            "rate",
            f"{rate:g} at its peak{slower}",
            "cosine to zero; the average of the last weights (EMA) is what is evaluated and exported",
            "optim.lr",
        )

    def _choose_px(self, px: object) -> int:
        """The size of images, in evaluation too."""
        chosen: int = self._change(_IMAGE_PX, px)
        self.recipe = replace(self.recipe, data=replace(self.recipe.data, eval_px=chosen, eval_short_side_px=0))
        return chosen

    def _choose_size(self) -> None:
        raise NotImplementedError

    def _choose_augmentation(self) -> None:
        raise NotImplementedError


class _ClassPicker(_Picker):
    base, smallest_batch, head_share, backbone_lr_share = "classes.toml", 16, 0.4, 0.1

    def _choose_size(self) -> None:
        # Classes are recognised by the whole image, which the short side limits.
        short = min(self.photographs.width_px, self.photographs.height_px)
        own_px = self.weights.settings.get(_IMAGE_PX) if self.weights is not None else None
        network = self.recipe.model.name
        if is_outside(network) and not info(network).any_px:
            own_px = own_px or info(network).input_px
        px = own_px or (224 if short >= 112 else 160 if short >= 56 else 128)
        why = (
            f"the size that the weights were trained at; these images have {short} pixels on their short side"
            if own_px or px == 224
            else f"these images have {short} pixels on their short side, and a network for photographs needs more"
        )
        self._say("image size", f"{self._choose_px(px)} pixels", why, _IMAGE_PX)

    def _choose_augmentation(self) -> None:
        few = self.train_images < SMALL_SET
        low = 0.35 if few else 0.2
        augment = Augment(crop="random-resized", area=(low, 1.0), policy="trivial-wide" if not few else "none")
        self.recipe = replace(self.recipe, augment=augment)
        self._say(
            "augmentation",
            f"crops of {100 * low:.0f} to 100 % of the area, flips"
            + ("" if few else ", one random change of colour or shape"),
            "short trainings on few images gain nothing from stronger ones"
            if few
            else "many images and longer training",
        )


class _BoxPicker(_Picker):
    base, smallest_batch, head_share, backbone_lr_share = "boxes.toml", 8, 0.3, 0.5

    def _choose_size(self) -> None:
        sides = self.photographs.box_sides or BoxSides(small=0.1, middle=0.2, large=0.5)
        longest = max(self.photographs.width_px, self.photographs.height_px)
        # A small object must cover a few cells of the first level of the detector.
        enough_px = math.ceil(_SMALL_BOX_PX / sides.small / _SIZE_STEP_PX) * _SIZE_STEP_PX
        px = min(_DETECTOR_PX[1], max(_DETECTOR_PX[0], enough_px))
        # Enlarging beyond the photographs adds no detail.
        px = min(px, max(_DETECTOR_PX[0], longest // _SIZE_STEP_PX * _SIZE_STEP_PX))
        px = self._choose_px(px)
        self._say(
            "image size",
            f"{px} pixels",
            f"the small boxes (5 %) have {100 * sides.small:.1f} % of the image's side, then "
            f"{sides.small * px:.0f} pixels",
            _IMAGE_PX,
        )
        sizes = self._change("model.box_sizes", default_box_sizes(sides))
        self._say(
            "default boxes",
            ", ".join(f"{100 * size:.0f}" for size in sizes) + " % of the side",
            "from the sizes of your boxes",
            "model.box_sizes",
        )

    def _choose_augmentation(self) -> None:
        long = self.recipe.schedule.epochs >= _MANY_EPOCHS
        windows = "" if self._change("augment.crop", "ssd" if long else "none") == "none" else "random windows, "
        self._say(
            "augmentation",
            f"{windows}flips, colours",
            "SSD's own; boxes move with the pixels"
            if long
            else "random windows, as SSD has them, pay off in longer trainings only",
            "augment.crop",
        )


_SMALL_BOX_PX = 26
_DETECTOR_PX = (256, 512)
_LEAST_RATIO = 2.25
_MANY_EPOCHS = 50


def default_box_sizes(sides: BoxSides) -> tuple[float, float, float]:
    """Sides of a detector's default boxes at its first, second and last level, from those of the objects.

    The second is the geometric mean of the others, which are at least a factor of 2.25 apart.
    """
    small, large = max(0.02, sides.small), min(0.9, sides.large * 1.1)
    middle = math.sqrt(small * max(large, small))
    # Levels of the same size would compete for the same objects.
    half = max(math.sqrt(_LEAST_RATIO), math.sqrt(large / small))
    return round(middle / half, 3), round(middle, 3), round(min(0.95, middle * half), 3)


def _macs_per_image(cost: Cost, model: Model, *, has_weights: bool) -> tuple[int, int]:
    """Multiply-accumulates of a training step per image, with the head alone and with all layers that are not frozen.

    Backward costs twice the forward pass of what is trained.
    """
    layout = info(model.name).layout
    head_alone = cost.macs + 2 * cost.macs_from(layout.head_depth)
    everything = cost.macs + 2 * cost.macs_from(layout.frozen_parts(model.freeze))
    return (head_alone if has_weights or BACKBONE in model.freeze else 3 * cost.macs), everything


def _training_bytes(cost: Cost, batch: int) -> int:
    """Weights, gradients, momentum and average in fp32, and the activations of a step."""
    return 4 * (4 * cost.params + batch * cost.activations)
