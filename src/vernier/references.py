"""Options and settings that a message names, kept as data until the edge words them.

Code below `cli` and `api` does not know whether a person typed a flag, passed a keyword argument or wrote a file. It
writes `f"{given('machine.mode', 'trace')} cannot be exported. Use {use('machine.mode', 'eager')}."`: the text then
holds references, which `cli` words as flags, `api` as keyword arguments, and records as plain settings (`plain`).
Knows no request, no setting and no command: `requests` looks those up.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from .frozen import frozen

Role = Literal["given", "use", "command"]
_OPEN, _CLOSE = (
    "\u27e6",
    "\u27e7",
)  # in nobody's file names or messages, and visible if one leaks
_REFERENCE = re.compile(f"{_OPEN}(given|use|command) ([^{_CLOSE} ]+) (.*?){_CLOSE}", re.DOTALL)
_NOTHING: Any = object()
_DEEPEST = 4  # of values in values; a hostile file can nest them until Python gives up


@frozen
class Reference:
    """An option or setting that a message names.

    `name` is a setting (`machine.mode`) or a field of a request (`out`); of a command its words, joined by a dot.
    `value` is None for the name alone; `slot` stands for a value that the reader has to fill in, such as FILE.
    """

    role: Role
    name: str
    value: Any = None
    has_value: bool = False
    slot: str = ""


def given(name: str, value: Any = _NOTHING) -> str:
    """What a person gave, or what is set: `machine.mode = trace`. Without a value: the name alone."""
    return _token("given", name, value)


def use(name: str, value: Any = _NOTHING, *, slot: str = "") -> str:
    """What a person could give instead. `slot` is a placeholder for a value: `use("out", slot="FILE")`."""
    return _token("use", name, {"slot": slot} if slot else value)


def command(name: str, *arguments: object, **options: object) -> str:
    """A command to run, such as `command("eval", path, data="PATH")`. Values in capitals are placeholders."""
    plain_options = {key: _json_value(value) for key, value in options.items()}
    return _token("command", name.replace(" ", "."), {"arguments": [str(a) for a in arguments], **plain_options})


def _token(role: Role, name: str, value: Any) -> str:
    text = "" if value is _NOTHING else json.dumps(_json_value(value), ensure_ascii=False)
    return f"{_OPEN}{role} {name} {text.replace(_CLOSE, '')}{_CLOSE}"


def _json_value(value: Any, depth: int = 0) -> Any:
    if isinstance(value, Mapping | list | tuple) and depth > _DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return {str(key): _json_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item, depth + 1) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def references(text: str) -> list[Reference]:
    """The references in a text, in order."""
    return [_reference(match) for match in _REFERENCE.finditer(text)] if _OPEN in text else []


def worded(text: str, word: Callable[[Reference], str]) -> str:
    """The text with every reference replaced by the words of `word`."""
    if _OPEN not in text:
        return text
    return _REFERENCE.sub(lambda match: word(_reference(match)), text)


def plain(text: str) -> str:
    """The text with references as settings: `machine.mode = trace` for what is given, `machine.mode=eager` for use."""
    return worded(text, plain_word)


def plain_word(reference: Reference) -> str:
    """A reference in the words of a settings file; a command as on the command line, with its options by name."""
    if reference.role == "command":
        value = dict(reference.value)
        words = [*reference.name.split("."), *value.pop("arguments")]
        return " ".join(["vernier", *words, *(f"{key}={shown(item)}" for key, item in value.items())])
    if not reference.has_value:
        return reference.name
    text = reference.slot or shown(reference.value)
    return f"{reference.name} = {text}" if reference.role == "given" else f"{reference.name}={text}"


def shown(value: Any) -> str:
    """A value as a settings file or a flag has it, without quotes: `true`, `none`, `0.1`, `[1, 2]`."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return f"[{', '.join(shown(item) for item in value)}]" if isinstance(value, list | tuple) else str(value)


def _reference(match: "re.Match[str]") -> Reference:
    role, name, text = match.groups()
    value = json.loads(text) if text else None
    slot = value["slot"] if role == "use" and isinstance(value, dict) and "slot" in value else ""
    return Reference(role=role, name=name, value=value, has_value=bool(text), slot=slot)  # type: ignore[arg-type]
