"""One test per private part of tyro: what a new release must still do."""

from typing import Literal

import pytest
import tyro
from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction

from vernier.cli.usage.tyro_private import Refusal, arguments_of, call, flags_of, use_colours


def test_use_colours_sets_an_option_that_tyro_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """That help then has colours, or none, is tested on a terminal in test_init.py."""
    assert "ansi_codes" in tyro._experimental_options
    for on in (True, False):
        monkeypatch.setitem(tyro._experimental_options, "ansi_codes", not on)
        use_colours(on)
        assert tyro._experimental_options["ansi_codes"] is on


def test_flags_and_arguments_are_listed_with_what_help_says_about_them() -> None:
    def command(
        whom: Positional[Literal["you", "all"]] = "you",
        /,
        *,
        name: str = "you",
        loud: FlagCreatePairsOff[bool] = False,
        colour: bool = True,
        more: UseAppendAction[tuple[str, ...]] = (),
    ) -> int:
        """Greet.

        Args:
            name: Whom to greet, in a text that is long enough
                for a second line.
        """
        return 0

    flags = list(flags_of(command))
    assert [flag.names for flag in flags] == [("--name",), ("--loud",), ("--colour",), ("--more",)]
    assert [flag.switch for flag in flags] == [False, True, False, False]
    assert [flag.pair for flag in flags] == [False, False, True, False]
    assert [flag.repeatable for flag in flags] == [False, False, False, True]
    assert flags[0].metavar == "TEXT"
    assert " ".join(flags[0].about.split()) == "Whom to greet, in a text that is long enough for a second line."
    assert [argument.metavar.strip("[]") for argument in arguments_of(command)] == ["you|all"]


@pytest.mark.parametrize(
    ("typed", "kind", "names"),
    [
        ("--nmae x", "unknown", ("--nmae", "x")),
        ("", "missing", ("--count N",)),
        ("--count", "no value", ("--count",)),
        ("--count two", "wrong type", ("--count",)),
        ("--count 2 --size XL", "not a choice", ("--size",)),
    ],
)
def test_call_hands_over_why_a_command_line_is_refused(typed: str, kind: str, names: tuple[str, ...]) -> None:
    class Refused(Exception):
        pass

    def command(*, count: int, size: Literal["S", "M"] | None = None) -> int:
        return count

    refusals: list[Refusal] = []

    def refuse(refusal: Refusal) -> None:
        refusals.append(refusal)
        raise Refused

    with pytest.raises(Refused):
        call(command, typed.split(), "tool", refuse)
    assert (refusals[0].kind, refusals[0].names) == (kind, names)
    assert refusals[0].choices in ((), ("S", "M"))
    assert call(command, ["--count", "2"], "tool", refuse) == 2


@pytest.mark.parametrize("word", ["None", "none"])
def test_call_takes_the_word_none_as_text(word: str) -> None:
    def command(name: Positional[str | None] = None, /) -> int:
        return 1 if name is None else len(name)

    assert call(command, [word], "tool", lambda _: None) == 4
    assert call(command, [], "tool", lambda _: None) == 1
