"""Words of the command line; `tests/requests/test_wording.py` has those that depend on what was typed."""

from vernier.cli.wording import ShellWords
from vernier.references import given, use
from vernier.requests.comparing import Convert


def test_values_are_quoted_as_a_shell_needs_them() -> None:
    words = ShellWords(Convert)
    assert words.word(use("out", "my file")) == "--out 'my file'"
    assert words.word(use("out", slot="FILE")) == "--out FILE"
    assert words.word(given("to")) == "--to"
    assert words.word(use("optim.lr", 0.1)) == "optim.lr=0.1", "a command without --set"
