"""One declaration: an option that is added to a request appears everywhere by itself."""

import inspect
from typing import Any, Literal

import pytest

from tests.documentation.reference import command_section
from vernier.api.functions import bind, docstring_of, function, signature_of
from vernier.api.session import Session
from vernier.cli.completion import answers_for
from vernier.cli.help import command_help
from vernier.cli.parser import parse
from vernier.errors import ConfigError
from vernier.requests.comparing import Compare
from vernier.requests.declaring import (
    SCHEMA,
    Request,
    argument,
    description_of,
    examples_of,
    groups_of,
    option,
    option_of,
    options_of,
    request,
    summary_of,
)
from vernier.requests.values import Duration, Fraction


@request("compare")
class WithOneMore(Compare):
    """A copy of a request with one option more.

    A paragraph that is
    wrapped.

    Examples:
        vernier compare a b --colors red
    """

    colors: Literal["red", "blue"] = option("red", help="Color of the lines.", names=("--colours",))


def test_an_option_that_is_declared_once_is_everywhere() -> None:
    parsed, _ = parse(WithOneMore, ["a", "b", "--colors", "blue"], "vernier compare")
    assert parsed.colors == "blue"
    assert parse(WithOneMore, ["a", "b", "--colours=blue"], "vernier compare")[0] == parsed
    assert "--colors red|blue" in command_help(WithOneMore, "vernier compare", everything=True)
    with pytest.raises(ConfigError) as refused:
        parse(WithOneMore, ["a", "b", "--colors", "green"], "vernier compare")
    assert refused.value.given == {"colors": "green"}

    seen: list[WithOneMore] = []

    def perform(made: WithOneMore, _: Session) -> int:
        seen.append(made)
        return 7

    call = function(WithOneMore, perform, "compare")
    assert call("a", "b", colors="blue") == 7
    assert seen == [parsed]
    assert inspect.signature(call).parameters["colors"].default == "red"
    assert "colors: Color of the lines. Default: red." in str(call.__doc__)

    tree = parsed.to_json()
    assert tree == {"schema": SCHEMA, "command": "compare", "options": {"a": ["a"], "b": ["b"], "colors": "blue"}}
    assert WithOneMore.from_json(tree) == parsed

    assert ("--colors", "Color of the lines") in answers_for(WithOneMore, [], "--col")
    assert ("blue", "") in answers_for(WithOneMore, ["--colors"], "b")
    assert any("`--colors`" in line and "Color of the lines." in line for line in command_section("x", WithOneMore))


@request("count")
class Count(Request):
    """Count."""

    where: str = argument(help="Where.")
    number: int = option(3, help="How many.", low=1, high=10, sets="machine.procs")
    size: float | None = option(None, help="How large.", above=0, sets="optim.lr")
    time: Duration = option("10m", help="How long.", above=0)
    part: Fraction = option("1%", help="Which part.", high=0.5)
    fast: bool = option(False, help="Quickly.", sets="machine.allow_slow", advanced=True)


@pytest.mark.parametrize(
    "values",
    [
        {"number": 0},
        {"number": 11},
        {"size": 0.0},
        {"size": float("nan")},
        {"size": float("inf")},
        {"time": "0s"},
        {"part": "60%"},
        {"number": True},
        {"number": 1.5},
        {"number": None},
        {"time": "10"},
        {"time": 10},
        {"where": 3.5j},
        {"fast": 1},
        {"number": 2**70},
    ],
)
def test_a_request_is_checked_however_it_is_made(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        Count(**{"where": "here", **values})
    assert list(refused.value.given) == list(values)


def test_changes_are_the_settings_of_the_options_that_were_given() -> None:
    assert Count(where="here").changes() == {}
    assert Count(where="here", number=4, size=0.5, fast=True).changes() == {
        "machine.procs": 4,
        "optim.lr": 0.5,
        "machine.allow_slow": True,
    }
    assert Count(where="here", number=4).gives("number")
    assert not Count(where="here").gives("number")


@pytest.mark.parametrize(
    "tree",
    [
        {"schema": SCHEMA + 1, "command": "count", "options": {}},
        {"schema": None, "command": "count", "options": {}},
        {"schema": SCHEMA, "command": "other", "options": {}},
        {"schema": SCHEMA, "command": "count", "options": []},
        {"schema": SCHEMA, "command": "count", "options": {"where": "x", "unknown": 1}},
        {"schema": SCHEMA, "command": "count", "options": {"where": "x", "number": 0}},
    ],
)
def test_json_of_another_command_or_version_is_refused(tree: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Count.from_json(tree)


def test_help_is_the_docstring() -> None:
    assert summary_of(WithOneMore) == "A copy of a request with one option more."
    assert description_of(WithOneMore) == ["A paragraph that is wrapped."]
    assert examples_of(WithOneMore) == ["vernier compare a b --colors red"]


def test_options_are_found_by_name_and_by_setting() -> None:
    assert [each.name for each in options_of(Count)][0] == "where"
    assert option_of(Count, "machine.procs") == option_of(Count, "number")
    assert option_of(Count, "nothing") is None
    everyday = [each.name for _, group in groups_of(Count, everything=False) for each in group]
    assert "fast" not in everyday
    assert "number" in everyday


def test_signature_and_docstring_have_real_defaults() -> None:
    signature = signature_of(Count)
    assert str(signature.parameters["time"]) == "time: 'str' = '10m'"
    assert signature.parameters["where"].default is inspect.Parameter.empty
    assert "time: How long. Default: 10m." in docstring_of(Count)
    assert bind(Count, "count", ("here",), {"part": 0.25}).part == "25%"
