"""Values of options: from texts of the command line and from Python."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from vernier.errors import ConfigError
from vernier.quantities import fraction, parse_duration
from vernier.requests.values import Assignments, Duration, FilePath, Fraction, Pairs, TimeLimit, form_of


@pytest.mark.parametrize(
    ("hint", "value", "held"),
    [
        (int, 3, 3),
        (int, np.int64(3), 3),
        (float, 3, 3.0),
        (str, 20, "20"),
        (FilePath, Path("a/b"), "a/b"),
        (tuple[int, ...], 4, (4,)),
        (tuple[int, ...], [4, 8], (4, 8)),
        (tuple[FilePath, ...], "a,b", ("a,b",)),
        (tuple[int, int], (1, 2), (1, 2)),
        (Duration, "90s", "90s"),
        (TimeLimit, "auto", "auto"),
        (Fraction, 0.01, "1%"),
        (Fraction, "0.5%", "0.5%"),
        (Fraction, 0, "0%"),
        (Pairs, {"a": "b", "c": "d"}, "a=b,c=d"),
        (Assignments, {"optim.lr": 0.1, "model.name": "x"}, ("optim.lr=0.1", 'model.name="x"')),
        (Assignments, ["optim.lr=0.1"], ("optim.lr=0.1",)),
        (Literal["a", "b"], "a", "a"),
        (int | None, None, None),
    ],
)
def test_python_values_become_what_a_request_holds(hint: Any, value: Any, held: Any) -> None:
    assert form_of(hint).checked("x", value) == held


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, "3"),
        (int, None),
        (int, True),
        (float, "3"),
        (Duration, "90"),
        (Duration, "auto"),
        (Duration, ""),
        (Fraction, 1),
        (Fraction, "0.01"),
        (Fraction, "100%"),
        (Fraction, "-1%"),
        (FilePath, 3),
        (Assignments, "a=b"),
        (Assignments, {1: 2}),
        (tuple[int, int], (1,)),
        (Literal["a", "b"], "c"),
    ],
)
def test_values_that_do_not_fit_are_refused_by_name(hint: Any, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        form_of(hint).checked("x", value)
    assert list(refused.value.given) == ["x"]


def test_texts_of_the_command_line_are_parsed() -> None:
    assert form_of(int).parse("x", "12") == 12
    assert form_of(str | None).parse("x", "gpu", {"gpu": "cuda"}) == "cuda"
    assert form_of(tuple[int, ...]).parse_list("x", "1,2,, 2") == (1, 2)
    for text in ("", ",", "1,b"):
        with pytest.raises(ConfigError):
            form_of(tuple[int, ...]).parse_list("x", text)


@pytest.mark.parametrize(
    ("hint", "metavar"),
    [(int, "N"), (tuple[int, ...], "N,..."), (tuple[int, int], "N N"), (Duration, "TIME"), (Literal["a", "b"], "a|b")],
)
def test_metavars_show_what_to_write(hint: Any, metavar: str) -> None:
    assert form_of(hint).metavar == metavar
    assert form_of(Annotated[str, "path"]).kind == "path"


def test_durations_and_fractions_are_read() -> None:
    assert parse_duration("1.5h") == 5400
    assert parse_duration("0s") == 0
    assert fraction("2.5%") == 0.025
