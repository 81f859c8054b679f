"""Decoders that plug in: windows that they decode, what they leave to libjpeg-turbo, and what happens without them."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from vernier import plugins
from vernier.config import Augment, Data
from vernier.data.decoding import base
from vernier.data.decoding.base import _PluginJpeg, open_with_plugin
from vernier.data.decoding.decode import Croppable, Image, LazyJpeg, decode, lazy_image
from vernier.errors import ConfigError

from .small_jpegs import small_jpeg

pytestmark = pytest.mark.usefixtures("sliced_small_images")
WINDOW = slice(10, 40), slice(20, 70)


class White:
    """Decodes windows of an even height, to white pixels."""

    checked = 0

    def check(self) -> None:
        White.checked += 1

    def decode_window(self, image: LazyJpeg, window: tuple[slice, slice]) -> Image | None:
        rows, columns = window
        shape = (rows.stop - rows.start, columns.stop - columns.start, 3)
        return None if shape[0] % 2 else np.full(shape, 255, np.uint8)


@dataclass
class Opened:
    """As much of a source as a decoder needs."""

    images: list[Croppable]

    def lazy_image(self, index: int) -> Croppable:
        return self.images[index]


def opened() -> LazyJpeg:
    image = lazy_image(small_jpeg(90, 70))
    assert isinstance(image, LazyJpeg)
    return image


def test_a_plugin_decodes_windows_of_full_size() -> None:
    image = _PluginJpeg(opened(), White())
    assert image.shape == (70, 90, 3)
    assert (image[WINDOW] == 255).all()


def test_libjpeg_decodes_what_a_plugin_does_not_and_reduced_windows() -> None:
    image, plain = _PluginJpeg(opened(), White()), opened()
    odd = slice(10, 41), slice(20, 70)
    assert np.array_equal(image[odd], plain[odd])
    reduced = slice(5, 15), slice(10, 30)
    assert np.array_equal(image.decode_window(reduced, 2), plain.decode_window(reduced, 2))


def test_a_plugin_is_checked_once_and_gets_lazy_jpegs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "load_plugin", lambda *names: White)
    monkeypatch.setattr(White, "checked", 0)
    images: list[Croppable] = [opened(), decode(small_jpeg(90, 70))]
    opened_with = open_with_plugin("compiled", Opened(images), Data(), Augment(crop="random-resized"))
    assert opened_with is not None
    name, open_image, fill = opened_with
    assert (name, fill) == ("compiled", None)
    assert White.checked == 1
    assert (open_image(0)[WINDOW] == 255).all()
    assert open_image(1) is images[1]


def test_without_the_plugin_the_setting_is_named_with_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda **names: ())
    with pytest.raises(ConfigError, match="no installed package offers it") as caught:
        open_with_plugin("compiled", Opened([opened()]), Data(), Augment())
    assert caught.value.given == {"machine.backend": "compiled"}
    assert caught.value.works == [("machine.backend", "native")]


def test_reading_images_as_by_default_does_not_load_the_kernels() -> None:
    program = "import sys, vernier.tasks, vernier.data.loading.readers; print('vernier.kernels' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "False"
