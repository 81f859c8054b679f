"""Functions of Python made from requests: signature with real defaults, docstring, and errors in the words of Python.

    tune_train = function(TuneTrain, _tune)

`_tune(request, session)` does the work, for the command line too. Editors and type checkers see the signatures in
`vernier/__init__.pyi`, which `make pages` writes from the same declarations.
"""

import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from vernier.config import described_settings
from vernier.errors import ConfigError, Refusal, did_you_mean
from vernier.requests.declaring import Option, Request, default_text, description_of, options_of, summary_of

from .session import Session
from .wording import PythonWords, in_python_words

T = TypeVar("T")
R = TypeVar("R", bound=Request)


def options_in_python(cls: type[Request]) -> list[Option]:
    """The options that a function has as arguments."""
    return [each for each in options_of(cls) if each.declared.edge != "shell"]


def function(cls: type[R], perform: Callable[[R, Session], T], name: str) -> Callable[..., T]:
    """The function of Python that builds a request from its arguments and carries it out."""

    def call(*arguments: Any, **keywords: Any) -> T:
        __tracebackhide__ = True  # of notebooks and pytest
        words = PythonWords(cls)
        try:
            request = words.request = bind(cls, name, arguments, keywords)
            return perform(request, Session(words, quiet=bool(getattr(request, "quiet", False))))
        except Refusal as error:
            raise in_python_words(error, words) from None

    return described(call, cls, name, inspect.signature(perform).return_annotation, perform.__module__)


def described(call: Callable[..., T], cls: type[Request], name: str, returns: Any, module: str) -> Callable[..., T]:
    """A function with the name, signature and docstring that follow from its request, which it carries as `request`."""
    call.__name__ = call.__qualname__ = name
    call.__doc__ = docstring_of(cls)
    call.__module__ = module
    call.__signature__ = signature_of(cls, returns)  # type: ignore[attr-defined]
    call.request = cls  # type: ignore[attr-defined]
    return call


def bind(cls: type[R], name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> R:
    """The request of a call. Raises ConfigError for an argument that the function does not have."""
    own = options_in_python(cls)
    positional = [each.name for each in own if each.declared.positional]
    if len(arguments) > len(positional):
        raise ConfigError(
            f"{name}() takes {len(positional)} arguments by position, not {len(arguments)}; give the others by name."
        )
    values = dict(zip(positional, arguments, strict=False))
    for key, value in keywords.items():
        option, value = _option_called(cls, name, key, value)
        if option.name in values:
            raise ConfigError(f"{name}() was given {option.name} twice.")
        values[option.name] = option.declared.values.get(value, value) if isinstance(value, str) else value
    if missing := [each.name for each in own if each.required and each.name not in values]:
        raise ConfigError(f"{name}() needs {' and '.join(missing)}.")
    return cls(**values)


def _option_called(cls: type[Request], name: str, key: str, value: Any) -> tuple[Option, Any]:
    """The option of a keyword, and its value. Raises ConfigError with the name that was probably meant."""
    own = options_in_python(cls)
    for each in own:
        if key == each.name:
            return each, value
    flag = f"--{key.replace('_', '-')}"
    other = next((each for each in own if flag in each.declared.names), None)
    if other is not None and other.declared.bare and isinstance(value, int | float):
        text = f"{value:g}{other.declared.bare}"
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


def signature_of(cls: type[Request], returns: Any = inspect.Signature.empty) -> inspect.Signature:
    """The signature of the function of a request, with the defaults that are used."""
    return inspect.Signature(
        [
            inspect.Parameter(
                each.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD if each.declared.positional else inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if each.required else _python_default(each),
                annotation=annotation_of(each),
            )
            for each in options_in_python(cls)
        ],
        return_annotation=returns,
    )


def _python_default(each: Option) -> Any:
    return None if each.form.kind == "settings" else each.default


def annotation_of(each: Option) -> str:
    """The type of an argument as a stub writes it."""
    form = each.form
    one = {
        "switch": "bool",
        "int": "int",
        "float": "float",
        "text": "str",
        "duration": "str",
        "time limit": "str",
        "fraction": "float | str",
        "path": "StrPath",
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


def docstring_of(cls: type[Request]) -> str:
    """The docstring of the function of a request: what it does, and every argument with its default."""
    lines = [summary_of(cls), ""]
    for paragraph in description_of(cls):
        lines += [paragraph, ""]
    lines += ["Args:"]
    for each in options_in_python(cls):
        default = default_text(each)
        ending = f" Default: {default}." if default not in ("", "required") else ""
        lines.append(f"    {each.name}: {each.declared.help}{ending}")
    return "\n".join(lines)
