"""Types of options: parse texts of the command line, check values from Python, and write both as text.

Durations and fractions have one syntax everywhere (`90s`, `15m`, `3h50m`; `1%`). They stay texts in a request, so that
help, signatures and JSON show what a person would write; `vernier.quantities` reads them.
"""

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from vernier.addresses import take_credentials
from vernier.config import UNTIL_JOB_ENDS, assignment
from vernier.config.settings import Offered
from vernier.errors import ConfigError, did_you_mean
from vernier.frozen import frozen
from vernier.own_code import refer_to
from vernier.quantities import fraction, parse_duration
from vernier.references import given
from vernier.typed import IN_WORDS, Mismatch, convert

Duration = Annotated[str, "duration"]
"""A time such as 90s, 15m or 3h50m; read by `parse_duration`."""
TimeLimit = Annotated[str, "time limit"]
"""A duration, or `auto`: until the Slurm job ends."""
Fraction = Annotated[str, "fraction"]
"""A percentage such as 1%; read by `fraction`. Python also takes the number 0.01."""
FilePath = Annotated[str, "path"]
"""A file, folder or address. Python takes path objects, too, and `~` is expanded."""
Code = Annotated[str, "code"]
"""The name of something built in, or code of the user: `module:name(arguments)`; in Python also the object itself."""
DataPath = Annotated[str, "data"]
"""A name, file, folder or address; in Python also a data set."""
Assignments = Annotated[tuple[str, ...], "settings"]
"""Settings as NAME=VALUE; in Python a mapping of names to values."""
Pairs = Annotated[str, "pairs"]
"""NAME=VALUE,NAME=VALUE; in Python a mapping, too."""

StrPath = str | os.PathLike[str]
Kind = Literal[
    "switch",
    "int",
    "float",
    "text",
    "choice",
    "plugin",
    "duration",
    "time limit",
    "fraction",
    "path",
    "code",
    "data",
    "settings",
    "pairs",
]
_PLAIN: dict[Any, Kind] = {bool: "switch", int: "int", float: "float", str: "text"}
_METAVARS = {
    "int": "N",
    "float": "X",
    "text": "TEXT",
    "duration": "TIME",
    "time limit": "TIME|auto",
    "path": "PATH",
    "code": "NAME|MODULE:NAME",
}
_METAVARS |= {"fraction": "PERCENT%", "settings": "NAME=VALUE", "pairs": "NAME=VALUE,..."}
_TYPES: dict[str, Any] = {kind: hint for hint, kind in _PLAIN.items()}


@frozen
class Form:
    """The type of an option as the two edges need it."""

    kind: Kind
    optional: bool = False
    """Whether it may be None: not given."""
    choices: tuple[str, ...] = ()
    several: bool = False
    """Whether it is a list of any length."""
    count: int = 1
    """How many values there are of a list of one length."""

    @property
    def metavar(self) -> str:
        if self.kind == "switch":
            return ""
        one = "|".join(self.choices) if self.choices else _METAVARS[self.kind]
        if self.count > 1:
            return " ".join([one] * self.count)
        return f"{one.replace('|', ',')},..." if self.several and self.kind != "settings" else one

    def parse(self, name: str, text: str, other: Mapping[str, str] | None = None) -> Any:
        """One value from a text of the command line. Raises ConfigError for one that does not fit."""
        text = (other or {}).get(text, text)
        # Texts become numbers on the command line only: from Python, "3" is refused if a number is required.
        if self.kind in ("int", "float"):
            try:
                return _TYPES[self.kind](text)
            except ValueError:
                raise ConfigError(f"{given(name)} takes {IN_WORDS[_TYPES[self.kind]]}, not {text!r}.") from None
        return self._one(name, text)

    def parse_list(self, name: str, text: str, other: Mapping[str, str] | None = None) -> tuple[Any, ...]:
        """Values separated by commas, without repetitions. Raises ConfigError."""
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not parts:
            raise ConfigError(f"{given(name, text)} is empty: give values separated by commas.")
        return tuple(dict.fromkeys(self.parse(name, part, other) for part in parts))

    def checked(self, name: str, value: Any) -> Any:
        """The value as a request holds it, from any Python value. Raises ConfigError for one that does not fit."""
        if value is None:
            if self.optional:
                return None
            raise ConfigError(f"{given(name)} needs a value.")
        if self.kind == "settings":
            return _assignments(name, value)
        if self.several or self.count > 1:
            return self._checked_list(name, value)
        return self._one(name, value)

    def _checked_list(self, name: str, value: Any) -> tuple[Any, ...]:
        # A text is a sequence, too, but means one value; a path may have commas in it.
        single = isinstance(value, str | os.PathLike) or not isinstance(value, Sequence)
        values = tuple(self._one(name, item) for item in ((value,) if single else value))
        if self.count > 1 and len(values) != self.count:
            raise ConfigError(f"{given(name)} takes {self.count} values, not {len(values)}.")
        return values

    def _one(self, name: str, value: Any) -> Any:
        value = _plain(value)
        match self.kind:
            case "choice" | "plugin":
                if value not in self.choices:
                    near = did_you_mean(str(value), self.choices)
                    hint = f"{near} " if near.startswith("Did") else ""
                    raise ConfigError(
                        f"{given(name, value)} is not known. {hint}Choose from {', '.join(self.choices)}."
                    )
            case "duration" | "time limit":
                return self._duration(name, value)
            case "fraction":
                return _fraction_text(name, value)
            case "code" | "data" if not isinstance(value, str | int | float):  # numbers are slips
                return refer_to(value)
            case "path" | "data":
                return self._path(name, value)
            case "pairs" if isinstance(value, Mapping):
                return ",".join(f"{key}={item}" for key, item in value.items())
            case "text" if isinstance(value, int | float) and not isinstance(value, bool):
                return str(value)
        try:
            value = convert(value, _TYPES.get(self.kind, str), name)
        except Mismatch as error:
            raise ConfigError(f"{given(name)} takes {error.needed}, not {error.value!r}.") from None
        # Any text may be an address with a password, and requests are recorded and passed to other processes.
        return take_credentials([value])[0] if isinstance(value, str) else value

    def _duration(self, name: str, value: Any) -> str:
        if value == UNTIL_JOB_ENDS and self.kind == "time limit":
            return UNTIL_JOB_ENDS
        if value in (0, "0"):  # no time at all needs no unit
            return "0s"
        if not isinstance(value, str):
            raise ConfigError(f"{given(name)} takes a time such as 90s, 15m or 3h50m, not {value!r}.")
        try:
            parse_duration(value)
        except ConfigError:
            raise ConfigError(f"{given(name, value)} is not a time. Write it as 90s, 15m, 3h50m or 1d.") from None
        return value

    def _path(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{given(name)} takes a path, not {value!r}.")
        return take_credentials([value])[0]

    def number(self, value: Any) -> float | None:
        """The number that a range limits: seconds of a duration, a fraction; None for what has none."""
        if self.kind == "duration":
            return parse_duration(value)
        if self.kind == "fraction":
            return fraction(value)
        return value if self.kind in ("int", "float") else None

    def text(self, value: Any) -> str:
        """A value as the command line takes it."""
        if isinstance(value, tuple):
            return (" " if self.count > 1 else ",").join(self.text(item) for item in value)
        if isinstance(value, float):
            # As short as possible, but never another number.
            return f"{value:g}" if float(f"{value:g}") == value else repr(value)
        return str(value)


@cache
def form_of(hint: Any) -> Form:
    """The form of an annotation: `int | None`, `tuple[str, ...]`, `Literal[...]`, or one of this module's."""
    if get_origin(hint) in (Union, UnionType):
        # Only `X | None`: any other union has no form, and fails to unpack.
        (inner,) = (each for each in get_args(hint) if each is not type(None))
        form = form_of(inner)
        return Form(kind=form.kind, optional=True, choices=form.choices, several=form.several, count=form.count)
    if get_origin(hint) is Annotated:
        inner, kind = get_args(hint)[:2]
        if isinstance(kind, Offered):
            return Form(kind="plugin", choices=kind.names())
        return Form(kind=kind, several=get_origin(inner) is tuple)
    if get_origin(hint) is Literal:
        return Form(kind="choice", choices=get_args(hint))
    if get_origin(hint) is tuple:
        arguments = get_args(hint)
        form = form_of(arguments[0])
        any_length = arguments[-1] is Ellipsis
        return Form(kind=form.kind, choices=form.choices, several=any_length, count=1 if any_length else len(arguments))
    return Form(kind=_PLAIN[hint])


def _plain(value: Any) -> Any:
    """Paths as texts with `~` expanded, numbers of NumPy as Python's."""
    if isinstance(value, os.PathLike):
        return os.fspath(Path(os.fspath(value)).expanduser())
    if isinstance(value, str) and value.startswith("~"):
        return os.fspath(Path(value).expanduser())
    # NumPy's float64 is a float already; its other scalars are not Python's numbers.
    if not isinstance(value, bool | int | float | str) and hasattr(value, "item"):
        return value.item()
    return value


def _assignments(name: str, value: Any) -> tuple[str, ...]:
    """Settings as NAME=VALUE, from texts or from a mapping."""
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        value = tuple(assignment(key, _setting_value(item)) for key, item in value.items())
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f'{given(name)} takes names and values such as {{"optim.lr": 0.1}}, not {value!r}.')
    return tuple(take_credentials(value))


def _setting_value(value: Any) -> Any:
    return tuple(_plain(item) for item in value) if isinstance(value, list | tuple) else _plain(value)


def _fraction_text(name: str, value: Any) -> str:
    # 1 could mean 1% or 100%, and is refused. 12 digits: 100 * 0.07 is 7.000000000000001.
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1:
        return f"{100 * value:.12g}%"
    if not isinstance(value, str) or not re.fullmatch(r"\d+(\.\d*)?(e-?\d+)?%|\.\d+%", value.strip()):
        raise ConfigError(f"{given(name, value)} is not a percentage. Write it with its sign: 1% or 0.5%.")
    if not fraction(value) < 1:
        raise ConfigError(f"{given(name, value)} is out of range: it must be below 100%.")
    return value.strip()
