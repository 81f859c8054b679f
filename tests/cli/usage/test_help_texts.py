"""Lists of commands, and examples."""

from vernier.cli.usage.help_texts import examples_of, examples_text, first_line, listing


def _command() -> None:
    """Do something.

    More about it.

    Args:
        nothing: None.

    Examples:
        tool a
        tool b --c
    """


def test_examples_and_the_first_line_come_from_the_docstring() -> None:
    assert first_line(_command) == "Do something."
    assert examples_of(_command) == ["tool a", "tool b --c"]
    assert examples_of(listing) == []
    assert examples_text(["tool a"]) == "\nexamples:\n  tool a\n"
    assert examples_text([]) == ""


def test_a_listing_is_wrapped_in_its_column() -> None:
    text = listing("tool COMMAND", "About.", {"First": {"a": "word " * 40, "longer": "b"}}, ["End."])
    lines = text.splitlines()
    assert lines[:5] == ["usage: tool COMMAND", "", "About.", "", "First"]
    assert lines[5].startswith("  a       word word")
    assert lines[6].startswith("          word")
    assert max(map(len, lines)) <= 120
