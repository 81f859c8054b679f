from collections.abc import Callable

import pytest

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
        (["--rate", "-1"], "arrivals per second must be more than 0"),
        (["--loads", "20"], "shares of the highest possible rate"),
    ],
)
def test_wrong_input_is_explained(vernier_here: Callable[..., Done], arguments: list[str], words: str) -> None:
    done = vernier_here("bench", "infer", *arguments)
    assert done.code == 2
    assert words in done.err
