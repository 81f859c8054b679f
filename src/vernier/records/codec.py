"""The one way from a record to JSON and back, driven by the types of its fields.

Reading ignores unknown keys (a newer version may have added them), gives missing ones their default, and turns anything
else that does not fit into a `DamagedRecord` that names the key.
"""

import dataclasses
import types
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from vernier.references import plain

T = TypeVar("T")


class DamagedRecord(ValueError):
    """A JSON value that is not the record it should be: which key, and what is wrong with it."""


def omitted() -> Any:
    """A field that defaults to None and is left out of the JSON when it is None."""
    return dataclasses.field(default=None, metadata={"omit": True})


def flattened() -> Any:
    """A dictionary field whose entries stand beside the other fields in the JSON; it reads all unknown keys."""
    return dataclasses.field(default_factory=dict, metadata={"flatten": True})


def named(key: str, default: Any = dataclasses.MISSING) -> Any:
    """A field whose JSON key is not its name: `class`, which Python reserves, or a key that older files have."""
    return dataclasses.field(default=default, metadata={"key": key})


def encode(value: Any) -> Any:
    """A record, or anything made of records, as plain JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        tree: dict[str, Any] = {}
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if field.metadata.get("flatten"):
                tree |= encode(item)
            elif item is not None or not field.metadata.get("omit"):
                tree[field.metadata.get("key", field.name)] = encode(item)
        return tree
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, str):
        return plain(value)  # a note may name options, which only the edge words
    return str(value) if isinstance(value, Path) else value


def decode(cls: type[T], tree: Any, where: str = "") -> T:
    """A record of type `cls` from plain JSON values. Raises DamagedRecord."""
    if not isinstance(tree, dict):
        raise DamagedRecord(f"{where or cls.__name__} is {_brief(tree)}, not an object")
    values: dict[str, Any] = {}
    for name, key, hint, field in _fields(cls):
        if key is None:
            taken = {name for name, *_ in _fields(cls)} | {"schema", "kind"}
            item_hint = get_args(hint)[1]
            values[name] = {k: v for k, v in tree.items() if k not in taken and _fits(v, item_hint)}
        elif key in tree:
            value = tree[key]
            # Most values are as they should be, and telemetry has millions. A NaN is in no range.
            kind = type(value)
            if kind not in _PLAIN.get(hint, ()) or (kind in _NUMBERS and not -_LARGEST_INT < value < _LARGEST_INT):
                value = _convert(value, hint, f"{where}.{key}" if where else key)
            values[name] = value
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise DamagedRecord(f"{where or cls.__name__} has no {key!r}")
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise DamagedRecord(f"{where or cls.__name__}: {error}") from None


_PLAIN: dict[Any, tuple[type, ...]] = {
    hint: (kind,) for kind in (float, int, str, bool) for hint in (kind, kind | None)
}
"""Types of fields, and the type of the JSON values that they take without conversion."""
_NUMBERS = (int, float)
_LARGEST_INT, _LARGEST_FLOAT = 2**63, 1e100
"""No record counts so far. Beyond it, a sum is infinite and a whole number too large for a float: errors far away."""
_JSON_TYPES: dict[Any, Any] = {float: int | float, int: int, str: str, bool: bool, Path: str}
"""Types of fields that a JSON value of one type is converted to; a bool is no number."""
_Fields = tuple[tuple[str, str | None, Any, dataclasses.Field[Any]], ...]
_FIELDS: dict[Any, _Fields] = {}


def _fields(cls: Any) -> _Fields:
    """Name, JSON key (None: flattened), type and field of all that `cls` is made from; looked up once per class."""
    if cls not in _FIELDS:
        hints = get_type_hints(cls)
        _FIELDS[cls] = tuple(
            (f.name, None if f.metadata.get("flatten") else f.metadata.get("key", f.name), hints[f.name], f)
            for f in dataclasses.fields(cls)
            if f.init
        )
    return _FIELDS[cls]


def _fits(value: Any, hint: Any) -> bool:
    try:
        _convert(value, hint, "")
    except DamagedRecord:
        return False
    return True


def _convert(value: Any, hint: Any, where: str) -> Any:
    if hint is Any:
        return value
    if hint in _JSON_TYPES:
        if isinstance(value, _JSON_TYPES[hint]) and (hint is bool or not isinstance(value, bool)):
            limit = {int: _LARGEST_INT, float: _LARGEST_FLOAT}.get(hint)
            if limit is not None and not -limit < value < limit:
                raise DamagedRecord(f"{where} is {_brief(value)}, which is no possible number")
            return hint(value)
    elif dataclasses.is_dataclass(hint):
        return decode(hint, value, where)  # type: ignore[arg-type]
    else:
        return _convert_generic(value, hint, where)
    raise DamagedRecord(f"{where} is {_brief(value)}, not {getattr(hint, '__name__', hint)}")


def _convert_generic(value: Any, hint: Any, where: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        options = [a for a in args if a is not type(None)]
        for option in options[:-1]:
            if _fits(value, option):
                return _convert(value, option, where)
        return _convert(value, options[-1], where)
    if origin is Literal and value in args:
        return value
    if origin is tuple and isinstance(value, list):
        if args == (float, ...) and all(type(v) is float and -_LARGEST_FLOAT < v < _LARGEST_FLOAT for v in value):
            return tuple(value)  # step times, of which a run has many
        kinds = [args[0]] * len(value) if args[-1] is Ellipsis else args
        if len(kinds) == len(value):
            return tuple(
                _convert(v, kind, f"{where}[{i}]") for i, (v, kind) in enumerate(zip(value, kinds, strict=True))
            )
    if origin is dict and isinstance(value, dict):
        return {key: _convert(item, args[1], f"{where}.{key}") for key, item in value.items()}
    raise DamagedRecord(f"{where} is {_brief(value)}, not {hint}")


def _brief(value: Any) -> str:
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested without end, or a number of thousands of digits
        return f"a {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:37]}..."
