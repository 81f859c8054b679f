"""How a command is declared: a frozen dataclass whose fields carry everything there is to know about an option.

From the declaration follow the flag, its help, its range check, the keyword argument of the Python function, the JSON
that crosses to other processes, completion and the reference pages. `values` turns texts and Python values into the
values of fields; `cli.parser` and `api.functions` build requests; nothing here knows them.
"""

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, Self, TypeVar, dataclass_transform, get_type_hints

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.references import given

from .values import Form, form_of

Edge = Literal["both", "shell", "python"]
Kind = Literal["recipe", "model", "run", "data", "setting", "file", "folder"]
SCHEMA = 1
"""Of the JSON of requests; raised when a field changes its meaning."""


@frozen
class Declared:
    """What a field declares about its option, besides its name, type and default."""

    help: str
    positional: bool = False
    metavar: str = ""
    group: str = ""
    """Heading in the help of the command."""
    advanced: bool = False
    """Shown by `--help-all` only."""
    names: tuple[str, ...] = ()
    """Other flags that mean the same: `-o`, `--learning-rate`."""
    values: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Other words for a value: `gpu` for `cuda`."""
    bare: str = ""
    """Unit of a number without one that is given by one of the other names: 10 minutes for `--minutes 10`."""
    low: float | None = None
    above: float | None = None
    high: float | None = None
    unit: str = ""
    default: str = ""
    """What is used if the option is not given, for a default that depends on something else."""
    sets: str = ""
    """The setting that it changes, whose range holds."""
    completes: tuple[Kind, ...] = ()
    edge: Edge = "both"
    repeats: bool = False
    """A list is given by repeating the flag, or as all further words of the command, not with commas."""


def option(default: Any = dataclasses.MISSING, /, **declared: Any) -> Any:
    """An option of a request: its default (none: required) and what `Declared` says about it."""
    return _field(default, Declared(**declared))


def argument(default: Any = dataclasses.MISSING, /, **declared: Any) -> Any:
    """An option that is given by its position; `names` may add flags for it."""
    return _field(default, Declared(positional=True, **declared))


def _field(default: Any, declared: Declared) -> Any:
    metadata = {"declared": declared}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@frozen
class Option:
    """An option of a command: its declaration with name, form of values and default."""

    name: str
    form: Form
    default: Any
    declared: Declared

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING

    @property
    def flag(self) -> str:
        """The flag of this name, also of an argument that is given by its position."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Every flag that means this option; arguments have those of `names` alone."""
        return self.declared.names if self.declared.positional else (self.flag, *self.declared.names)

    @property
    def switch(self) -> bool:
        """Whether it is on or off and takes no value."""
        return self.form.kind == "switch"

    @property
    def metavar(self) -> str:
        """What stands for a value in help."""
        return self.declared.metavar or self.form.metavar

    def is_default(self, value: object) -> bool:
        return not self.required and value == self.default

    def check(self, value: Any) -> None:
        """Refuse a number out of range. Raises ConfigError."""
        low, above, high = self.declared.low, self.declared.above, self.declared.high
        for each in value if isinstance(value, tuple) else (value,):
            number = None if each is None else self.form.number(each)
            if number is None:
                continue
            enough = (low is None or number >= low) and (above is None or number > above)
            if not enough or not (high is None or number <= high) or not math.isfinite(number):  # a NaN is in no range
                raise ConfigError(f"{given(self.name, each)} is out of range: it must be {self.range_text}.")

    @property
    def range_text(self) -> str:
        """The range in words, with its unit; empty without one."""
        declared = self.declared
        limits = ("{} or more", declared.low), ("above {}", declared.above), ("{} or less", declared.high)
        texts = [text.format(self._limit(number)) for text, number in limits if number is not None]
        return " and ".join(texts) + (f" {self.declared.unit}" if texts and self.declared.unit else "")

    def _limit(self, number: float) -> str:
        if self.form.kind == "fraction":
            return f"{100 * number:g}%"
        return f"{number:g}s" if self.form.kind == "duration" else f"{number:g}"


R = TypeVar("R", bound="Request")


class Request:
    """What a command was asked to do. Its values are checked however it is made: typed, called or read from JSON."""

    command: ClassVar[str] = ""
    """The words after `vernier`; empty for a function that has no command."""

    def __post_init__(self) -> None:
        for each in options_of(type(self)):
            value = each.form.checked(each.name, getattr(self, each.name))
            each.check(value)
            # Requests are frozen; the checked value replaces the given one before anybody sees it.
            object.__setattr__(self, each.name, value)

    def changes(self) -> dict[str, object]:
        """The settings that the options change, by name: those that were given."""
        return {
            each.declared.sets: value
            for each in options_of(type(self))
            if each.declared.sets
            and not each.is_default(value := getattr(self, each.name))
            and value is not None
            and value is not False  # 0 is a value
            and value != ()
        }

    def gives(self, name: str) -> bool:
        """Whether an option was given, or has another value than its default."""
        return any(each.name == name and not each.is_default(getattr(self, name)) for each in options_of(type(self)))

    def to_json(self) -> dict[str, object]:
        """Plain values for another process or version: the command, and every option that is not at its default."""
        values = {each.name: getattr(self, each.name) for each in options_of(type(self))}
        return {
            "schema": SCHEMA,
            "command": self.command,
            "options": {
                each.name: _json(values[each.name])
                for each in options_of(type(self))
                if not each.is_default(values[each.name])
            },
        }

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Self:
        """The request of `to_json`. Raises ConfigError for one of another command or of a newer version."""
        schema, words = tree.get("schema"), tree.get("command")
        # Requests of older versions are read; options that they did not have keep their defaults.
        if not isinstance(schema, int) or schema > SCHEMA:
            raise ConfigError(f"This request was written by a newer version of Vernier (schema {schema!r}).")
        if words != cls.command:
            raise ConfigError(f"This is a request of the command {words!r}, not of {cls.command!r}.")
        values = tree.get("options")
        if not isinstance(values, Mapping):
            raise ConfigError(f"A request has a table of options, not {values!r}.")
        known = {each.name for each in options_of(cls)}
        # Not ignored: without the option, the other process would do something else than was asked.
        if unknown := [name for name in values if name not in known]:
            raise ConfigError(f"{cls.command} has no option {unknown[0]!r} in this version of Vernier.")
        # JSON has lists only; fields of requests are tuples.
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def _json(value: Any) -> Any:
    return [_json(item) for item in value] if isinstance(value, tuple) else value


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option, argument))
def request(command: str = "") -> Callable[[type[R]], type[R]]:
    """Make a class the request of a command. Its docstring is the help: a line, paragraphs, and `Examples:`."""

    def declare(cls: type[R]) -> type[R]:
        cls.command = command
        return dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    return declare


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option, argument))
def shared(cls: type[R]) -> type[R]:
    """Make a class whose options several requests share."""
    return dataclasses.dataclass(frozen=True, kw_only=True)(cls)


_OPTIONS: dict[type[Request], tuple[Option, ...]] = {}


def options_of(cls: type[Request]) -> tuple[Option, ...]:
    """The options of a request, arguments by position first, then in the order of their declaration."""
    if cls not in _OPTIONS:
        # Without extras, `Annotated` would be lost, and a duration would be a plain text.
        hints = get_type_hints(cls, include_extras=True)
        options = [
            Option(
                name=each.name,
                form=form_of(hints[each.name]),
                default=each.default,
                declared=each.metadata["declared"],
            )
            for each in dataclasses.fields(cls)  # type: ignore[arg-type]
        ]
        _OPTIONS[cls] = tuple(sorted(options, key=lambda each: not each.declared.positional))
    return _OPTIONS[cls]


def option_of(cls: type[Request], name: str) -> Option | None:
    """The option of this name, or the one that changes the setting of this name."""
    name = name.removeprefix("recipe.")
    # The name first: an option may have the name of a setting that another option changes.
    exact = next((each for each in options_of(cls) if each.name == name), None)
    return exact or next((each for each in options_of(cls) if each.declared.sets == name), None)


# ---------------------------------------------------------------------------------------------------------- help texts


def summary_of(cls: type[Request]) -> str:
    """What a command does, in one line."""
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def description_of(cls: type[Request]) -> list[str]:
    """The paragraphs of a command's help after its first line, each as one line."""
    text = (inspect.getdoc(cls) or "").partition("\nExamples:")[0]
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")[1:] if paragraph.strip()]


def examples_of(cls: type[Request]) -> list[str]:
    """The lines of the section `Examples:` of a command's docstring."""
    section = re.search(r"^Examples:\n((?:    .*\n?)+)", inspect.getdoc(cls) or "", re.MULTILINE)
    return [line.strip() for line in section[1].splitlines()] if section else []


def default_text(each: Option) -> str:
    """The default in words, as help and reference pages show it; empty without one."""
    if each.declared.default:
        return each.declared.default
    if each.required:
        return "required"
    if each.default in (None, (), "") or each.switch:
        return ""
    return each.form.text(each.default)


GROUPS = ("arguments", "options", "data", "model", "schedule", "measuring", "machine", "run", "settings", "output")
"""Headings of the options in help, in this order."""


def groups_of(cls: type[Request], *, everything: bool = True) -> Iterator[tuple[str, list[Option]]]:
    """The options of the shell by heading; without `everything` only the everyday ones."""
    # In the order of GROUPS, which the dictionary keeps.
    by_group: dict[str, list[Option]] = {name: [] for name in GROUPS}
    for each in sorted(options_of(cls), key=lambda each: each.declared.advanced):  # the everyday ones first
        if each.declared.edge != "python" and (everything or not each.declared.advanced):
            by_group["arguments" if each.declared.positional else each.declared.group or "options"].append(each)
    return ((name, options) for name, options in by_group.items() if options)
