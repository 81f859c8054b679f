"""Starts of runs in several processes, as for the tests of those."""

from tests.engine.processes.conftest import start

__all__ = ["start"]
