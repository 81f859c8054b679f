"""Commands that write several files: killed, they are completed by the same command; two at once do not break another.

`python -m tests.chaos.kills --scenario finetune --kills 60` is the long form.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from .commands import COMMANDS
from .fork_server import ForkServer, fork_server
from .kills import Harness, run_scenario
from .results import differences
from .scenarios import Data

BY_NAME = {scenario.name: scenario for scenario in COMMANDS}
KILLS = {"finetune": 2, "export": 2}
REFUSED = {"finetune", "export"}
"""The second of two may be refused: while the first one works, or because its file exists. Of others both end well."""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with fork_server() as running:
        yield running


@pytest.fixture(scope="module")
def data(server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = tmp_path_factory.mktemp("commands") / "data"
    folder.mkdir()
    words = f"data make shapes --out {folder}/images --train 96 --val 40 --size-px 32".split()
    assert server.start(words, folder / "making.log").wait() == 0
    return Data(folder=folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLS)
def test_the_same_command_completes_what_a_kill_left(name: str, server: ForkServer, data: Data, tmp_path: Path) -> None:
    tally = run_scenario(BY_NAME[name], data, tmp_path, server, KILLS[name], seed=20261118)
    assert tally.failures == []
    assert tally.identical == tally.kills


@pytest.mark.slow
@pytest.mark.parametrize("name", ["export", "finetune"])
def test_two_at_once_do_not_break_each_other(name: str, server: ForkServer, data: Data, tmp_path: Path) -> None:
    scenario, out = BY_NAME[name], tmp_path / "both"
    out.mkdir()
    scenario.fill(data, out)
    logs = [tmp_path / "one.log", tmp_path / "other.log"]
    both = [server.start(scenario.arguments(data, out), log, scenario.environ(out)) for log in logs]
    codes = sorted(session.wait() for session in both)
    text = "\n".join(log.read_text() for log in logs)
    assert codes in ([0, 0], [0, 2]) if name in REFUSED else codes == [0, 0], text
    assert "Traceback" not in text
    if codes == [0, 0] and name == "finetune":
        return  # both began at the same moment: two runs
    assert not differences(scenario.result(out), reference_of(name, server, data, tmp_path))


def reference_of(name: str, server: ForkServer, data: Data, work: Path) -> dict[str, object]:
    """The result of a session that was alone."""
    return Harness(BY_NAME[name], data, work / "alone", server, random.Random(1)).reference
