"""Names that people type out of habit, and the flags and values of Vernier they stand for. Applied before parsing.

A name counts as an alias only for a command that has no flag of that name: `--batch` stays `--batch` where it exists.
"""

import re
from collections.abc import Collection

from vernier.api.options import OTHER_NAMES, OTHER_VALUES
from vernier.errors import ConfigError


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


FLAGS = {_flag(name): tuple(map(_flag, own)) for name, own in OTHER_NAMES.items()}
"""The flags an alias can stand for: the first that the command has."""

BATCHES = tuple(flag for flag, own in FLAGS.items() if own == ("--batch", "--global-batch"))

VALUES = {(_flag(name), word): own for (name, word), own in OTHER_VALUES.items()}
"""Other words for a value of a flag; also inside a list with commas."""


def with_own_names(arguments: list[str], flags: Collection[str], switches: Collection[str]) -> list[str]:
    """The arguments with every alias replaced by this command's own flag.

    Raises ConfigError for `--set a = b`, for `--switch=value` and for the number of a device.
    """
    words: list[str] = []
    for index, word in enumerate(arguments):
        if word == "--":
            return words + arguments[index:]
        if not word.startswith("--"):
            words.append(_value(words[-1] if words else "", word))
            continue
        flag, equals, value = word.replace("_", "-", word.partition("=")[0].count("_")).partition("=")
        flag = _own_name(flag, flags)
        if flag == "--set":
            _check_assignment(value if equals else "", arguments[index + 1 :])
        if equals and flag in switches:
            raise ConfigError(f"{flag} takes no value: leave out ={value}.")
        off = flag not in flags and flag.startswith("--no-") and f"--{flag.removeprefix('--no-')}" in switches
        if not off:  # a switch is off unless given; --no-ema is a flag of its own
            words.append(f"{flag}={_value(flag, value)}" if equals else flag)
    return words


def in_typed_words(message: str, arguments: list[str], flags: Collection[str]) -> str:
    """A message about a flag that was given by an alias, in terms of the alias."""
    for word in arguments:
        typed = word.partition("=")[0]
        if (own := _own_name(typed.replace("_", "-"), flags)) != typed and typed not in message:
            message = re.sub(rf"{re.escape(own)}(?![\w-])", typed, message, count=1)
    return message


def _own_name(flag: str, flags: Collection[str]) -> str:
    return flag if flag in flags else next((name for name in FLAGS.get(flag, ()) if name in flags), flag)


def _value(flag: str, text: str) -> str:
    kind, colon, number = text.partition(":")
    if flag == "--device" and colon and number.isdigit():
        raise ConfigError(
            f"--device {text}: give the kind of device, --device {_value(flag, kind)}. Which ones of this kind are "
            "used is set by CUDA_VISIBLE_DEVICES (or its like of another vendor), how many by --procs."
        )
    return ",".join(VALUES.get((flag, part), part) for part in text.split(","))


def _check_assignment(attached: str, following: list[str]) -> None:
    """`--set optim.lr = 0.1` is three words to a shell."""
    name, *rest = [attached, *following] if attached else following or [""]
    after = rest[0] if rest else "--"
    if (name.endswith("=") and not after.startswith("--")) or ("=" not in name and after.startswith("=")):
        value = next((word for word in (w.strip("=") for w in rest) if word), "VALUE")
        raise ConfigError(f"Write --set without spaces around the equals sign: --set {name.strip('=')}={value}.")
