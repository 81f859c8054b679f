"""state.json of a checkpoint."""

import json

import pytest

from tests.conftest import REPO
from vernier.records.checkpoint import CheckpointState, Progress
from vernier.records.codec import decode, encode
from vernier.records.run import EvalResult


@pytest.mark.parametrize("run", ["classifier", "detector", "stopped"])
def test_checkpoints_of_the_first_version_are_read_and_written_alike(run: str) -> None:
    for path in sorted((REPO / "tests" / "golden" / "0.1" / run).rglob("state.json")):
        tree = json.loads(path.read_text())
        state = decode(CheckpointState, tree)
        assert {"schema": tree["schema"], **json.loads(json.dumps(encode(state)))} == tree


def test_progress_survives_a_round_trip_with_whole_and_broken_numbers() -> None:
    scaler: dict[str, int | float] = {"scale": 65536.0, "_growth_tracker": 3}
    progress = Progress(step=3, scaler=scaler, result=EvalResult(samples=5, figures={"top1": 1.5, "APm": None}))
    again = decode(Progress, json.loads(json.dumps(encode(progress))))
    assert again == progress
    assert isinstance((again.scaler or {})["_growth_tracker"], int)
