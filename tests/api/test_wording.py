"""Errors in the words of Python; `tests/requests/test_wording.py` has the words themselves."""

from pathlib import Path

import pytest

from vernier.api.wording import Interrupted, PythonWords, in_python_words, python_errors
from vernier.errors import ConfigError
from vernier.lab.requests.comparing import Convert
from vernier.references import given, use


def test_methods_raise_their_errors_worded() -> None:
    @python_errors
    def method(path: str) -> None:
        raise ConfigError(f"{given('path', path)} is wrong. Use {use('optim.lr', 0.1)}.")

    with pytest.raises(ConfigError) as refused:
        method("x")
    assert str(refused.value) == "path = x is wrong. Use optim.lr=0.1."


def test_an_error_is_worded_once() -> None:
    error = in_python_words(ConfigError(given("to", "x")), PythonWords(Convert))
    assert str(in_python_words(error)) == 'to="x"'


def test_an_interruption_shows_its_message_alone() -> None:
    error = Interrupted("saved", Path("runs/x"))
    assert error._render_traceback_() == ["saved"]
    assert error.path == Path("runs/x")
