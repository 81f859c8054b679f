"""One declaration: an option that is added to a request appears everywhere by itself."""

import inspect
import json
from functools import partial
from typing import Any, Literal

import pytest

from tests.documentation.reference import command_section
from vernier.api.functions import _bind, _docstring_of, _signature_of, function
from vernier.api.session import Session
from vernier.cli.help import command_help
from vernier.cli.parser import flags_of, parse
from vernier.compat.shells.completion import _values
from vernier.errors import ConfigError
from vernier.lab.requests.comparing import Compare
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
from vernier.requests.wording import command_line


@request("compare")
class WithMore(Compare):
    """A copy of a request with two options more.

    A paragraph that is
    wrapped.

    Examples:
        vernier compare a b --line-width 3
    """

    line_width: int = option(2, help="Width of the lines.", low=1, high=9, unit="pixels", names=("--width",))
    color: Literal["red", "blue"] = option("red", help="Color of the lines.", values={"azure": "blue"})


def test_an_option_that_is_declared_once_is_everywhere() -> None:
    """The same declaration makes the flag, help, signature, docstring, JSON, completion, reference and range check."""
    request = WithMore(a=("a",), b=("b",), line_width=3, color="blue")

    # the flag, also by its other name, with another word for a value, and as words that can be typed again
    for words in ("a b --line-width 3 --color blue", "--width=3 --color azure a b", "a b --line_width 3 --color=blue"):
        assert parse(WithMore, words.split(), "vernier compare")[0] == request
    assert parse(WithMore, command_line(request)[1:], "vernier compare")[0] == request

    # the help
    text = " ".join(command_help(WithMore, "vernier compare", everything=True).split())
    assert "--line-width N Width of the lines. (default: 2)" in text
    assert "--color red|blue Color of the lines. (default: red)" in text

    # the function of Python
    seen: list[WithMore] = []

    def perform(made: WithMore, _: Session) -> int:
        seen.append(made)
        return 7

    call = function(WithMore, perform, "compare")
    assert call("a", "b", line_width=3, color="azure") == 7
    assert seen == [request]
    parameter = inspect.signature(call).parameters["line_width"]
    assert (parameter.default, parameter.annotation) == (2, "int")
    assert inspect.signature(call).parameters["color"].annotation == "Literal['red', 'blue']"
    assert "line_width: Width of the lines. Default: 2." in str(call.__doc__)

    # JSON, for other processes
    tree = json.loads(json.dumps(request.to_json()))
    assert tree["options"] == {"a": ["a"], "b": ["b"], "line_width": 3, "color": "blue"}
    assert WithMore.from_json(tree) == request
    assert "line_width" not in WithMore(a=("a",), b=("b",)).to_json()["options"]  # type: ignore[operator]

    # completion: the flag and its values
    assert "--line-width" in flags_of(WithMore)
    assert "blue" in _values(flags_of(WithMore)["--color"].option)

    # the reference page
    (row,) = (line for line in command_section("compare", WithMore) if "`--line-width`" in line)
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "`--line-width` `N`",
        "Width of the lines. Range: 1 or more and 9 or less pixels.",
        "2",
        "`line_width`",
    ]

    # a value out of range, or one that is not known, is refused at every edge, and named as that edge calls it
    for name, wrong in (("line_width", 10), ("line_width", 0), ("color", "green")):
        flag = f"--{name.replace('_', '-')}"
        refusals = {
            name: partial(WithMore, a=("a",), b=("b",), **{name: wrong}),
            f"{flag} {wrong}": partial(parse, WithMore, ["a", "b", flag, str(wrong)], "vernier compare"),
            f"{name}={json.dumps(wrong)}": partial(call, "a", "b", **{name: wrong}),
            f"{name} = ": partial(WithMore.from_json, {**tree, "options": {**tree["options"], name: wrong}}),
        }
        for named, refused in refusals.items():
            with pytest.raises(ConfigError) as error:
                refused()
            assert error.value.given == {name: wrong}
            assert named in str(error.value)
    assert len(seen) == 1


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
    assert summary_of(WithMore) == "A copy of a request with two options more."
    assert description_of(WithMore) == ["A paragraph that is wrapped."]
    assert examples_of(WithMore) == ["vernier compare a b --line-width 3"]


def test_options_are_found_by_name_and_by_setting() -> None:
    assert next(each.name for each in options_of(Count)) == "where"
    assert option_of(Count, "machine.procs") == option_of(Count, "number")
    assert option_of(Count, "nothing") is None
    everyday = [each.name for _, group in groups_of(Count, everything=False) for each in group]
    assert "fast" not in everyday
    assert "number" in everyday


def test_signature_and_docstring_have_real_defaults() -> None:
    signature = _signature_of(Count)
    assert str(signature.parameters["time"]) == "time: 'str' = '10m'"
    assert signature.parameters["where"].default is inspect.Parameter.empty
    assert "time: How long. Default: 10m." in _docstring_of(Count)
    assert _bind(Count, "count", ("here",), {"part": 0.25}).part == "25%"
