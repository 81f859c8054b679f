"""Fixtures of the tests of decoding."""

from collections.abc import Iterator

import pytest

from vernier.data.decoding import decode as decode_module
from vernier.data.decoding.restarts import RestartMarkers


@pytest.fixture(scope="package")
def markers() -> Iterator[RestartMarkers]:
    """Adds restart markers; its programs run as long as these tests do."""
    with RestartMarkers() as running:
        yield running


@pytest.fixture(scope="module")
def sliced_small_images() -> Iterator[None]:
    """Small images are sliced as if they were large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode_module, "LAZY_FROM_BYTES", 0)
        yield
