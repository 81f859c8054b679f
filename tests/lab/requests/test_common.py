"""What options have in common, as commands show it."""

import pytest

from vernier.requests.declaring import Option, options_of
from vernier.requests.registry import find

COMMANDS = ("bench train", "tune train", "profile infer", "study run", "plan")


def _option(command: str, name: str) -> Option:
    request = find(command)
    assert request is not None
    (option,) = [each for each in options_of(request) if each.name == name]
    return option


@pytest.mark.parametrize("command", COMMANDS)
def test_a_batch_has_the_same_names_and_range_everywhere(command: str) -> None:
    batch = _option(command, "batch")
    assert batch.flags == ("--batch", "--batch-size", "--batches", "--device-batch")
    assert batch.low == 1


@pytest.mark.parametrize("command", ["bench train", "study merge", "tune train"])
def test_what_is_written_has_a_short_name(command: str) -> None:
    assert _option(command, "out").flags == ("--out", "-o", "--output")


def test_advanced_options_keep_their_heading() -> None:
    groups = {name: _option("study run", name) for name in ("pause", "virtual")}
    assert {name: (each.group, each.advanced) for name, each in groups.items()} == {
        "pause": ("measuring", True),
        "virtual": ("machine", True),
    }
