"""Fixtures of the tests of decoding, for those of the compiled decoder."""

from tests.data.decoding.conftest import markers, sliced_small_images

__all__ = ["markers", "sliced_small_images"]
