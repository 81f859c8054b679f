"""The runs that the tests of the common form use, too."""

from tests.lab.logs.conftest import run, windows

__all__ = ["run", "windows"]
