"""Folders that do not belong to a run: Vernier's own code, and the cache of what can be made or fetched again."""

import os
from pathlib import Path

PACKAGE_PARENT = Path(__file__).resolve().parents[1]
"""The folder to put on PYTHONPATH to import this very code."""
REPOSITORY = PACKAGE_PARENT.parent
"""The git checkout, where Vernier runs from one."""


def cache_home() -> Path:
    """$VERNIER_HOME, or vernier/ in $XDG_CACHE_HOME, which is ~/.cache by default."""
    if home := os.environ.get("VERNIER_HOME"):
        return Path(home)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vernier"


def data_home() -> Path:
    """Where data sets are kept."""
    return cache_home() / "data"
