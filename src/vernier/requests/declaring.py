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

from vernier.config.names import OTHER_VALUES
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.references import given

from .values import Form, form_of

Edge = Literal["both", "shell", "python"]
SCHEMA = 1
"""Of the JSON of requests; raised when a field changes its meaning."""


_UNKNOWN: Any = None
"""Name and form of an option, until the class that has it is complete."""


@frozen
class Option:
    """An option of a command."""

    name: str = ""
    form: Form = _UNKNOWN
    default: Any
    help: str
    positional: bool = False
    metavar: str = ""
    """The placeholder for a value in help."""
    group: str = ""
    """Heading in the help of the command; `machine` for an option that changes a setting of the machine."""
    advanced: bool = False
    """Shown by `--help-all` only."""
    names: tuple[str, ...] = ()
    """Other flags that mean the same: `-o`, `--learning-rate`."""
    values: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Other words for a value; those of a setting are in `config.names`."""
    bare: str = ""
    """Unit of a number without one that is given by one of the other names: 10 minutes for `--minutes 10`."""
    low: float | None = None
    above: float | None = None
    high: float | None = None
    unit: str = ""
    shown_default: str = ""
    """What is used if the option is not given, for a default that depends on something else."""
    sets: str = ""
    """The setting that it changes, whose range holds."""
    edge: Edge = "both"
    repeats: bool = False
    """A list is given by repeating the flag, or as all further words of the command, not with commas."""

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
        return self.names if self.positional else (self.flag, *self.names)

    @property
    def heading(self) -> str:
        """The heading in the help of the command."""
        own = self.group or ("machine" if self.sets.startswith("machine.") else "options")
        return "arguments" if self.positional else own

    @property
    def other_values(self) -> Mapping[str, str]:
        """Other words for a value, also those for values of the setting that it changes: `gpu` for `cuda`."""
        return {**OTHER_VALUES.get(self.sets, {}), **self.values}

    @property
    def switch(self) -> bool:
        """Whether it is on or off and takes no value."""
        return self.form.kind == "switch"

    def is_default(self, value: object) -> bool:
        return not self.required and value == self.default

    def text(self, value: Any) -> str:
        """A value as the command line takes it."""
        # References are JSON, which has lists only; the values of requests are tuples.
        return self.form.text(tuple(value) if isinstance(value, list) else value)

    def check(self, value: Any) -> None:
        """Refuse a number out of range. Raises ConfigError."""
        low, above, high = self.low, self.above, self.high
        for each in value if isinstance(value, tuple) else (value,):
            number = None if each is None else self.form.number(each)
            if number is None:
                continue
            enough = (low is None or number >= low) and (above is None or number > above)
            if not enough or not (high is None or number <= high) or not math.isfinite(number):  # a NaN is in no range
                hint = f" Did you mean {number / 100:g}?" if high == 1 and 1 < number <= 100 else ""
                raise ConfigError(f"{given(self.name, each)} is out of range: it must be {self.range_text}.{hint}")

    @property
    def range_text(self) -> str:
        """The range with its unit, such as `1 or more images`; empty if there is none."""
        limits = ("{} or more", self.low), ("above {}", self.above), ("{} or less", self.high)
        texts = [text.format(self._limit(number)) for text, number in limits if number is not None]
        return " and ".join(texts) + (f" {self.unit}" if texts and self.unit else "")

    def _limit(self, number: float) -> str:
        if self.form.kind == "fraction":
            return f"{100 * number:g}%"
        return f"{number:g}s" if self.form.kind == "duration" else f"{number:g}"


def option(default: Any = dataclasses.MISSING, /, help: str = "", **declared: Any) -> Any:
    """An option of a request: its default (none: required), its help, and what `Option` lists.

    `default="no clipping"` is the text of a default that depends on something else.
    """
    shown = declared.pop("default", "")
    metadata = {"option": Option(default=default, help=help, shown_default=shown, **declared)}
    return dataclasses.field(default=default, metadata=metadata)


def argument(default: Any = dataclasses.MISSING, /, help: str = "", **declared: Any) -> Any:
    """An option that is given by its position; `names` may add flags for it."""
    return option(default, help, positional=True, **declared)


R = TypeVar("R", bound="Request")


class Request:
    """The options of one call of a command. They are checked however it is made: typed, called or read from JSON."""

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
            each.sets: value
            for each in options_of(type(self))
            if each.sets
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
        # The request checks the values once more: a file may have been edited.
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
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        options = [_complete(each, form_of(hints[each.name])) for each in fields]
        _OPTIONS[cls] = tuple(sorted(options, key=lambda each: not each.positional))
    return _OPTIONS[cls]


def _complete(field: dataclasses.Field[Any], form: Form) -> Option:
    declared: Option = field.metadata["option"]
    return dataclasses.replace(declared, name=field.name, form=form, metavar=declared.metavar or form.metavar)


def option_of(cls: type[Request], name: str) -> Option | None:
    """The option of this name, or the one that changes the setting of this name."""
    name = name.removeprefix("recipe.")
    # The name first: an option may have the name of a setting that another option changes.
    exact = next((each for each in options_of(cls) if each.name == name), None)
    return exact or next((each for each in options_of(cls) if each.sets == name), None)


# ---------------------------------------------------------------------------------------------------------- help texts


def summary_of(cls: type[Request]) -> str:
    """The first line of a command's help."""
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
    """The default as help and reference pages show it; empty if there is none."""
    if each.shown_default:
        return each.shown_default
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
    for each in sorted(options_of(cls), key=lambda each: each.advanced):  # the everyday ones first
        if each.edge != "python" and (everything or not each.advanced):
            by_group[each.heading].append(each)
    return ((name, options) for name, options in by_group.items() if options)
