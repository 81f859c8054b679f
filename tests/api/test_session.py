"""Messages and progress of a call."""

import sys
from types import SimpleNamespace

import pytest

from vernier.api.session import Session, in_notebook
from vernier.api.wording import PythonWords
from vernier.lab.requests.comparing import Convert
from vernier.references import use


@pytest.fixture
def session() -> Session:
    return Session(PythonWords(Convert))


def test_messages_are_worded_and_go_to_standard_error(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    session.say(f"Use {use('to', 'mllog')}.")
    session.warn("careful\x1b[31m")
    out, err = capsys.readouterr()
    assert out == ""
    assert err == 'Use to="mllog".\ncareful\\x1b[31m\n'


def test_a_quiet_session_only_warns(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = Session(PythonWords(None), quiet=True)
    quiet.say("progress")
    quiet.warn("warning")
    with quiet.bar("x") as bar, quiet.bytes_bar("y") as bytes_bar:
        bar(1, 2)
        bytes_bar("doing", 1, 2)
    assert capsys.readouterr().err == "warning\n"


def test_a_notebook_shows_messages_in_its_cell(
    session: Session, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1)))
    assert in_notebook()
    session.warn("careful")
    assert capsys.readouterr().out == "careful\n"
    assert session.rich_console().file is sys.stdout


def test_the_observer_words_what_it_prints(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    with session.observer() as observer:
        observer.warn(f"Use {use('to', 'mllog')}.")
    assert 'Use to="mllog".' in capsys.readouterr().err
