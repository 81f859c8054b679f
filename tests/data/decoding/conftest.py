"""Fixtures of the tests of decoding."""

from collections.abc import Iterator

import pytest

from vernier.data.decoding.restarts import RestartMarkers


@pytest.fixture(scope="package")
def markers() -> Iterator[RestartMarkers]:
    """Adds restart markers; its programs run as long as these tests do."""
    with RestartMarkers() as running:
        yield running
