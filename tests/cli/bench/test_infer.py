from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import Done
from vernier.records.bench import BenchRequest


def test_scenarios_and_loads_are_part_of_the_request(
    vernier_here: Callable[..., Done], bench_requests: list[BenchRequest]
) -> None:
    vernier_here("bench", "infer", "--scenarios", "offline,server", "--loads", "0.25", "--batch", "1")
    (request,) = bench_requests
    assert (request.what, request.scenarios, request.loads) == ("infer", ("offline", "server"), (0.25,))


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
