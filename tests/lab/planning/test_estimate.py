from dataclasses import replace

import pytest

from vernier.config import Augment, Data, Model, Recipe, Schedule
from vernier.lab.planning.estimate import Speed, device_hours, gmac
from vernier.models import info

RESNET50 = Model(name="resnet50", num_classes=1000)


def test_the_operations_of_an_image_are_those_of_the_catalogue() -> None:
    assert gmac(RESNET50, 224) == pytest.approx(info("resnet50").gmac)
    assert gmac(RESNET50, 448) > 3.9 * gmac(RESNET50, 224)


def test_hours_grow_with_epochs_images_and_operations() -> None:
    speed = Speed(images_per_s=1000, gmac=gmac(RESNET50, 224))
    recipe = Recipe(model=RESNET50, data=Data(image_px=224), schedule=Schedule(epochs=9))
    assert device_hours(recipe, 400_000, speed) == pytest.approx(1.0)
    assert device_hours(recipe, 800_000, speed) == pytest.approx(2.0)
    twice_as_fast = replace(speed, images_per_s=2000)
    assert device_hours(recipe, 400_000, twice_as_fast) == pytest.approx(0.5)


def test_progressive_resizing_makes_a_training_cheaper() -> None:
    speed = Speed(images_per_s=1000, gmac=gmac(RESNET50, 224))
    whole = Recipe(model=RESNET50, data=Data(image_px=224), schedule=Schedule(epochs=4))
    ramp = replace(whole, augment=Augment(start_px=128, ramp_epochs=(0, 3)))
    assert device_hours(ramp, 400_000, speed) < 0.9 * device_hours(whole, 400_000, speed)
