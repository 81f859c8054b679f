"""Fixtures of the tests of decoding."""

from collections.abc import Iterator
from functools import partial

import pytest

from tests.kernels.built import AddMarkers
from vernier.compat.preparing.restarts import add_restart_markers, find_writer
from vernier.data.decoding import decode as decode_module
from vernier.errors import ConfigError


@pytest.fixture(scope="session")
def add_markers() -> AddMarkers:
    """Adds restart markers to an image, or skip with the reason."""
    try:
        return partial(add_restart_markers, writer=find_writer())
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def sliced_small_images() -> Iterator[None]:
    """Small images are sliced as if they were large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode_module, "LAZY_FROM_BYTES", 0)
        yield
