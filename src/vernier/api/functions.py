"""Functions of Python made from requests: signature with real defaults, docstring, and errors in the words of Python.

    tune_train = function(TuneTrain, _tune)

`_tune(request, session)` does the work, for the command line too. Editors and type checkers see the signatures in
`vernier/__init__.pyi`, which `make pages` writes from the same declarations.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from vernier.config import described_settings
from vernier.errors import ConfigError, Refusal, did_you_mean
from vernier.requests.declaring import Option, Request, default_text, description_of, options_of, summary_of

from .session import Session
from .wording import PythonWords, in_python_words

T = TypeVar("T")
R = TypeVar("R", bound=Request)


def _options_in_python(cls: type[Request]) -> list[Option]:
    """The options that a function has as arguments."""
    return [each for each in options_of(cls) if each.edge != "shell"]


Objects = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]
"""Takes what no request can hold, such as a loaded model, out of the arguments of a call: gives the arguments and
keywords that are left, and the objects, which `perform` gets after request and session."""


def function(
    cls: type[R], perform: Callable[..., T], name: str, returns: str | None = None, objects: Objects | None = None
) -> Callable[..., T]:
    """The function of Python that builds a request from its arguments and carries it out.

    It has the name, signature and docstring that follow from its request, which it carries as `request`. `returns` is
    its annotation, if not that of `perform`.
    """

    def call(*arguments: Any, **keywords: Any) -> T:
        __tracebackhide__ = True  # of notebooks and pytest
        words, live = PythonWords(cls), tuple[Any, ...]()
        if objects is not None:
            arguments, keywords, live = objects(arguments, keywords)
        try:
            request = words.request = _bind(cls, name, arguments, keywords)
            return perform(request, Session(words, quiet=bool(getattr(request, "quiet", False))), *live)
        except Refusal as error:
            raise in_python_words(error, words) from None

    call.__name__ = call.__qualname__ = name
    call.__doc__ = _docstring_of(cls)
    call.__module__ = perform.__module__
    annotation = returns or inspect.signature(perform).return_annotation
    call.__signature__ = _signature_of(cls, annotation)  # type: ignore[attr-defined]
    call.request = cls  # type: ignore[attr-defined]
    return call


def _bind(cls: type[R], name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> R:
    """The request of a call. Raises ConfigError for an argument that the function does not have."""
    own = _options_in_python(cls)
    positional = [each.name for each in own if each.positional]
    if len(arguments) > len(positional):
        raise ConfigError(
            f"{name}() takes {len(positional)} arguments by position, not {len(arguments)}; give the others by name."
        )
    values = dict(zip(positional, arguments, strict=False))
    for key, value in keywords.items():
        option, value = _option_called(cls, name, key, value)
        if option.name in values:
            raise ConfigError(f"{name}() was given {option.name} twice.")
        # Other words for a value are understood here, too, as on the command line.
        values[option.name] = option.other_values.get(value, value) if isinstance(value, str) else value
    if missing := [each.name for each in own if each.required and each.name not in values]:
        raise ConfigError(f"{name}() needs {' and '.join(missing)}.")
    return cls(**values)


def _option_called(cls: type[Request], name: str, key: str, value: Any) -> tuple[Option, Any]:
    """The option of a keyword, and its value. Raises ConfigError with the name that was probably meant."""
    own = _options_in_python(cls)
    for each in own:
        if key == each.name:
            return each, value
    flag = f"--{key.replace('_', '-')}"
    other = next((each for each in own if flag in each.names), None)
    if other is not None and other.bare and isinstance(value, int | float):
        text = f"{value:g}{other.bare}"
        note = f"{name}({key}={value!r}) is {other.name}={text!r} now; the old name stops working in 0.5."
        warnings.warn(note, FutureWarning, stacklevel=5)
        return other, text
    if other is not None:
        raise ConfigError(f"{name}() has no option {key!r}. It is called {other.name} here.")
    settings = [setting for setting in described_settings() if setting.rpartition(".")[2] == key]
    if settings and any(each.name == "settings" for each in own):
        hint = "It is a setting: " + " or ".join(f'settings={{"{setting}": VALUE}}' for setting in settings[:2]) + "."
    else:
        hint = did_you_mean(key, [each.name for each in own])
    raise ConfigError(f"{name}() has no option {key!r}. {hint}")


# ------------------------------------------------------------------------------------------- signatures and docstrings


def _signature_of(cls: type[Request], returns: Any = inspect.Signature.empty) -> inspect.Signature:
    """The signature of the function of a request, with the defaults that are used."""
    return inspect.Signature(
        [
            inspect.Parameter(
                each.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD if each.positional else inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if each.required else _python_default(each),
                annotation=_annotation_of(each),
            )
            for each in _options_in_python(cls)
        ],
        return_annotation=returns,
    )


def _python_default(each: Option) -> Any:
    return None if each.form.kind == "settings" else each.default


def _annotation_of(each: Option) -> str:
    """The type of an argument as a stub writes it."""
    form = each.form
    one = {
        "switch": "bool",
        "int": "int",
        "float": "float",
        "text": "str",
        "plugin": "str",
        "duration": "str",
        "time limit": "str",
        "fraction": "float | str",
        "path": "StrPath",
        "code": "object",
        "data": "object",
        "settings": "Mapping[str, object]",
        "pairs": "Mapping[str, str] | str",
        "choice": f"Literal[{', '.join(repr(choice) for choice in form.choices)}]",
    }[form.kind]
    if form.count > 1:
        one = f"tuple[{', '.join([one] * form.count)}]"
    elif form.several and form.kind != "settings":
        one = f"{one} | Sequence[{one}]"
    optional = form.optional or form.kind == "settings"
    return f"{one} | None" if optional else one


def _docstring_of(cls: type[Request]) -> str:
    """The docstring of the function of a request: what it does, and every argument with its default."""
    lines = [summary_of(cls), ""]
    for paragraph in description_of(cls):
        lines += [paragraph, ""]
    lines += ["Args:"]
    for each in _options_in_python(cls):
        default = default_text(each)
        ending = f" Default: {default}." if default not in ("", "required") else ""
        lines.append(f"    {each.name}: {each.help}{ending}")
    return "\n".join(lines)
