from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import Done
from vernier.config import config_from_tree
from vernier.measure.bench.combinations import arms_of
from vernier.records.bench import BenchRequest


def test_scenarios_and_loads_are_part_of_the_request(
    vernier_here: Callable[..., Done], bench_requests: list[BenchRequest]
) -> None:
    vernier_here("bench", "infer", "--scenarios", "offline,server", "--loads", "0.25", "--batch", "1")
    (request,) = bench_requests
    assert (request.what, request.scenarios, request.loads) == ("infer", ("offline", "server"), (0.25,))


def test_engines_are_arms_and_int8_is_one_more_precision_of_those_that_have_it(
    vernier_here: Callable[..., Done], bench_requests: list[BenchRequest], shapes: Path
) -> None:
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    chosen = ["--engine", "torch,onnxruntime,auto", "--int8", "--batch", "1", "--data", str(shapes)]
    done = vernier_here("bench", "infer", *chosen)
    assert bench_requests, done.err
    arms = [(a.labels.engine, a.labels.precision) for a in arms_of(bench_requests[0])]
    assert arms == [
        ("torch", "fp32"),
        ("onnxruntime", "fp32"),
        ("auto", "fp32"),
        ("onnxruntime", "int8"),
        ("auto", "int8"),
    ]
    machines = [config_from_tree(a.request.config).machine for a in arms_of(bench_requests[0])]
    assert [(m.engine, m.int8, m.precision) for m in machines[2:4]] == [
        ("auto", False, "fp32"),
        ("onnxruntime", True, "fp32"),
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scenarios", "online"], "choose from offline, single-stream, server"),
        (["--run", "nowhere"], "does not exist"),
        (["shapes-quick", "--run", "x"], "leave RECIPE"),
        (["{junk}"], "Cannot read weights from"),
        (["{theirs}"], "does not say which network it holds"),
        (["{theirs}", "--model", "resnet18"], "leave RECIPE and --model out"),
        (["--rate", "-1"], "arrivals per second must be more than 0"),
        (["--loads", "20"], "shares of the highest possible rate"),
        (["--engine", "tensorrt"], "choose from torch, onnxruntime, openvino, auto"),
        (["--engine", "onnxruntime", "--mode", "eager,compile"], "has no --mode compile"),
        (["--engine", "auto", "--precision", "bf16"], "not in bf16"),
        (["--engine", "onnxruntime", "--device", "cuda"], "runs on the CPU, not on cuda"),
        (["--int8"], "--int8 needs --engine onnxruntime or auto"),
        (["--set", "machine.convolution=winograd"], "machine.convolution has no effect here: it is for training"),
        (["--engine", "auto", "--int8", "--data", "synthetic"], "these are random pixels: give --data PATH"),
    ],
)
def test_wrong_input_is_explained(
    vernier_here: Callable[..., Done], arguments: list[str], words: str, tmp_path: Path
) -> None:
    junk, theirs = tmp_path / "junk.onnx", tmp_path / "theirs.pth"
    junk.write_bytes(b"no model")
    torch.save({"conv1.weight": torch.zeros(1)}, theirs)
    done = vernier_here("bench", "infer", *(a.format(junk=junk, theirs=theirs) for a in arguments))
    assert done.code == 2
    assert words in done.err
