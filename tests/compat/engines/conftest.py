"""Tests of engines keep exported networks in a folder of their own, and need the packages that export."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path / "home"))
    yield tmp_path / "home" / "engines"
    torch.set_num_threads(threads)
