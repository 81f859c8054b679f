"""Benchmarks from Python: the request of the command, and the result as an object."""

import sys
from pathlib import Path
from typing import Any

import pytest

import vernier as v
from tests.cli.bench.conftest import bench_requests  # noqa: F401
from tests.report.bench_results import bench_run, step_row, write_bench
from vernier.api.benchmarks import listed, parse_layout
from vernier.config import read_machine_file
from vernier.measure.tuning.search import Search
from vernier.records.bench import BenchRequest, BenchResult, FailedRow, Layout, TunedSetting

Requests = list[BenchRequest]


def _request(requests: Requests, *arguments: Any, **options: Any) -> BenchRequest:
    with pytest.raises(KeyboardInterrupt):
        v.bench(*arguments, **options)
    return requests.pop()


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (
            ["train", "shapes-quick", "--batch", "4,8", "--precision", "fp32", "--mode", "eager,compile"],
            {"recipe": "shapes-quick", "batch": [4, 8], "precision": "fp32", "mode": ("eager", "compile")},
        ),
        (
            [
                "infer",
                "resnet50",
                "--batch",
                "1",
                "--scenarios",
                "single-stream,server",
                "--loads",
                "0.5",
                "--seed",
                "3",
            ],
            {
                "recipe": "resnet50",
                "kind": "infer",
                "batch": 1,
                "scenarios": ["single-stream", "server"],
                "loads": 0.5,
                "seed": 3,
            },
        ),
        (
            ["infer", "resnet50", "--engine", "torch,auto", "--batch", "1"],
            {"recipe": "resnet50", "kind": "infer", "engine": ["torch", "auto"], "batch": 1},
        ),
        (
            ["scaling", "--procs", "1x1,2x1", "--batch", "32", "--strong", "--apart", "--repeats", "2"],
            {"kind": "scaling", "procs": ["1x1", "2x1"], "batch": 32, "strong": True, "apart": True, "repeats": 2},
        ),
        (
            ["train", "--max-seconds", "3", "--precision-target", "0.02", "--set", "optim.lr=0.5", "--device", "cpu"],
            {"max_seconds": 3, "precision_target": 0.02, "settings": {"optim.lr": 0.5}, "device": "cpu"},
        ),
    ],
)
def test_a_call_asks_for_what_the_command_asks_for(
    words: list[str],
    options: dict[str, Any],
    bench_requests: Requests,  # noqa: F811
    vernier_here: Any,
) -> None:
    vernier_here("bench", *words, "--data", "synthetic")
    assert _request(bench_requests, data="synthetic", **options) == bench_requests.pop()


def test_inference_of_a_run_is_measured_with_its_weights(
    tiny_run: v.Run,
    bench_requests: Requests,  # noqa: F811
) -> None:
    request = _request(bench_requests, tiny_run, "infer")
    assert (request.weights_of, request.config["recipe"]["model"]["width"]) == (str(tiny_run.path), 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": "resnet5"}, r"There is no recipe or network 'resnet5'\. Did you mean resnet50"),
        ({"kind": "trian"}, r"kind='trian' is not known\. Did you mean train"),
        ({"batch": 0}, "0 is out of range: it must be a whole number of 1 or more"),
        ({"precision": ["fp32", "fp64"]}, "precision='fp64': choose from fp32, tf32, bf16, fp16"),
        ({"kind": "scaling"}, "needs procs, such as"),
        ({"kind": "scaling", "procs": [1, "2x1"]}, "procs=1,2x1: give threads with all of them"),
        ({"repeats": 0}, "repeats=0 is out of range"),
        ({"tolerance": 3}, "tolerance='3' is not a share"),
        ({"kind": "infer", "scenarios": "serve"}, "choose from offline, single-stream, server"),
        ({"kind": "infer", "rate": -1}, "arrivals per second must be more than 0"),
        ({"procs": "two"}, "procs='two' is not a number of processes"),
    ],
)
def test_what_cannot_be_measured_is_explained(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(v.ConfigError, match=message):
        v.bench(out=tmp_path / "runs", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_result_has_rates_rows_and_a_table(tmp_path: Path) -> None:
    rows = (step_row(8, 100.0), step_row(16, 120.0), FailedRow(arm="batch=64", batch=64, status="out-of-memory"))
    bench = v.Benchmark(write_bench(tmp_path, BenchResult(what_ran="resnet50", rows=rows)))
    assert {arm: rate.value for arm, rate in bench.rates.items()} == {"batch=8": 100.0, "batch=16": 120.0}
    assert [row["batch"] for row in bench.table()] == ["8", "16", "64"]
    assert bench.table()[2]["img/s total"] == "out-of-memory"
    assert len(bench.rows) == 3
    assert not bench.slower
    assert repr(bench) == f"Benchmark({bench.path}, batch=8: 100 [90, 110] img/s, batch=16: 120 [108, 132] img/s)"
    assert "| 16 | 120 [108, 132] |" in str(bench)
    assert "--" not in str(bench).replace("---", "")
    assert "id=&#34;benchmarks&#34;" in bench._repr_html_()
    assert Path(bench) == bench.path


def test_both_tables_of_a_scaling_benchmark_are_one(tmp_path: Path) -> None:
    more = {"scaling": "weak", "speedup": 1.9, "efficiency": 0.95, "devices": 2}
    rows = (
        step_row(8, 100.0, scaling="weak", base=True, speedup=1.0, efficiency=1.0),
        step_row(8, 190.0, arm="b", procs=2, **more),
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


def test_values_are_one_or_several_without_duplicates() -> None:
    assert listed(None, int) == ()
    assert listed("3", int) == (3,)
    assert listed([4, "8", 4], int) == (4, 8)
    assert parse_layout("2x4") == Layout(procs=2, threads=4)


def test_a_machine_file_is_part_of_the_request(bench_requests: Requests, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "machine.toml"
    path.write_text("[machine]\nthreads = 1\neval_batch = 4\n")
    request = _request(bench_requests, "resnet8-small", "infer", machine=path)
    assert (request.config["machine"]["threads"], request.config["machine"]["eval_batch"]) == (1, 4)
    assert any(str(path) in note for note in request.notes or ())


def test_tuning_returns_what_was_measured_and_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(search: Search) -> None:
        search.settings.append(TunedSetting(name="threads", before="2", chosen="2", left_out="no other"))

    monkeypatch.setattr(Search, "run", run)
    out = tmp_path / "machine.toml"
    tuning = v.tune("resnet8-small", "infer", batch=8, out=out, settings={"machine.threads": 1}, quiet=True)
    assert tuning.path == out
    assert tuning.machine == {"eval_batch": 8, "threads": 1}
    assert tuning.table()[0]["result"] == "not tried: no other"
    assert "the defaults stay" in repr(tuning)
    assert read_machine_file(Path(tuning)).settings == tuning.machine
    with pytest.raises(v.ConfigError, match="overwrite=True to replace it"):
        v.tune("resnet8-small", out=out)
    with pytest.raises(v.ConfigError, match="kind='traim' is not known"):
        v.tune(kind="traim")  # type: ignore[arg-type]


def test_an_interrupted_tuning_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: Search) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "run", run)
    with pytest.raises(v.Interrupted, match="nothing was written"):
        v.tune("resnet8-small", out=tmp_path / "machine.toml", quiet=True)
    assert not list(tmp_path.iterdir())
