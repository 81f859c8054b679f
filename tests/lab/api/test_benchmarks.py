"""Benchmarks from Python: the request of the command, and the result as an object."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vernier as v
from tests.refusals import names_given
from tests.report.bench_results import bench_run, step_row, write_bench
from vernier.lab.api.benchmarks import build_request, parse_layout
from vernier.lab.records.bench import BenchRequest, BenchResult, FailedRow, Layout
from vernier.lab.requests.benchmarks import BenchInfer, BenchScaling, BenchTrain
from vernier.lab.statistics.comparison import DEFAULT_RUNS

Requests = list[BenchRequest]


def _request(requests: Requests, call: Callable[..., v.Benchmark], *arguments: Any, **options: Any) -> BenchRequest:
    with pytest.raises(KeyboardInterrupt):
        call(*arguments, **options)
    return requests.pop()


@pytest.mark.parametrize(
    ("words", "call", "options"),
    [
        (
            "train shapes-quick --batch 4,8 --precision fp32 --mode eager,compile",
            v.bench_train,
            {"recipe": "shapes-quick", "batch": [4, 8], "precision": "fp32", "mode": ("eager", "compile")},
        ),
        (
            "infer resnet50 --batch 1 --scenarios single-stream,offline --seed 3",
            v.bench_infer,
            {"recipe": "resnet50", "batch": 1, "scenarios": ["single-stream", "offline"], "seed": 3},
        ),
        (
            "infer resnet50 --engine torch,auto --batch 1",
            v.bench_infer,
            {"recipe": "resnet50", "engine": ["torch", "auto"], "batch": 1},
        ),
        (
            "scaling --procs 1x1,2x1 --batch 32 --strong --apart --repeats 2",
            v.bench_scaling,
            {"procs": ["1x1", "2x1"], "batch": 32, "strong": True, "apart": True, "repeats": 2},
        ),
        (
            "train --max-time 3s --target-width 2% --set optim.lr=0.5 --device cpu",
            v.bench_train,
            {"max_time": "3s", "target_width": 0.02, "settings": {"optim.lr": 0.5}, "device": "cpu"},
        ),
    ],
)
def test_a_call_measures_what_the_command_measures(
    words: str,
    call: Callable[..., v.Benchmark],
    options: dict[str, Any],
    bench_requests: Requests,
    vernier_here: Any,
) -> None:
    vernier_here("bench", *words.split(), "--data", "synthetic")
    assert _request(bench_requests, call, data="synthetic", **options) == bench_requests.pop()


def test_the_old_function_is_the_new_ones_with_a_warning(bench_requests: Requests) -> None:
    for kind, call in (("train", v.bench_train), ("infer", v.bench_infer)):
        new = _request(bench_requests, call, "resnet8-small", batch=4)
        with pytest.warns(FutureWarning, match=f"bench_{kind}"):
            assert _request(bench_requests, v.bench, "resnet8-small", kind, batch=4) == new
    with pytest.raises(v.ConfigError, match="trian"):
        v.bench(kind="trian")


def test_inference_of_a_run_is_measured_with_its_weights(tiny_run: v.Run, bench_requests: Requests) -> None:
    request = _request(bench_requests, v.bench_infer, tiny_run)
    assert (request.weights_of, request.config["recipe"]["model"]["width"]) == (str(tiny_run.path), 8)


@pytest.mark.parametrize(
    ("request_", "precision"),
    [
        (BenchTrain(data="synthetic"), 0.01),
        (BenchTrain(data="synthetic", target_width="0.5%"), 0.005),
    ],
)
def test_as_often_is_measured_as_the_power_of_comparisons_was_shown_for(request_: BenchTrain, precision: float) -> None:
    measured = build_request(request_)
    assert (measured.repeats, measured.plan.precision) == (DEFAULT_RUNS, precision)
    assert (measured.plan.max_seconds, measured.plan.alone) == (20.0, None)


def test_options_become_the_configuration_that_is_measured() -> None:
    request = BenchTrain(
        recipe="shapes-quick",
        device="cpu",
        settings=("optim.lr=0.5",),
        data="synthetic",
        batch=(2, 4),
        procs=("1", "2x1"),
        memory_limit=1.5,
    )
    measured = build_request(request)
    assert measured.batches == (2, 4)
    assert measured.layouts == (Layout(procs=1), Layout(procs=2, threads=1))
    assert measured.memory_limit_bytes == 3 * 2**29
    recipe = measured.config["recipe"]
    assert (recipe["data"]["source"], recipe["optim"]["lr"]) == ("synthetic", 0.5)


def test_without_a_batch_the_recipes_own_is_taken_as_far_as_the_device_takes_it() -> None:
    measured = build_request(BenchInfer(recipe="resnet50", device="cpu"))
    assert (measured.batches, measured.config["machine"]["eval_batch"]) == ((), 32)
    assert measured.notes
    assert build_request(BenchScaling(procs=("1",), batch=12, data="synthetic")).config["recipe"]["global_batch"] == 12


def test_a_layout_is_processes_and_threads() -> None:
    assert parse_layout("2x4") == Layout(procs=2, threads=4)
    assert parse_layout("3") == Layout(procs=3)
    for text in ("two", "0", "2x", "x2", "-1"):
        with pytest.raises(v.ConfigError) as refused:
            parse_layout(text)
        assert refused.value.given == {"machine.procs": text}


@pytest.mark.parametrize(
    ("call", "options", "given"),
    [
        (v.bench_train, {"batch": 0}, "batch"),
        (v.bench_train, {"precision": ["fp32", "fp64"]}, "precision"),
        (v.bench_train, {"repeats": 0}, "repeats"),
        (v.bench_train, {"procs": "two"}, "machine.procs"),
        (v.bench_train, {"max_time": 20}, "max_time"),
        (v.bench_scaling, {"procs": [1, "2x1"]}, "machine.procs"),
        (v.bench_infer, {"scenarios": "serve"}, "scenarios"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_its_argument(
    call: Callable[..., object], options: dict[str, Any], given: str, tmp_path: Path
) -> None:
    with pytest.raises(v.ConfigError) as refused:
        call(**options, out=tmp_path / "runs")
    assert names_given(refused.value) == given
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_or_misspelt_is_named() -> None:
    with pytest.raises(v.ConfigError, match="procs"):
        v.bench_scaling()
    with pytest.raises(v.ConfigError, match="resnet50"):
        v.bench_train("resnet5")


def test_a_result_has_rates_rows_and_a_table(tmp_path: Path) -> None:
    rows = (
        step_row(8, 100.0),
        step_row(16, 120.0),
        FailedRow(configuration="batch=64", batch=64, status="out-of-memory"),
    )
    bench = v.Benchmark(write_bench(tmp_path, BenchResult(what_ran="resnet50", rows=rows)))
    assert {configuration: rate.value for configuration, rate in bench.rates.items()} == {
        "batch=8": 100.0,
        "batch=16": 120.0,
    }
    assert [row["batch"] for row in bench.table()] == ["8", "16", "64"]
    assert bench.table()[2]["img/s total"] == "out-of-memory"
    assert len(bench.rows) == 3
    assert repr(bench) == f"Benchmark({bench.path}, batch=8: 100 [90, 110] img/s, batch=16: 120 [108, 132] img/s)"
    assert "| 16 | 120 [108, 132] |" in str(bench)
    assert "--" not in str(bench).replace("---", "")
    assert "id=&#34;benchmarks&#34;" in bench._repr_html_()
    assert Path(bench) == bench.path


def test_both_tables_of_a_scaling_benchmark_are_one(tmp_path: Path) -> None:
    more = {"scaling": "weak", "speedup": 1.9, "efficiency": 0.95, "devices": 2}
    rows = (
        step_row(8, 100.0, scaling="weak", base=True, speedup=1.0, efficiency=1.0),
        step_row(8, 190.0, configuration="b", procs=2, **more),
    )
    bench = v.Benchmark(write_bench(tmp_path, BenchResult(rows=rows)))
    assert [(row["procs"], row["efficiency"], "data wait" in row) for row in bench.table()] == [
        ("1", "100.0 % [no interval]", True),
        ("2", "95.0 % [no interval]", True),
    ]


def test_a_table_of_pandas_or_the_command_that_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = v.Benchmark(bench_run(tmp_path))
    pytest.importorskip("pandas")
    assert list(bench.to_pandas()["batch"]) == [row["batch"] for row in bench.table()]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(v.ConfigError, match="pip install"):
        bench.to_pandas()


def test_what_is_no_benchmark_is_explained(tiny_run: v.Run) -> None:
    with pytest.raises(v.ConfigError, match="is not a benchmark"):
        v.Benchmark(tiny_run)


def test_a_machine_file_is_part_of_the_request(bench_requests: Requests, tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    path.write_text("[machine]\nthreads = 1\neval_batch = 4\n")
    request = _request(bench_requests, v.bench_infer, "resnet8-small", machine=path)
    assert (request.config["machine"]["threads"], request.config["machine"]["eval_batch"]) == (1, 4)
    assert any(str(path) in note for note in request.notes or ())
