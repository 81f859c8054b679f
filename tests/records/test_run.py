"""Summaries and results of a run."""

import json

import pytest

from tests.conftest import REPO
from vernier.records.codec import decode, encode
from vernier.records.run import CheckpointState, EvalResult, EvaluationReport, Progress, RunStatus

GOLDEN = REPO / "tests" / "golden" / "0.1"


@pytest.mark.parametrize("run", ["classifier", "detector"])
def test_run_files_of_the_first_version_are_read_and_written_alike(run: str) -> None:
    tree = json.loads((GOLDEN / run / "run.json").read_text())
    status = decode(RunStatus, tree)
    assert status.summary is not None
    assert json.loads(json.dumps(encode(status.summary))) == tree["summary"]


@pytest.mark.parametrize("name", ["classifier-eval.json", "detector-eval.json"])
def test_evaluations_of_the_first_version_are_read_and_written_alike(name: str) -> None:
    tree = json.loads((GOLDEN / name).read_text())
    assert json.loads(json.dumps(encode(decode(EvaluationReport, tree)))) == tree


def test_figures_stand_beside_the_other_fields() -> None:
    tree = encode(EvalResult(samples=5, figures={"top1": 50.0, "loss": None}))
    assert (tree["top1"], tree["loss"], tree["samples"]) == (50.0, None, 5)
    assert "detections" not in tree
    assert decode(EvalResult, tree).figures == {"top1": 50.0, "loss": None}


@pytest.mark.parametrize("run", ["classifier", "detector", "stopped"])
def test_checkpoints_of_the_first_version_are_read_and_written_alike(run: str) -> None:
    for path in sorted((GOLDEN / run).rglob("state.json")):
        tree = json.loads(path.read_text())
        state = decode(CheckpointState, tree)
        assert {"schema": tree["schema"], **json.loads(json.dumps(encode(state)))} == tree


def test_progress_survives_a_round_trip_with_whole_and_broken_numbers() -> None:
    scaler: dict[str, int | float] = {"scale": 65536.0, "_growth_tracker": 3}
    progress = Progress(step=3, scaler=scaler, result=EvalResult(samples=5, figures={"top1": 1.5, "APm": None}))
    again = decode(Progress, json.loads(json.dumps(encode(progress))))
    assert again == progress
    assert isinstance((again.scaler or {})["_growth_tracker"], int)
