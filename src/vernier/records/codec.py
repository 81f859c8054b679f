"""The one way from a record to JSON and back, driven by the types of its fields.

Reading ignores unknown keys (a newer version may have added them), gives missing ones their default, and turns anything
else that does not fit into a `DamagedRecord` that names the key.
"""

import dataclasses
from pathlib import Path
from typing import Any, TypeVar, get_args

from vernier.references import plain
from vernier.typed import LARGEST_INT, Mismatch, convert, fits, hints_of

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
            # Every event has a schema and a kind, which belong to the file.
            taken = {name for name, *_ in _fields(cls)} | {"schema", "kind"}
            item_hint = get_args(hint)[1]
            values[name] = {k: v for k, v in tree.items() if k not in taken and fits(v, item_hint, decode)}
        elif key in tree:
            value = tree[key]
            # Most values are as they should be, and telemetry has millions. A NaN is in no range.
            kind = type(value)
            if kind not in _PLAIN.get(hint, ()) or (kind in _NUMBERS and not -LARGEST_INT < value < LARGEST_INT):
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
_Fields = tuple[tuple[str, str | None, Any, dataclasses.Field[Any]], ...]
_FIELDS: dict[Any, _Fields] = {}


def _fields(cls: Any) -> _Fields:
    """Name, JSON key (None: flattened), type and field of all that `cls` is made from; looked up once per class."""
    if cls not in _FIELDS:
        hints = hints_of(cls)
        _FIELDS[cls] = tuple(
            (f.name, None if f.metadata.get("flatten") else f.metadata.get("key", f.name), hints[f.name], f)
            for f in dataclasses.fields(cls)
            if f.init
        )
    return _FIELDS[cls]


def _convert(value: Any, hint: Any, where: str) -> Any:
    try:
        return convert(value, hint, where, decode)
    except Mismatch as error:
        raise DamagedRecord(f"{error.where} is {_brief(error.value)}, not {error.needed}") from None


def _brief(value: Any) -> str:
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested without end, or a number of thousands of digits
        return f"a {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:37]}..."
