"""The settings that are chosen from photographs and a machine: sensible, explained, and the person decides."""

from typing import Any

import pytest

from vernier.config import Config, apply_changes, check_config
from vernier.errors import ConfigError
from vernier.lab.finetuning.picking import (
    MachineFacts,
    Plan,
    StartingWeights,
    default_box_sizes,
    default_weights,
    pick,
)
from vernier.lab.finetuning.survey import BoxSides, Survey
from vernier.models import is_detector

LAPTOP = MachineFacts(device="cpu", cores=2, memory_bytes=8 * 2**30)
GPU = MachineFacts(device="cuda", cores=8, memory_bytes=64 * 2**30)
WEIGHTS = StartingWeights(text="torchvision:resnet50-v1", network="resnet50")
SIDES = BoxSides(small=0.075, middle=0.19, large=0.29)


def photographs(images: int = 200, **changes: Any) -> Survey:
    values: dict[str, Any] = {
        "folder": "photos",
        "boxes": False,
        "layout": "class folders",
        "splits": (),
        "classes": ("cat", "dog"),
        "images": images,
        "per_class": (images // 2, images - images // 2),
        "width_px": 640,
        "height_px": 480,
    }
    return Survey(**{**values, **changes})


def cells(images: int = 180) -> Survey:
    return photographs(images, boxes=True, layout="Pascal VOC", box_sides=SIDES)


def picked(
    found: Survey,
    machine: MachineFacts = LAPTOP,
    weights: StartingWeights | None = WEIGHTS,
    flags: dict[str, object] | None = None,
    minutes: float = 10.0,
) -> Plan:
    plan = pick(found, machine, weights, apply_changes(Config(), flags or {}, ()), minutes=minutes)
    check_config(plan.config, detector=is_detector(plan.config.recipe.model.name))
    return plan


def line(plan: Plan, name: str) -> str:
    return next(f"{choice.value}: {choice.why}" for choice in plan.choices if choice.name == name)


@pytest.mark.parametrize("found", [photographs(), photographs(20), photographs(30_000), cells(), cells(4_000)])
@pytest.mark.parametrize("machine", [LAPTOP, GPU])
@pytest.mark.parametrize("weights", [WEIGHTS, None])
def test_every_choice_is_allowed_and_has_a_reason(
    found: Survey, machine: MachineFacts, weights: StartingWeights | None
) -> None:
    plan = picked(found, machine, weights)
    assert plan == picked(found, machine, weights), "the same again, or the command could not resume"
    assert all(choice.value and choice.why for choice in plan.choices)
    assert plan.train_images + plan.held_out_images == found.images
    assert plan.config.recipe.global_batch <= plan.train_images
    assert len(plan.lines("about a minute")) == len(plan.choices) + 4


def test_few_photographs_freeze_the_lowest_layers_and_the_statistics() -> None:
    few, many = picked(photographs(200)).config.recipe.model, picked(photographs(30_000)).config.recipe.model
    assert few.freeze == ("conv1", "bn1", "layer1")
    assert few.freeze_statistics
    assert (many.freeze, many.freeze_statistics) == ((), False)
    assert picked(cells()).config.recipe.model.freeze == ("backbone.conv1", "backbone.bn1", "backbone.layer1")


def test_the_head_trains_first_and_the_backbone_more_slowly() -> None:
    recipe = picked(cells()).config.recipe
    assert 0 < recipe.schedule.head_epochs < recipe.schedule.epochs
    assert recipe.optim.backbone_lr_share < 1
    scratch = picked(cells(), weights=None).config.recipe
    assert (scratch.schedule.head_epochs, scratch.optim.backbone_lr_share, scratch.model.freeze) == (0, 1, ())


def test_a_part_is_held_out_where_there_is_no_validation_split() -> None:
    plan = picked(photographs(200))
    assert (plan.held_out_images, plan.config.recipe.data.val_share, plan.config.recipe.data.hold_out) == (
        30,
        0.15,
        False,
    )
    divided = picked(photographs(200, splits=("train", "test"))).config.recipe.data
    assert (divided.val_share, divided.hold_out) == (0.15, True)
    own = picked(photographs(200, splits=("train", "val")))
    assert (own.held_out_images, own.config.recipe.data.hold_out) == (0, False)
    assert picked(photographs(100_000)).held_out_images == 2_000


def test_the_time_limits_the_epochs_and_a_faster_machine_trains_longer() -> None:
    short, long = picked(photographs(600), minutes=12), picked(photographs(600), minutes=60)
    assert short.config.recipe.schedule.epochs < long.config.recipe.schedule.epochs
    assert short.expected_s <= 12 * 60
    assert "what should fit into 12 minutes, estimated from FLOPs" in line(short, "epochs")
    assert "LONGER than 1 minutes" in line(picked(photographs(600), minutes=1), "epochs")
    assert picked(photographs(600), GPU).config.recipe.schedule.epochs >= long.config.recipe.schedule.epochs


def test_detectors_get_the_size_and_the_default_boxes_of_the_objects() -> None:
    plan = picked(cells())
    recipe = plan.config.recipe
    assert recipe.model.name == "ssd-fpn-resnet50"
    assert recipe.model.backbone_weights == WEIGHTS.text
    assert 0.075 * recipe.data.image_px >= 20
    assert recipe.model.box_sizes == default_box_sizes(SIDES)
    large = picked(photographs(180, boxes=True, box_sides=BoxSides(small=0.3, middle=0.5, large=0.8)))
    assert large.config.recipe.data.image_px < recipe.data.image_px


@pytest.mark.parametrize(
    "sides", [SIDES, BoxSides(small=0.2, middle=0.2, large=0.2), BoxSides(small=0.001, middle=0.5, large=1.0)]
)
def test_default_boxes_always_rise(sides: BoxSides) -> None:
    first, second, last = default_box_sizes(sides)
    assert 0 < first < second < last <= 1


def test_random_windows_are_for_long_trainings_of_detectors() -> None:
    short, long = picked(cells()), picked(cells(), flags={"schedule.epochs": 80.0})
    assert short.config.recipe.augment.crop == "none"
    assert line(short, "augmentation").startswith("flips, colours: random windows")
    assert long.config.recipe.augment.crop == "ssd"
    assert line(long, "augmentation").startswith("random windows, flips, colours")
    given = picked(cells(), flags={"augment.crop": "ssd"})
    assert line(given, "augmentation") == "random windows, flips, colours: as given"


def test_what_a_person_sets_is_kept_and_the_rest_follows() -> None:
    flags = {"data.image_px": 128, "global_batch": 4, "schedule.epochs": 3.0, "model.freeze": ("layer1",)}
    plan = picked(photographs(200), flags=flags)
    recipe = plan.config.recipe
    assert (recipe.data.image_px, recipe.data.eval_px, recipe.global_batch) == (128, 128, 4)
    assert (recipe.schedule.epochs, recipe.schedule.head_epochs, recipe.model.freeze) == (3, 1, ("layer1",))
    assert line(plan, "image size") == "128 pixels: as given"
    assert plan.expected_s < picked(photographs(200)).expected_s


def test_a_frozen_backbone_needs_no_phases_and_little_time() -> None:
    plan = picked(photographs(), flags={"model.freeze": ("backbone",), "schedule.epochs": 10.0})
    assert plan.config.recipe.schedule.head_epochs == 0
    assert plan.expected_s < picked(photographs(), flags={"schedule.epochs": 10.0}).expected_s * 0.6


def test_small_images_are_enlarged_and_small_memories_get_small_batches() -> None:
    assert picked(photographs(width_px=32, height_px=32)).config.recipe.data.image_px == 128
    tiny = MachineFacts(device="cpu", cores=2, memory_bytes=2 * 2**30)
    assert picked(photographs(), tiny).config.recipe.global_batch < picked(photographs()).config.recipe.global_batch


def test_the_weights_decide_the_network() -> None:
    v1 = StartingWeights(text="mine.safetensors", network="resnet50-v1")
    recipe = picked(photographs(), weights=v1).config.recipe
    assert (recipe.model.name, recipe.model.weights, recipe.model.reset_head) == (
        "resnet50-v1",
        "mine.safetensors",
        True,
    )
    own = StartingWeights(text="cells.safetensors", network="ssd-fpn-resnet18")
    detector = picked(cells(), weights=own).config.recipe.model
    assert (detector.name, detector.weights, detector.backbone_weights) == ("ssd-fpn-resnet18", own.text, "")
    with pytest.raises(ConfigError, match=r"no detector on resnext50-32x4d.* resnet18, resnet34, resnet50"):
        picked(cells(), weights=StartingWeights(text="x", network="resnext50-32x4d"))
    with pytest.raises(ConfigError, match="is a detector, and photos has classes"):
        picked(photographs(), weights=own)


def test_by_default_the_smaller_network_is_for_machines_that_are_too_slow_for_the_larger() -> None:
    given = apply_changes(Config(), {}, ())
    assert default_weights(photographs(200), LAPTOP, given, 10).text == "torchvision:resnet50-v1"
    assert default_weights(photographs(5_000), LAPTOP, given, 10).text == "torchvision:resnet18"
    assert default_weights(photographs(5_000), GPU, given, 10).text == "torchvision:resnet50-v1"
