"""The cores of this process, and every command that asks for them, on systems that have no affinity too."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from vernier.cores import allowed_cores, run_on_cores
from vernier.devices.cpu import Cpu
from vernier.engine.processes.affinity import bind_cores
from vernier.engine.processes.launch import Topology
from vernier.errors import ConfigError
from vernier.lab.study.run import StudySettings, find_targets


def test_the_cores_of_this_process_are_those_it_is_bound_to() -> None:
    assert set(allowed_cores()) == os.sched_getaffinity(0)


def test_all_cores_of_the_machine_where_the_system_has_no_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert allowed_cores() == list(range(os.cpu_count() or 1))


@pytest.fixture
def no_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "sched_setaffinity")


@pytest.mark.usefixtures("no_affinity")
def test_commands_work_where_the_system_has_no_affinity(vernier_here: Callable[..., Done], shapes: Path) -> None:
    assert vernier_here("doctor").code == 0
    assert vernier_here("data", "verify", str(shapes)).code == 0


@pytest.mark.usefixtures("no_affinity")
def test_cores_are_neither_studied_nor_bound_where_the_system_has_no_affinity() -> None:
    with pytest.raises(ConfigError, match="cannot pin a process to a core"):
        find_targets(StudySettings(), Cpu())
    run_on_cores([0])
    assert bind_cores(Topology(), max_cpus=1) == [0]


def test_a_process_can_be_bound_to_cores() -> None:
    before = os.sched_getaffinity(0)
    try:
        run_on_cores([min(before)])
        assert allowed_cores() == [min(before)]
    finally:
        run_on_cores(before)
