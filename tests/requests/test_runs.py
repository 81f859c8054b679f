"""What `runs list` takes."""

import pytest

from vernier.cli.parser import parse
from vernier.errors import ConfigError
from vernier.requests.runs import ListRuns


def test_folders_are_all_words_without_a_flag() -> None:
    assert parse(ListRuns, ["a", "b", "--sort", "size", "c"], "runs list")[0] == ListRuns(
        folders=("a", "b", "c"), sort="size"
    )
    assert parse(ListRuns, [], "runs list")[0].folders == ()


def test_what_is_unknown_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        ListRuns(sort="color")  # type: ignore[arg-type]
    assert set(refused.value.given) == {"sort"}
