"""Fixtures of the tests of preparing: those of data."""

from tests.data.conftest import ilsvrc

__all__ = ["ilsvrc"]
