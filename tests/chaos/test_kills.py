"""A few kills of each kind in every run of the tests; `make chaos` makes a thousand of them."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from .fork_server import ForkServer, fork_server, kill
from .kills import Harness, Tally, make_data, run_scenario, table
from .results import differences
from .scenarios import SCENARIOS, Data

KILLS = {
    "classifier, fp32": 5,
    "accumulation, MixUp, CutMix, EMA": 4,
    "fp16, dynamic loss scale": 2,
    "growing images": 2,
    "detector": 3,
    "2 processes of another launcher": 1,
    "data prepare, shards": 3,
    "built-in data": 2,
    "tables of tar shards": 2,
    "tables of TFRecords": 2,
}
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with fork_server() as running:
        yield running


@pytest.fixture(scope="module")
def data(server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Data:
    return make_data(tmp_path_factory.mktemp("chaos") / "data", server)


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLS)
def test_a_killed_session_leaves_no_trace_in_the_result(
    name: str, server: ForkServer, data: Data, tmp_path: Path
) -> None:
    tally = run_scenario(BY_NAME[name], data, tmp_path, server, KILLS[name], seed=20261117)
    assert tally.failures == []
    assert tally.identical == tally.kills


@pytest.mark.slow
def test_a_result_that_differs_in_one_bit_is_seen(server: ForkServer, data: Data, tmp_path: Path) -> None:
    harness = Harness(BY_NAME["classifier, fp32"], data, tmp_path, server, random.Random(1))
    (run,) = (p for p in (tmp_path / "reference").iterdir() if p.is_dir() and p.name != "home")
    weights = run / "checkpoints" / "step-00000018" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    events = run / "events.jsonl"
    lines = events.read_text().splitlines(keepends=True)
    events.write_text("".join(line for line in lines if '"kind": "step", "step": 7,' not in line))
    seen = [
        line.partition(":")[0]
        for line in differences(harness.scenario.result(tmp_path / "reference"), harness.reference)
    ]
    assert seen == ["step-00000018/model.safetensors", "step 7"]


@pytest.mark.slow
def test_an_exit_code_and_a_signal_of_a_forked_session_are_told_apart(server: ForkServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert server.start(["train", "nosuchrecipe"], log).wait() == 2
    assert "nosuchrecipe" in log.read_text()
    session = server.start(["data", "make", "shapes", "--out", str(tmp_path / "set")], log)
    kill(session.pid)
    assert session.wait() == -9
    assert not session.running()
    assert session.processes() == []


def test_the_table_has_a_row_per_scenario_and_their_sum() -> None:
    lines = table({"a": Tally(kills=3, identical=3, chains=1), "b": Tally(kills=1_000, identical=999, chains=400)})
    assert lines.splitlines()[2].startswith("| a | 3 | 3 | 1 |")
    assert lines.splitlines()[-1].startswith("| total | 1,003 | 1,002 | 401 |")


def test_the_scenarios_share_a_thousand_kills() -> None:
    assert sum(scenario.kills for scenario in SCENARIOS) == 1000
    assert set(KILLS) <= set(BY_NAME)
