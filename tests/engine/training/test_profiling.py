"""The contract of profilers: one that plugs in is used, and without one the reason is given."""

from pathlib import Path

import pytest

from vernier import plugins
from vernier.engine.training.profiling import open_profiler
from vernier.errors import ConfigError
from vernier.measure.profiles import StepRange


def test_without_a_package_that_profiles_the_reason_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plugins, "_loaded", lambda group: ({}, ["mine.profiler:P (no such module)"]))
    with pytest.raises(ConfigError, match=r"no installed package offers it.*mine\.profiler:P"):
        open_profiler(StepRange(1, 2), tmp_path, lambda: None, 0)


def test_the_profiler_that_plugs_in_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened: list[object] = []
    monkeypatch.setattr(plugins, "_loaded", lambda group: ({"mine": lambda *given: opened.append(given)}, []))
    open_profiler(StepRange(3, 5), tmp_path, lambda: None, 1)
    assert opened[0][:2] == (StepRange(3, 5), tmp_path)  # type: ignore[index]
    assert opened[0][3] == 1  # type: ignore[index]
