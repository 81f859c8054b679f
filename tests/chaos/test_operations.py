"""Commands killed at changes of the disk, on a full disk and after power cuts: a few of each.

`python -m tests.chaos.operations` tries all.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from vernier.data import trusted

from .disk_model import Disk
from .operations import PROGRAMS, attack, make_inputs
from .tracing import Server, missing
from .trainings import working_folder

CHEAP = ("data get", "data prepare, raw", "export", "cache of engines", "cache of compiled kernels")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Path, Server]]:
    with working_folder() as work:
        make_inputs(work)
        (work / "root").mkdir()
        with Server(work / "root", work / "server", "tests.chaos.traced_commands") as running:
            yield work, running


@pytest.mark.parametrize("name", CHEAP)
def test_the_same_command_completes_what_is_left(server: tuple[Path, Server], name: str) -> None:
    (program,) = (each for each in PROGRAMS if each.name == name)
    found = attack(program, *server, stride=30, states=100 if program.cache else 3, seed=20261119)
    assert [problem for each in found.values() for problem in each.problems] == []
    assert all(each.trials for each in found.values())


@pytest.mark.parametrize("checked", [True, False])
def test_a_disk_that_keeps_nothing_damages_the_cache_and_its_check_notices(
    server: tuple[Path, Server], monkeypatch: pytest.MonkeyPatch, checked: bool
) -> None:
    monkeypatch.setattr(Disk, "_sync_node", lambda *_: None)
    if not checked:
        monkeypatch.setattr(trusted, "is_sound", lambda path, **_: path.exists())
    (program,) = (each for each in PROGRAMS if each.name == "cache of engines")
    assert bool(attack(program, *server, stride=100, states=300, seed=1)["power cut"].problems) != checked
