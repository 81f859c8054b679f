"""Where the lines of a running call go, and in which words."""

import sys
from types import ModuleType

import pytest

from vernier.api.progress import SessionConsole, session_console


def test_lines_are_in_the_words_of_python_and_quiet_keeps_warnings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    with SessionConsole() as console:
        console.say("Resuming (--resume never starts a new run).")
    with SessionConsole(quiet=True) as console:
        console.say("nobody reads this")
        console.warn("give --lr as well")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ['Resuming (resume="never" starts a new run).', "warning: give lr as well"]


def test_a_notebook_shows_them_as_output(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)  # so says a kernel
    session_console().print("step 1", style="bold")
    session_console(quiet=True).print("nothing")
    assert capsys.readouterr() == ("step 1\n", "")
