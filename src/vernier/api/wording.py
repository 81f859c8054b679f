"""Messages in the words of Python: `epochs=3`, `settings={"optim.lr": 0.1}`. Commands that a message names stay.

Functions that are made from requests (`functions`) and methods (`python_errors`) raise their errors worded, and without
Vernier's own frames in the traceback.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from vernier.addresses import redact
from vernier.errors import Refusal
from vernier.references import Reference
from vernier.requests.declaring import Option
from vernier.requests.wording import Words

P = ParamSpec("P")
T = TypeVar("T")


class PythonWords(Words):
    """Words for one function."""

    def option(self, option: Option, reference: Reference) -> str:
        if not reference.has_value:
            return option.name
        return f"{option.name}={reference.slot or _literal(reference.value)}"

    def setting(self, reference: Reference) -> str:
        return f'settings={{"{reference.name}": {reference.slot or _literal(reference.value)}}}'


def _literal(value: Any) -> str:
    # In double quotes, as in the documentation, unless the text has one.
    return f'"{value}"' if isinstance(value, str) and '"' not in value else repr(value)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, or the stop button of a notebook, ended a training run or a benchmark after its results were saved.

    `path` is its run directory; None if there was nothing to save. The same call resumes a training run.
    """

    def __init__(self, message: str, path: Path | None) -> None:
        super().__init__(message)
        self.path = path

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message alone, because no line of code is to blame."""
        return [str(self)]


def in_python_words(error: Refusal, words: PythonWords | None = None) -> Refusal:
    """The error with its message worded for a caller in Python, and without Vernier's own frames."""
    word = (words or PythonWords(None)).word
    error.word = error.word or (lambda text: redact(word(text)))
    return error.with_traceback(None)


def python_errors(function: Callable[P, T]) -> Callable[P, T]:
    """A method or function without a request, whose errors are raised in the words of Python."""

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> T:
        __tracebackhide__ = True  # of notebooks and pytest
        try:
            return function(*args, **options)
        except Refusal as error:
            raise in_python_words(error) from None

    return call
