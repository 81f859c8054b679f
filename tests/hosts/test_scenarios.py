"""Two hosts for real: a poor network, a cut, a firewall, and an elastic run. `python -m tests.hosts` plays all."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.fork_server import ForkServer, fork_server

from .machines import why_not
from .scenarios import IN_CI, Scenario, play


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    if why := why_not():
        pytest.skip(f"network namespaces: {why}")
    with fork_server() as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("scenario", IN_CI, ids=lambda scenario: scenario.__name__)
def test_two_hosts(scenario: Scenario, server: ForkServer, shapes: Path, tmp_path: Path) -> None:
    play(scenario, server, shapes, tmp_path)
