"""The run that tests of the core's Python interface use, for those of the laboratory."""

from tests.api.conftest import photo, tiny_run

__all__ = ["photo", "tiny_run"]
