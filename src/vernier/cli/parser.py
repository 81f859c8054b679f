"""Command lines: the words after a command's name become its request, by the request's declaration.

A word that does not fit is refused with what was typed and what would work. Values are checked by the request itself.
"""

import difflib
import re
from collections.abc import Iterable
from typing import Any, TypeVar

from vernier.config import described_settings
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.plugins import load_group
from vernier.references import given
from vernier.requests.declaring import Option, Request, examples_of, options_of

from .wording import ShellWords

R = TypeVar("R", bound=Request)


@frozen
class _Flag:
    """A flag of a command: its option, and for a switch the value that it stands for."""

    option: Option
    value: bool | None = None


def flags_of(cls: type[Request]) -> dict[str, _Flag]:
    """Every flag that a command understands, also other names and the `--no-` forms of switches."""
    flags: dict[str, _Flag] = {}
    for option in options_of(cls):
        if option.edge == "python":
            continue
        # The field is called settings, since Python has it as a mapping; nobody would type --settings.
        for name in ("--set", *option.names) if option.name == "settings" else option.flags:
            flags[name] = _Flag(option=option, value=True if option.switch else None)
            if option.switch and name.startswith("--"):
                flags[name.replace("--", "--no-", 1)] = _Flag(option=option, value=False)
    return flags


def parse(cls: type[R], words: list[str], prog: str) -> tuple[R, ShellWords]:
    """The request of the words after a command's name, and how messages about it are worded. Raises ConfigError."""
    reader = _Reader(cls, words, prog)
    reader.read()
    shell = ShellWords(cls, typed=reader.typed)
    try:
        # The request checks its values itself, however it is made; here its error only gets the words.
        request = cls(**reader.values)
    except ConfigError as error:
        error.word = shell.word
        raise
    shell.request = request
    return request, shell


class _Reader:
    """Reads words from left to right into values by option."""

    def __init__(self, cls: type[Request], words: list[str], prog: str) -> None:
        self.cls, self.prog = cls, prog
        self.flags = flags_of(cls)
        self.left = list(words)
        self.values: dict[str, Any] = {}
        self.typed: dict[str, str] = {}
        self.free: list[str] = []

    def read(self) -> None:
        while self.left:
            word = self.left.pop(0)
            if word == "--":
                # As in every program of a shell: what follows is no flag, whatever it looks like.
                self.free += self.left
                break
            # A letter after the hyphen: -1 and -0.5 are values.
            if re.match(r"--?[A-Za-z]", word):
                self._read_flag(word)
            else:
                self.free.append(word)
        self._place_arguments()
        missing = [option for option in options_of(self.cls) if option.required and option.name not in self.values]
        if missing:
            names = " and ".join(_shown_name(option) for option in missing)
            example = next(iter(examples_of(self.cls)), f"{self.prog} --help")
            raise ConfigError(f"{self.prog} needs {names}, for example: {example}")

    def _read_flag(self, word: str) -> None:
        typed, equals, attached = word.partition("=")
        # People copy --global_batch from names in Python.
        name = typed.replace("_", "-") if typed.startswith("--") else typed
        flag = self.flags.get(name)
        if flag is None:
            raise ConfigError(f"Unknown flag {typed}. {self._suggestion(name)}{self.prog} --help lists the flags.")
        option = flag.option
        # Messages name a flag as it was typed, also if that is another name of it.
        if option.flag not in (name, name.replace("--no-", "--", 1)):
            self.typed[option.name] = typed
        if option.switch:
            if equals:
                raise ConfigError(f"{typed} takes no value: leave out ={attached}.")
            self._set_switch(option, bool(flag.value), typed)
            return
        if option.form.kind == "settings":
            self._check_assignment(attached if equals else "")
        values = [attached] if equals else [self._next_value(option, typed) for _ in range(option.form.count)]
        self._set(option, values, typed)

    def _set_switch(self, option: Option, value: bool, typed: str) -> None:
        # No flag wins silently over its opposite.
        if self.values.get(option.name, value) is not value:
            raise ConfigError(f"Give {option.flag} or {option.flag.replace('--', '--no-', 1)}, not both.")
        self.values[option.name] = value

    def _next_value(self, option: Option, typed: str) -> str:
        # One hyphen is allowed, as in -1. Two begin the next flag, so that the value was forgotten.
        if not self.left or self.left[0] == "--" or re.match(r"--[A-Za-z]", self.left[0]):
            raise ConfigError(f"{typed} needs a value: {typed} {option.metavar}.")
        return self.left.pop(0)

    def _set(self, option: Option, texts: list[str], typed: str) -> None:
        form = option.form
        shell = ShellWords(self.cls, typed=self.typed)
        try:
            # `--minutes 10` had its unit in the name; the option that replaced it takes 10m.
            if option.bare and typed in option.names and re.fullmatch(r"\d+(\.\d+)?", texts[0]):
                texts = [f"{texts[0]}{option.bare}"]
            if form.several and not (option.repeats or form.kind == "settings"):
                self.values[option.name] = form.parse_list(option.name, texts[0], option.other_values)
            elif form.several:
                values = (
                    tuple(texts)
                    if form.kind == "settings"
                    else tuple(form.parse(option.name, text, option.other_values) for text in texts)
                )
                self.values[option.name] = (*self.values.get(option.name, ()), *values)
            elif form.count > 1:
                self.values[option.name] = tuple(form.parse(option.name, text) for text in texts)
            else:
                if option.name == "device":
                    _refuse_device_number(texts[0])
                self.values[option.name] = form.parse(option.name, texts[0], option.other_values)
        except ConfigError as error:
            error.word = shell.word
            raise

    def _place_arguments(self) -> None:
        """Give the words without a flag to the arguments in order; one that was given by a flag takes none."""
        for option in options_of(self.cls):
            # `--data PATH` and PATH are the same argument: after the flag, no word is left for it.
            if not option.positional or option.name in self.values:
                continue
            if option.repeats:
                if self.free:
                    self._set(option, self.free, "")
                self.free = []
            elif self.free:
                self._set(option, [self.free.pop(0)], "")
        if self.free:
            raise ConfigError(f"{self.free[0]!r} is one argument too many. {self.prog} --help shows what it takes.")

    def _check_assignment(self, attached: str) -> None:
        """`--set optim.lr = 0.1` is three words to a shell."""
        name, *rest = [attached, *self.left] if attached else self.left or [""]
        after = rest[0] if rest else "--"
        if (name.endswith("=") and not after.startswith("--")) or ("=" not in name and after.startswith("=")):
            value = next((word for word in (w.strip("=") for w in rest) if word), "VALUE")
            raise ConfigError(f"Write --set without spaces around the equals sign: --set {name.strip('=')}={value}.")

    def _suggestion(self, typed: str) -> str:
        groups: Iterable[dict[str, str]] = load_group("vernier.flag_hints", dict).values()
        # What other packages know about flags of other programs is more specific than a similar spelling.
        for hints in groups:
            instead = hints.get(f"{self.cls.command} {typed}", hints.get(typed, ""))
            if instead.startswith("nothing: "):
                return f"There is no such flag here: {instead.removeprefix('nothing: ')}. "
            if instead.startswith("vernier ") or re.split(r"[ ,]", instead)[0] in self.flags:
                return f"Use {instead}. "
        # 0.7: one or two letters off. Below it, flags are offered that nobody meant.
        near = difflib.get_close_matches(typed, self.flags, n=1, cutoff=0.7)
        if near:
            flag = self.flags[near[0]]
            own = near[0] if flag.option.name == "settings" or flag.value is False else flag.option.flag
            return f"Did you mean {own}? "
        # Last: names of settings are common words such as `name` and would win over a misspelled flag.
        word = typed.lstrip("-").replace("-", "_")
        settings = [name for name in described_settings() if word in (name, name.rpartition(".")[2])]
        if settings and "--set" in self.flags:
            return f"It is a setting: --set {' or --set '.join(f'{name}=VALUE' for name in settings[:2])}. "
        return ""


def _refuse_device_number(text: str) -> None:
    kind, colon, number = text.partition(":")
    if colon and number.isdigit():
        raise ConfigError(
            f"{given('device', text)}: give the kind of device, {given('device', kind)}. Which ones of this kind are "
            "used is set by CUDA_VISIBLE_DEVICES (or its equivalent of another vendor), how many by "
            f"{given('procs')}."
        )


def _shown_name(option: Option) -> str:
    return option.metavar.strip("[]") if option.positional else f"{option.flag} {option.metavar}".rstrip()
