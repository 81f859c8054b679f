"""A bounded part of `python -m tests.chaos.faults`: some operations with each fault."""

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest

from vernier.store import Checkpoints

from . import one_save
from .faults import FAULTS, Benches, Trial
from .tracing import Server, missing
from .trainings import working_folder

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "-")]


@pytest.fixture(scope="module")
def benches() -> Iterator[Benches]:
    with working_folder() as work, Benches(work, jobs=1) as benches:
        yield benches


@pytest.fixture(scope="module")
def counts(benches: Benches) -> dict[str, int]:
    return benches.counts()


def test_every_fault_has_operations_it_can_happen_to(counts: dict[str, int]) -> None:
    assert set(counts) == set(FAULTS)
    assert min(counts.values()) > 40


@pytest.mark.parametrize(
    ("fault", "persistent"),
    [
        ("ENOSPC", True),
        ("EDQUOT", False),
        ("EROFS", True),
        ("EIO", True),
        ("EIO", False),
        ("EMFILE", False),
        ("EINTR", False),
        ("short write", True),
    ],
)
def test_a_failing_disk_never_loses_a_checkpoint_and_the_same_command_ends_the_same(
    benches: Benches, counts: dict[str, int], fault: str, persistent: bool
) -> None:
    first = random.Random(f"{fault} {persistent}").randrange(1, counts[fault] + 1)
    assert benches.try_out(Trial(fault, first, persistent)).problem == ""


@pytest.mark.parametrize("persistent", [False, True], ids=["once", "from then on"])
def test_any_operation_of_a_save_may_fail(persistent: bool) -> None:
    """All of them, with an error that every operation can have."""
    with working_folder() as work, Server(work, work / "server", module="tests.chaos.one_save") as server:
        run, first, lost = work / "checkpoints", 0, []
        while True:
            first += 1
            shutil.rmtree(run, ignore_errors=True)
            run.mkdir()
            one_save.prepare(run)
            plan = replace(FAULTS["EIO"], first=first, persistent=persistent)
            ending = server.run(str(run), plan=plan)
            if not any(record.fault for record in ending.records):
                break
            Checkpoints(run).tidy()
            newest = Checkpoints(run).newest()
            if "Traceback" in ending.output or newest is None or newest.step < ending.code:
                lost.append((first, ending.records[0], newest, ending.code, ending.output))
    assert lost == []
    assert first > 60
