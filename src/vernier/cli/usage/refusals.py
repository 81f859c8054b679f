"""The words for a command line that cannot be parsed: one or two sentences that name what was typed and what works."""

import difflib
import itertools
import re
from collections.abc import Callable, Iterable
from typing import Never

from vernier.config import setting_names
from vernier.errors import ConfigError

from .aliases import FLAGS
from .help_texts import examples_of
from .tyro_private import Refusal, flags_of

INSTEAD = {"--global-batch": "--batch, the batch per device"}
"""What to use where a command does not have this flag of another one."""


def refuse(refusal: Refusal, function: Callable[..., int], arguments: list[str], prog: str) -> Never:
    """Raise the ConfigError for a refusal of tyro."""
    name = _typed_name(refusal.names, arguments)
    flags = [name for flag in flags_of(function) for name in flag.names]
    if unknown := _unknown_flag(arguments, flags):
        raise ConfigError(f"Unknown flag {unknown}. {_suggestion(unknown, flags)}{prog} --help lists the flags.")
    match refusal.kind:
        case "unknown":
            message = f"{refusal.names[0]!r} is one argument too many. {prog} --help shows what it takes."
        case "missing":
            example = next(iter(examples_of(function)), f"{prog} --help")
            message = f"{prog} needs {' and '.join(refusal.names)}, for example: {example}"
        case "no value":
            message = f"{name} needs a value: {name} {refusal.expected}."
        case "not a choice":
            near = difflib.get_close_matches(refusal.value, refusal.choices, n=1, cutoff=0.6)
            hint = f"Did you mean {near[0]}? " if near else ""
            what = f"{name} {refusal.value!r}" if name.startswith("-") else repr(refusal.value)
            message = f"{what} is not known. {hint}Choose from {', '.join(refusal.choices)}."
        case "wrong type":
            values = _typed_values(name, arguments)
            value = " ".join(values if refusal.expected.endswith("s") else values[:1])
            message = f"{name} takes {refusal.expected}, not {value!r}."
        case "other":
            message = f"These arguments do not go together. {prog} --help explains them."
    raise ConfigError(message)


def _typed_name(names: Iterable[str], arguments: list[str]) -> str:
    spellings = list(names)
    typed = [word.partition("=")[0] for word in arguments]
    return next((name for name in spellings if name in typed), spellings[0] if spellings else "")


def _typed_values(name: str, arguments: list[str]) -> list[str]:
    """The words after a flag where it was given last; for an argument without a flag all of them."""
    for index in range(len(arguments) - 1, -1, -1):
        flag, equals, value = arguments[index].partition("=")
        if flag == name:
            following = itertools.takewhile(lambda word: not word.startswith("--"), arguments[index + 1 :])
            return [value] if equals else list(following)
    return [word for word in arguments if not word.startswith("-")]


def _unknown_flag(arguments: list[str], flags: list[str]) -> str:
    """The first flag that the command does not have."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    typed = [word.partition("=")[0] for word in options if re.match("-+[A-Za-z]", word)]
    return next((word for word in typed if word not in flags and word.replace("--no-", "--", 1) not in flags), "")


def _suggestion(typed: str, flags: list[str]) -> str:
    instead = INSTEAD.get(typed, "")
    if instead.partition(",")[0] in flags:
        return f"Use {instead}. "
    near = difflib.get_close_matches(typed, [*flags, *FLAGS], n=3, cutoff=0.7)
    if own := [name for flag in near for name in (flag, *FLAGS.get(flag, ())) if name in flags]:
        return f"Did you mean {own[0]}? "
    word = typed.lstrip("-").replace("-", "_")
    settings = [name for name in setting_names() if word in (name, name.rpartition(".")[2])]
    if settings and "--set" in flags:
        return f"It is a setting: --set {' or --set '.join(f'{name}=VALUE' for name in settings[:2])}. "
    return ""
