"""Requests and results of benchmarks as JSON: what this version writes, and what version 0.1 wrote."""

import json
from pathlib import Path
from typing import Any

import pytest

from vernier.config import Config, to_dict
from vernier.errors import ConfigError
from vernier.records.bench import (
    REQUEST_VERSION,
    ArmRequest,
    BenchResult,
    FailedRow,
    ServingRow,
    StepResult,
    StepRow,
    StudyRequest,
    decode_request,
)
from vernier.records.codec import DamagedRecord, decode, encode

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "0.1"


@pytest.mark.parametrize("name", ["bench-train", "bench-infer", "bench-scaling"])
def test_results_of_version_0_1_are_read_and_written_without_loss(name: str) -> None:
    tree: dict[str, Any] = json.loads((GOLDEN / name / "bench.json").read_text())
    result = decode(BenchResult, tree)
    assert result.asked is not None
    assert result.measured == result.rows
    assert all(not isinstance(r, FailedRow) for r in result.rows)
    assert json.loads(json.dumps(encode(result))) == {k: v for k, v in tree.items() if k != "schema"}


def test_rows_know_what_kind_they_are() -> None:
    result = decode(BenchResult, json.loads((GOLDEN / "bench-infer" / "bench.json").read_text()))
    assert {type(r) for r in result.rows} == {StepRow, ServingRow}
    first = next(r.result for r in result.rounds if isinstance(r.result, StepResult))
    assert first.figures.images_per_s_total.value > 0


def test_a_request_keeps_the_keys_that_version_0_1_reads() -> None:
    tree = encode(ArmRequest(what="train", config=to_dict(Config()), scenario="server", load_share=0.5))
    read_by_0_1 = {"what", "config", "plan", "run", "seed", "apart", "scenario", "load_share", "rate_per_s"}
    assert read_by_0_1 <= tree.keys()
    assert set(tree["plan"]) == {"steps", "precision", "max_seconds", "warmup_max_seconds", "split_steps"}
    assert decode_request(json.loads(json.dumps(tree))) == ArmRequest(
        what="train", config=tree["config"], scenario="server", load_share=0.5
    )


def test_a_request_says_whether_it_is_of_a_study() -> None:
    request = StudyRequest(workload="sgemm", iterations=3, device="cpu", cores=(1, 2), pace=Path("/tmp/pace"))
    assert decode_request(json.loads(json.dumps(encode(request)))) == request


def test_a_request_of_a_newer_format_is_refused_with_a_sentence() -> None:
    tree = {**encode(ArmRequest(what="train", config={})), "version": REQUEST_VERSION + 1}
    with pytest.raises(ConfigError, match="reads up to 1"):
        decode_request(tree)
    with pytest.raises(DamagedRecord, match="what"):
        decode_request({"what": "nothing"})
