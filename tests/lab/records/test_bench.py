"""Requests and results of benchmarks as JSON: what this version writes, and what version 0.1 wrote."""

import json
from pathlib import Path
from typing import Any

import pytest

from vernier.config import Config, to_dict
from vernier.lab.records.bench import (
    BenchResult,
    FailedRow,
    MeasureRequest,
    Request,
    StepResult,
    StepRow,
    StudyRequest,
    decode_request,
    read_bench,
)
from vernier.records.codec import DamagedRecord, decode, encode

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "0.1"


@pytest.mark.parametrize("name", ["bench-train", "bench-infer", "bench-scaling"])
def test_results_of_version_0_1_are_read_and_written_without_loss(name: str) -> None:
    tree: dict[str, Any] = json.loads((GOLDEN / name / "bench.json").read_text())
    # The server scenario is gone: its rows are left out.
    for each in (*tree["rows"], *(one["result"] for one in tree["rounds"])):
        for gone in ("matmul", "share_of_matmul"):
            (each.get("flops") or {}).pop(gone, None)
    served = [row for row in tree["rows"] if "kept_up" in row]
    tree["rows"] = [row for row in tree["rows"] if row not in served]
    tree["rounds"] = [each for each in tree["rounds"] if "queries" not in each["result"]["figures"]]
    result = decode(BenchResult, tree)
    assert bool(served) == (name == "bench-infer")
    assert read_bench(GOLDEN / name).rows == result.rows
    assert result.asked is not None
    assert result.measured == result.rows
    assert all(not isinstance(r, FailedRow) for r in result.rows)
    # What belonged to comparisons with another version, which `bench` no longer makes.
    for gone in ("against", "tolerance", "loads", "rate_per_s"):
        del tree["asked"][gone]
    written = {key: value for key, value in tree.items() if key not in ("schema", "compared")}
    assert json.loads(json.dumps(encode(result))) == written


def test_rows_know_what_kind_they_are() -> None:
    result = read_bench(GOLDEN / "bench-infer")
    assert {type(r) for r in result.rows} == {StepRow}
    first = next(r.result for r in result.rounds if isinstance(r.result, StepResult))
    assert first.figures.images_per_s_total.value > 0


@pytest.mark.parametrize(
    "request_",
    [
        MeasureRequest(what="train", config=to_dict(Config()), scenario="offline"),
        StudyRequest(workload="sgemm", iterations=3, device="cpu", cores=(1, 2)),
    ],
)
def test_a_request_is_read_as_the_kind_it_is(request_: Request) -> None:
    assert decode_request(json.loads(json.dumps(encode(request_)))) == request_


def test_what_is_no_request_is_refused() -> None:
    with pytest.raises(DamagedRecord, match="config"):
        decode_request({"what": "nothing"})
