import pytest
import torch

from vernier import recipes
from vernier.config import Machine
from vernier.errors import ConfigError
from vernier.models import build
from vernier.tasks.detection.boxes import to_corners
from vernier.tasks.detection.task import Detect


def test_a_network_that_answers_a_default_box_detects_it() -> None:
    recipe = recipes.get("ssd-shapes-quick")
    task = Detect(recipe)
    network = build("ssd-small", num_classes=11, width=8, image_px=recipe.data.image_px)
    boxes = sum(level.boxes for level in network.levels)  # type: ignore[union-attr]
    logits = torch.zeros(1, boxes, 11)
    logits[..., 0] = 20.0
    logits[0, 0, :2] = torch.tensor([0.0, 20.0])
    predicted = task.predict(lambda _: (torch.zeros(1, boxes, 4), logits), torch.zeros(1, 3, 128, 128))
    assert predicted.count.tolist() == [1]
    assert predicted.classes[0, 0] == 1
    torch.testing.assert_close(predicted.ltrb[0, 0], to_corners(task._anchors)[0])


def test_other_loaders_are_refused() -> None:
    task = Detect(recipes.get("ssd-shapes-quick"))
    with pytest.raises(ConfigError, match="native"):
        task.train_reader(None, None, Machine(backend="dali-cpu"))  # type: ignore[arg-type]


def test_the_preparation_of_images_is_described() -> None:
    description = Detect(recipes.get("ssd-shapes-quick")).describe_preparation()
    assert description == "whole image resized to 128 x 128, bilinear, ImageNet mean and std"
