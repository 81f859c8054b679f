"""Summaries and results of a run."""

import json

import pytest

from tests.conftest import REPO
from vernier.records.codec import decode, encode
from vernier.records.run import EvalResult, EvaluationReport, RunStatus

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
