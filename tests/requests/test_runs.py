"""What `runs list` and `runs clean` take."""

import pytest

from vernier.cli.parser import parse
from vernier.errors import ConfigError
from vernier.requests.declaring import Request
from vernier.requests.runs import CleanRuns, ListRuns


def test_folders_are_all_words_without_a_flag() -> None:
    assert parse(ListRuns, ["a", "b", "--sort", "size", "c"], "runs list")[0] == ListRuns(
        folders=("a", "b", "c"), sort="size"
    )
    assert parse(ListRuns, [], "runs list")[0].folders == ()


def test_nothing_is_removed_unless_that_is_confirmed() -> None:
    request, _ = parse(CleanRuns, ["--what", "traces,smoke", "--older-than", "7d"], "runs clean")
    assert request == CleanRuns(what=("traces", "smoke"), older_than="7d")
    assert not request.yes
    assert "traces" not in CleanRuns().what


@pytest.mark.parametrize(
    ("cls", "name", "value"),
    [(ListRuns, "sort", "color"), (CleanRuns, "what", ("everything",)), (CleanRuns, "older_than", "soon")],
)
def test_what_is_unknown_is_refused(cls: type[Request], name: str, value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        cls(**{name: value})
    assert set(refused.value.given) == {name}
