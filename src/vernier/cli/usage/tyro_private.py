"""Every private part of tyro that Vernier relies on, each behind a function that says why.

When a release of tyro changes one of them, this file and its tests are the only ones to change.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tyro
from tyro import _errors as events
from tyro.conf import OmitArgPrefixes
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from vernier.frozen import frozen

Kind = Literal["unknown", "missing", "no value", "not a choice", "wrong type", "other"]
_TYPE_NAMES = {int: "a whole number", float: "a number"}


@frozen
class Refusal:
    """Why tyro refused a command line. `names`: the flags, or metavars of arguments, that it is about."""

    kind: Kind
    names: tuple[str, ...] = ()
    value: str = ""
    choices: tuple[str, ...] = ()
    expected: str = ""
    """For a value of the wrong type: the right one in words."""


@frozen
class Flag:
    """A flag of a command with all its spellings, or an argument without any.

    `switch`: off unless given; `pair`: on or off, with a --no- form.
    """

    names: tuple[str, ...] = ()
    switch: bool = False
    pair: bool = False
    repeatable: bool = False
    metavar: str = ""
    about: str = ""


_WITHOUT_NONE = ConstructorRegistry()


@_WITHOUT_NONE.primitive_rule
def _value_or_left_out(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """A flag of type `X | None` is None where it was left out, but takes values of X only: the word None is text."""
    kinds = [kind for kind in get_args(info.type) if kind is not type(None)]
    if get_origin(info.type) not in (Union, UnionType) or len(kinds) != 1:
        return None
    spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(kinds[0], info.markers))
    assert isinstance(spec, PrimitiveConstructorSpec)
    return replace(
        spec,
        is_instance=lambda value: value is None or spec.is_instance(value),
        str_from_instance=lambda value: [] if value is None else spec.str_from_instance(value),
    )


_METAVARS: dict[Any, str] = {int: "N", float: "X", str: "TEXT"}


@_WITHOUT_NONE.primitive_rule
def _plain_metavars(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Numbers and texts without tyro's INT, FLOAT and STR in help, and defaults as people write them: 20, not 20.0."""
    kind = info.type
    if kind not in _METAVARS:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=_METAVARS[kind],
        instance_from_str=lambda words: kind(words[0]),
        is_instance=lambda value: isinstance(value, kind) or (kind is float and isinstance(value, int)),
        str_from_instance=lambda value: [f"{value:g}" if kind is float else str(value)],
    )


def use_colours(on: bool) -> None:
    """Switch the colours of help on or off. tyro has no public setting for it."""
    tyro._experimental_options["ansi_codes"] = on


def call(function: Callable[..., int], arguments: list[str], prog: str, refuse: Callable[[Refusal], Any]) -> int:
    """Parse the arguments and call the function with them. tyro's own words for errors are boxes with Python types, so
    `refuse` is called first, and should raise."""

    def on_error(event: events.ParseErrorEvent) -> None:
        refuse(_refusal(event))

    with events.on_parse_error(on_error):
        code: int = tyro.cli(function, args=arguments, prog=prog, config=(OmitArgPrefixes,), registry=_WITHOUT_NONE)
    return code


def _refusal(event: events.ParseErrorEvent) -> Refusal:
    match event:
        case events.UnrecognizedArgs():
            return Refusal(kind="unknown", names=tuple(event.tokens))
        case events.MissingArgs() if event.unrecognized_tokens:
            return Refusal(kind="unknown", names=tuple(event.unrecognized_tokens))
        case events.MissingArgs():
            return Refusal(kind="missing", names=tuple(_name(a.arg) for a in event.missing_arguments))
        case events.BadValue():
            return Refusal(kind="no value", names=_spellings(event.argument), expected=_metavar(event.argument))
        case events.InvalidChoice():
            return Refusal(
                kind="not a choice",
                names=_spellings(event.argument),
                value=event.value,
                choices=tuple(event.choices),
            )
        case events.InstantiationFailure() if event.argument is not None:
            return Refusal(
                kind="wrong type",
                names=_spellings(event.argument),
                expected=_type_in_words(event.argument.field.type_stripped),
            )
    return Refusal(kind="other")


def _spellings(argument: Any) -> tuple[str, ...]:
    return (_metavar(argument),) if argument.is_positional() else tuple(argument.lowered.name_or_flags)


def _name(argument: Any) -> str:
    if argument.is_positional():
        return _metavar(argument)
    return f"{max(argument.lowered.name_or_flags, key=len)} {_metavar(argument)}"


def _metavar(argument: Any) -> str:
    metavar = str(argument.lowered.metavar or "").strip("[]")
    return metavar[1:-1].replace(",", "|") if metavar.startswith("{") else metavar


def _type_in_words(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        hint = next(kind for kind in get_args(hint) if kind is not type(None))
    if get_origin(hint) is tuple:
        inner = _TYPE_NAMES.get(get_args(hint)[0], "values").removeprefix("a ")
        return f"{len(get_args(hint))} {inner}s" if Ellipsis not in get_args(hint) else f"{inner}s"
    return _TYPE_NAMES.get(hint, "another kind of value")


def flags_of(function: Callable[..., int]) -> Iterator[Flag]:
    """Every flag of a command. tyro shows them only in help."""
    return (flag for flag in _everything_of(function) if flag.names)


def arguments_of(function: Callable[..., int]) -> Iterator[Flag]:
    """Every argument of a command that is no flag, in order."""
    return (flag for flag in _everything_of(function) if not flag.names)


def _everything_of(function: Callable[..., int]) -> Iterator[Flag]:
    with _WITHOUT_NONE:
        specification = _specification(function)
    for context in specification.get_args_including_children():
        lowered, about = context.arg.lowered, context.arg.field.helptext
        yield Flag(
            names=() if context.arg.is_positional() else tuple(lowered.name_or_flags),
            switch=lowered.action == "store_true",
            pair=lowered.action == "boolean_optional_action",
            repeatable=lowered.action == "append",
            metavar=_metavar(context.arg),
            about=str(about() if callable(about) else about or ""),
        )


def _specification(function: Callable[..., int]) -> Any:
    return tyro._parsers.ParserSpecification.from_callable_or_type(
        Annotated[function, OmitArgPrefixes],  # type: ignore[arg-type]
        markers=set(),
        description=None,
        parent_classes=set(),
        default_instance=tyro.MISSING_NONPROP,
        intern_prefix="",
        extern_prefix="",
        subcommand_prefix="",
        support_single_arg_types=False,
        prog_suffix="",
    )
