"""`vernier bench` as it is typed: what is measured, what is printed, and what is refused before anything runs."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import Done
from tests.refusals import config_error_of, names_given, what_works
from tests.report.bench_results import bench_run
from vernier.config import config_from_tree
from vernier.lab.bench.configurations import configurations_of
from vernier.lab.bench.session import Outcome
from vernier.lab.cli import benchmarks
from vernier.lab.records.bench import BenchRequest, Layout, read_bench
from vernier.store import RunDir

Vernier = Callable[..., Done]
Requests = list[BenchRequest]

# ------------------------------------------------------------------------------------------------- train and scaling


def test_train_measures_every_batch_and_precision(vernier_here: Vernier, bench_requests: Requests) -> None:
    vernier_here("bench", "train", "--batch", "1,8", "--precision", "fp32,bf16", "--procs", "2", "--data", "static")
    (request,) = bench_requests
    assert (request.what, request.batches, request.precisions) == ("train", (1, 8), ("fp32", "bf16"))
    assert request.layouts == (Layout(procs=2),)
    assert request.config["recipe"]["data"]["source"] == "static"
    assert request.config["recipe"]["eval"]["every_epochs"] == 0


def test_scaling_adds_layouts_without_exchange_where_several_processes_would_exchange(
    vernier_here: Vernier, bench_requests: Requests
) -> None:
    vernier_here("bench", "scaling", "--procs", "1x1,2x1", "--apart", "--batch", "12", "--strong")
    (request,) = bench_requests
    layouts = (Layout(procs=1, threads=1), Layout(procs=2, threads=1), Layout(procs=2, threads=1, apart=True))
    assert (request.scaling, request.layouts) == ("strong", layouts)
    assert request.config["recipe"]["global_batch"] == 12


@pytest.mark.parametrize(
    ("words", "given", "works"),
    [
        ("scaling --procs 1x1,2", "machine.procs", ""),
        ("scaling --procs two", "machine.procs", ""),
        ("scaling --procs 0", "machine.procs", ""),
        ("train --repeats 0", "repeats", ""),
        ("train --steps -1", "steps", ""),
        ("train --max-seconds 0", "max_time", ""),
        ("train --max-time 0s", "max_time", ""),
        ("train --batch 0", "batch", ""),
        ("train --batch x", "batch", ""),
        ("train --batch ,", "batch", ""),
        ("train --precision fp32,fp64", "precision", ""),
        ("train --memory-limit 0", "memory_limit", ""),
    ],
)
def test_what_cannot_be_measured_is_refused_by_its_option(words: str, given: str, works: str) -> None:
    error = config_error_of("bench", *words.split())
    assert (names_given(error), what_works(error)) == (given, works)


def test_the_processes_of_a_scaling_benchmark_have_to_be_given(vernier_here: Vernier) -> None:
    done = vernier_here("bench", "scaling")
    assert (done.code, "--procs" in done.err) == (2, True)


# ---------------------------------------------------------------------------------------------------------- inference


def test_scenarios_are_part_of_the_request(vernier_here: Vernier, bench_requests: Requests) -> None:
    vernier_here("bench", "infer", "--scenarios", "offline,single-stream", "--batch", "1")
    (request,) = bench_requests
    assert (request.what, request.scenarios) == ("infer", ("offline", "single-stream"))


def test_engines_are_configurations_and_int8_is_one_more_precision_of_those_that_have_it(
    vernier_here: Vernier, bench_requests: Requests, shapes: Path
) -> None:
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    chosen = ["--engine", "torch,onnxruntime,auto", "--int8", "--batch", "1", "--data", str(shapes)]
    done = vernier_here("bench", "infer", *chosen)
    assert bench_requests, done.err
    configurations = [(a.labels.engine, a.labels.precision) for a in configurations_of(bench_requests[0])]
    assert configurations == [
        ("torch", "fp32"),
        ("onnxruntime", "fp32"),
        ("auto", "fp32"),
        ("onnxruntime", "int8"),
        ("auto", "int8"),
    ]
    machines = [config_from_tree(a.request.config).machine for a in configurations_of(bench_requests[0])]
    assert [(m.engine, m.int8, m.precision) for m in machines[2:4]] == [
        ("auto", False, "fp32"),
        ("onnxruntime", True, "fp32"),
    ]


@pytest.mark.parametrize(
    ("words", "given", "works"),
    [
        ("--scenarios online", "scenarios", ""),
        ("{external} --model resnet18", "model recipe", ""),
        ("--engine tensorrt", "engine", ""),
        (
            "--engine onnxruntime --mode eager,compile",
            "machine.engine machine.mode",
            "machine.mode=eager machine.engine=torch",
        ),
        (
            "--engine auto --precision bf16",
            "machine.engine machine.precision",
            "machine.int8=true machine.precision=fp32 machine.engine=torch",
        ),
        ("--engine onnxruntime --device cuda", "machine.device machine.engine", "machine.engine=torch"),
        ("--int8", "machine.int8", "machine.engine=onnxruntime machine.engine=auto"),
        ("--set machine.convolution=winograd", "machine.convolution", ""),
        ("--engine auto --int8 --data synthetic", "machine.int8", "data.source=PATH"),
    ],
)
def test_what_inference_cannot_do_is_refused_by_its_option(words: str, given: str, works: str, tmp_path: Path) -> None:
    external = tmp_path / "external.pth"
    torch.save({"conv1.weight": torch.zeros(1)}, external)
    error = config_error_of("bench", "infer", *words.format(external=external).split())
    assert (names_given(error), what_works(error)) == (given, works)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--run nowhere", "nowhere"),
        ("shapes-quick --run runs/x", "shapes-quick"),
        ("{junk}", "junk.onnx"),
        ("{external}", "vernier export"),
    ],
)
def test_files_that_cannot_be_measured_are_named(vernier_here: Vernier, words: str, named: str, tmp_path: Path) -> None:
    junk, external = tmp_path / "junk.onnx", tmp_path / "external.pth"
    junk.write_bytes(b"no model")
    torch.save({"conv1.weight": torch.zeros(1)}, external)
    done = vernier_here("bench", "infer", *words.format(junk=junk, external=external).split())
    assert done.code == 2
    assert named in done.err


# ---------------------------------------------------------------------------------------------- results and processes


def test_a_result_is_printed_as_tables_or_as_json(
    vernier_here: Vernier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDir.open(bench_run(tmp_path))
    outcome = Outcome(run=run, result=read_bench(run.path), stopped=False)
    monkeypatch.setattr(benchmarks, "measure", lambda *_: outcome)
    done = vernier_here("bench", "train")
    assert done.code == 0, done.err
    assert f"run        {run.path}" in done.out
    document = vernier_here("bench", "train", "--json").json()
    assert (document["run"], document["stopped"], "rounds" in document) == (str(run.path), False, False)
    assert len(document["rows"]) == len(outcome.result.rows)


def test_ctrl_c_is_its_own_exit_code(vernier_here: Vernier, bench_requests: Requests) -> None:
    assert vernier_here("bench", "train").code == 130
    assert len(bench_requests) == 1


def test_a_table_that_is_wider_than_the_terminal_has_a_column_per_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    table = [{"batch": "8", "img/s total": "88.8 [80.1, 97.2]"}, {"batch": "16", "img/s total": "101 [99, 103]"}]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert benchmarks._turned_if_too_wide(table) == table
    monkeypatch.setenv("COLUMNS", "20")
    assert benchmarks._turned_if_too_wide(table)[0] == {"": "batch", "row 1": "8", "row 2": "16"}


@pytest.mark.parametrize(
    "request_text",
    [
        "no JSON",
        json.dumps({"what": "train"}),
    ],
)
def test_a_request_of_another_process_that_cannot_be_read_is_refused(
    vernier_here: Vernier, tmp_path: Path, request_text: str
) -> None:
    (tmp_path / "request").write_text(request_text)
    done = vernier_here("bench", "arm", str(tmp_path / "request"), str(tmp_path / "answer"))
    assert done.code == 2
    assert str(tmp_path / "request") in done.err
    assert not (tmp_path / "answer").exists()
