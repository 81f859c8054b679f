import os

import pytest

from vernier.cores import allowed_cores


def test_the_cores_of_this_process_are_those_it_is_bound_to() -> None:
    assert set(allowed_cores()) == os.sched_getaffinity(0)


def test_all_cores_of_the_machine_where_the_system_has_no_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert allowed_cores() == list(range(os.cpu_count() or 1))
