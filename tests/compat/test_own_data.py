"""Data sets of users as sources: forms of images, splits, labels, and what a resumed run compares."""

import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vernier.data.sources import open_boxes, open_split
from vernier.errors import ConfigError, NoSuchSplit, RunFailed
from vernier.own_code import refer_to

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 16, 3)).astype(np.uint8)


class Own:
    """Every image is the same; the class of sample i is i modulo 2."""

    classes = ("a", "b")

    def __init__(self, image: Any = PIXELS, size: int = 20) -> None:
        self.image, self.size = image, size

    def __len__(self) -> int:
        return self.size

    def sample(self, index: int) -> tuple[Any, Any]:
        return self.image, index % 2


def _png() -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    "image",
    [
        PIXELS,
        _png(),
        Image.fromarray(PIXELS),
        torch.from_numpy(PIXELS).permute(2, 0, 1),
        torch.from_numpy(PIXELS).permute(2, 0, 1) / 255,  # as torchvision's ToTensor
    ],
    ids=["array", "bytes", "PIL", "uint8 tensor", "float tensor"],
)
def test_every_form_of_an_image_gives_its_pixels(image: Any) -> None:
    source = open_split(refer_to(Own(image)), "train")
    np.testing.assert_array_equal(source.image(3), PIXELS)
    np.testing.assert_array_equal(np.asarray(source.lazy_image(3)[:, :]), PIXELS)


def test_gray_images_are_one_channel() -> None:
    assert open_split(refer_to(Own(PIXELS[..., 0])), "train").channels == 1
    assert open_split(refer_to(Own(Image.fromarray(PIXELS[..., 0]))), "train").channels == 1


def test_a_set_without_splits_is_divided_by_the_share() -> None:
    own = refer_to(Own())
    train, val = (open_split(own, split, val_share=0.2) for split in ("train", "val"))
    assert (len(train), len(val)) == (16, 4)
    names = [source.name(index) for source in (train, val) for index in range(len(source))]
    assert sorted(names) == [f"{index:08d}" for index in range(20)]
    for source in (train, val):
        assert source.all_labels().tolist() == [int(source.name(i)) % 2 for i in range(len(source))]
    assert val.held_out
    assert open_split(own, "val", whole=True).undivided
    with pytest.raises(NoSuchSplit):
        open_split(own, "test")


def test_splits_come_from_a_mapping_or_from_the_constructor() -> None:
    own = {"train": Own(size=8), "val": Own(size=5)}
    assert [len(open_split(refer_to(own), split)) for split in own] == [8, 5]
    with pytest.raises(NoSuchSplit, match="It has: train, val"):
        open_split(refer_to(own), "test")
    assert len(open_split(refer_to(lambda split: own[split]), "val")) == 5
    assert len(open_split(refer_to(own), "val", hold_out=True, val_share=0.5)) == 4  # of the training images


def test_the_fingerprint_tells_sets_apart() -> None:
    prints = {
        open_split(refer_to(own), "train").fingerprint() for own in (Own(), Own(), Own(size=19), Own(PIXELS[::-1]))
    }
    assert len(prints) == 3


def test_random_pixels_are_noted() -> None:
    class Random(Own):
        def sample(self, index: int) -> tuple[Any, Any]:
            return np.random.default_rng().integers(0, 256, (8, 8, 3)).astype(np.uint8), 0

    assert "cannot be repeated exactly" in open_split(refer_to(Random()), "train").notes[0]
    assert not open_split(refer_to(Own()), "train", whole=True).notes[1:]


def test_boxes_belong_to_their_image() -> None:
    class Boxes(Own):
        def sample(self, index: int) -> tuple[Any, Any]:
            return PIXELS, {"boxes": [[0, 0, index + 1, 4]], "classes": [index % 2]}

    source = open_boxes(refer_to({"train": Boxes()}), "train")
    source.image(2)
    assert source.boxes(2).ltrb.tolist() == [[0, 0, 3, 4]]
    assert source.boxes(5).classes.tolist() == [1]
    assert source.boxes(5).areas.tolist() == [24]
    with pytest.raises(RunFailed, match="cannot be read"):
        open_boxes(refer_to({"train": Own()}), "train").boxes(1)


def test_what_is_no_data_set_is_refused() -> None:
    with pytest.raises(ConfigError, match="list, which is no data set"):
        open_split(refer_to({"train": [1, 2]}), "train")
    with pytest.raises(ConfigError, match="has no samples"):
        open_split(refer_to({"train": Own(size=0)}), "train")
