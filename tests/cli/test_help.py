"""Help texts: wrapped to the terminal, everyday options first."""

import pytest

from vernier.cli.help import _listing, _width, command_help
from vernier.requests.declaring import Request, argument, option, request


@request("tool")
class Tool(Request):
    """Do something with a sentence that is long enough to be broken into several lines on a narrow terminal.

    A paragraph whose lines in the source
    are not those of the terminal.

    Examples:
        tool here
    """

    folder: str = argument(help="Folder to read.", metavar="FOLDER")
    size: int = option(3, help="How large.")
    on: bool = option(True, help="Switched on.")
    rare: int = option(1, help="Rarely needed.", advanced=True)
    inner: int = option(1, help="For Python.", edge="python")


@pytest.mark.parametrize("columns", [60, 100, 200])
def test_lines_fit_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert _width() == min(columns, 120)
    text = command_help(Tool, "vernier tool", everything=True)
    assert max(map(len, text.splitlines())) <= min(columns, 120)
    assert "source are" in " ".join(text.split())


def test_advanced_options_are_shown_on_request() -> None:
    everyday = command_help(Tool, "vernier tool", everything=False)
    assert "--rare" not in everyday
    assert "1 more options: vernier tool --help-all" in everyday
    everything = command_help(Tool, "vernier tool", everything=True)
    assert "--rare N" in everything
    assert "more options" not in everything
    assert "--inner" not in everything
    assert "--[no-]on" in everything
    assert "(default: 3)" in everything
    assert everything.startswith("usage: vernier tool [options] FOLDER\n")
    assert everything.endswith("examples:\n  tool here\n")


def test_a_listing_is_wrapped_in_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = _listing("tool", "About.", {"Part": {"name": "word " * 20}}, ["end"])
    lines = text.splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[5].startswith("  name  word")
    assert lines[6].startswith("        word")
