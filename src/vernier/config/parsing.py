"""Settings from TOML, JSON and assignments `a.b=c`, checked as they are read; back to TOML; digest and differences.

Files of older schemas are read through `config.migrations`; rules between settings are `config.checks`.
"""

import dataclasses
import difflib
import hashlib
import json
import math
import tomllib
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from vernier.addresses import note_origin, redact_addresses, refuse_credentials
from vernier.errors import ConfigError
from vernier.references import command, given, use

from .migrations import RENAMED_SETTINGS, migrated
from .settings import Config, Data, Optim, Recipe, optimizers, short_side_of

T = TypeVar("T")

ALIASES = {"data.workers": "machine.workers", "data.prefetch": "machine.prefetch"}
"""Names people try that are settings of another group."""
_GROUPS = {f.name for f in dataclasses.fields(Config)}
_TYPE_NAMES = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}
_USUAL_NAMES = {"learning_rate": "optim.lr", "batch_size": "global_batch", "batch": "global_batch"}
_LARGEST = 2**63
_IGNORED = ("trust_coefficient", "beta2", "eps", "filter_momentum")
"""Settings of optimizers that versions before 0.4 recorded and ignored with other optimizers."""
_OTHER_NAMES_OF_VALUES = {("machine.mode", "graph"): "compile"}


# ------------------------------------------------------------------------------------------------- from text to values


def from_dict(cls: type[T], tree: Any, path: str = "") -> T:
    """A dataclass from plain values; unknown names, wrong types and values out of range are ConfigErrors."""
    if not isinstance(tree, dict):
        raise ConfigError(f"{path or 'The configuration'} must be a table of settings, not {tree!r}.")
    if issubclass(cls, Optim):
        # A model whose optimizer is in a package that is not here can be used, `check_optimizer` refuses to train it.
        kind: Any = optimizers().get(str(tree.get("name", cls.name)), Optim)
        cls, tree = kind, _own_settings(kind, tree)
    return cls(**{key: _field_value(cls, key, value, path) for key, value in tree.items()})


def _own_settings(kind: type[Optim], table: Any) -> Any:
    """The table of an optimizer without settings of others: earlier versions wrote those of all into every file.

    Raises ConfigError if one of them is not at its default: it has no effect.
    """
    table = dict(table)
    for key in [key for key in table if not hasattr(kind, key)]:
        defaults = {name: getattr(other, key) for name, other in optimizers().items() if hasattr(other, key)}
        if kind is Optim or key in _IGNORED or table[key] in defaults.values():
            del table[key]
        elif defaults:
            name = next(iter(defaults))
            raise ConfigError(
                f"{given(f'optim.{key}', table[key])} is for {' and '.join(defaults)}, and this is "
                f"{given('optim.name', kind.name)}. Use {use(f'optim.{key}', defaults[name])} or "
                f"{use('optim.name', name)}."
            )
    return table


def _field_value(cls: Any, name: Any, value: Any, path: str) -> Any:
    """The value of one field of the dataclass at `path`, converted and checked."""
    # Messages name settings of a recipe as assignments do: `optim.lr`, not `recipe.optim.lr`.
    where = str(name) if path in ("", "recipe") else f"{path}.{name}"
    field = next((each for each in dataclasses.fields(cls) if each.name == name), None)
    if field is None:
        raise ConfigError(_unknown(where))
    if isinstance(value, str):
        value = _OTHER_NAMES_OF_VALUES.get((where, value), value)
    value = _convert(value, _hints(cls)[name], where)
    _check_range(value, field.metadata, where)
    return value


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _convert(value: Any, hint: Any, where: str) -> Any:
    if isinstance(value, int) and abs(value) >= _LARGEST:  # may have more digits than Python writes or a float holds
        raise ConfigError(f"{given(where)} is out of range: no setting takes whole numbers of 64 bits and more.")
    origin, args = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        return from_dict(hint, value, where)  # type: ignore[arg-type]
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _convert(value, next(a for a in args if a is not type(None)), where)
    if origin is Literal:
        if value not in args:
            raise ConfigError(f"{given(where, value)} is not one of: {', '.join(map(str, args))}.")
        return value
    if origin is tuple:
        return _convert_tuple(value, args, where)
    # 1 becomes 1.0, since digests see them as different. True is an int for Python, but not a number here.
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is not bool and isinstance(value, bool)):
        raise ConfigError(f"{given(where, value)} is not possible: it must be {_TYPE_NAMES.get(hint, hint)}.")
    return value


def _convert_tuple(value: Any, args: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{given(where, value)} is not possible: it must be a list such as [1, 2].")
    fixed = args[-1] is not Ellipsis
    if fixed and len(value) != len(args):
        raise ConfigError(f"{given(where, value)} is not possible: it must be a list of {len(args)} values.")
    return tuple(_convert(v, args[0], f"{where}[{i}]") for i, v in enumerate(value))


def _check_range(value: Any, meta: Any, where: str) -> None:
    for number in value if isinstance(value, tuple) else (value,):
        if not isinstance(number, int | float) or isinstance(number, bool):
            continue
        low, high, above = meta["low"], meta["high"], meta["above"]
        limit = "" if math.isfinite(number) else "a finite number"
        limit = limit or (f"{low} or more" if number < low else f"above {above}" if number <= above else "")
        if limit := limit or (f"{high} or less" if number > high else ""):
            raise ConfigError(f"{given(where, number)} is out of range: it must be {limit}.")


def to_dict(value: Any) -> dict[str, Any]:
    """Plain JSON values, tuples as lists."""
    # Through JSON, so that a tree in memory equals one that was read from a file.
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(value)))
    return plain


def override(config: Config, path: str, value: Any) -> Config:
    """`config` with one field replaced. Recipe fields need no prefix: `optim.lr`, `machine.procs`, `global_batch`."""
    return override_all(config, {path: value})


def override_all(config: Config, values: Mapping[str, Any]) -> Config:
    """`config` with fields replaced, in one go: which ones the optimizer has depends on its name."""
    tree = to_dict(config)
    for path, value in values.items():
        *names, last = setting_name(path).split(".")
        group: Any = tree
        for name in names:
            group = group.get(name) if isinstance(group, dict) else None
        if not isinstance(group, dict):
            raise ConfigError(_unknown(path.removeprefix("recipe.")))
        if isinstance(group.get(last), dict) and not isinstance(value, dict):
            raise ConfigError(f"{path!r} is a group of settings: name one of {', '.join(group[last])}.")
        if isinstance(value, str):
            refuse_credentials(value, path)
        group[last] = value
    return from_dict(Config, tree)


@cache
def described_settings(group: Any = Config, path: str = "") -> dict[str, tuple[str, Any]]:
    """Every setting by the name that assignments take (`optim.lr`, `seed`), with its line of help and its type."""
    out: dict[str, tuple[str, Any]] = {}
    for kind in optimizers().values() if group is Optim else (group,):
        hints = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            name, hint = f"{path}{field.name}", hints[field.name]
            if dataclasses.is_dataclass(hint):
                out |= described_settings(hint, f"{name}." if name != "recipe" else "")  # type: ignore[arg-type]
            else:
                out.setdefault(name, (field.metadata["doc"], hint))
    return out


def _unknown(path: str) -> str:
    """The message about a setting that does not exist, with its new name or the nearest ones by their full names."""
    if new := RENAMED_SETTINGS.get(_from_the_top(path)):
        return f"Unknown setting {path!r}. It is called {use(new.removeprefix('recipe.'))}."
    names, last = described_settings(), path.rpartition(".")[2]
    near = [_USUAL_NAMES[last]] if last in _USUAL_NAMES else [n for n in names if n.rpartition(".")[2] == last]
    near = near or difflib.get_close_matches(path, names, n=1, cutoff=0.6)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"{command('recipes', 'shapes-quick')} lists them all."
    return f"Unknown setting {path!r}. {hint}"


def setting_name(path: str) -> str:
    """The full name of a setting as people write it: `optim.lr` is `recipe.optim.lr`."""
    return _from_the_top(ALIASES.get(path, path))


def _from_the_top(path: str) -> str:
    return path if path.split(".")[0] in _GROUPS else f"recipe.{path}"


def config_from_tree(tree: Any) -> Config:
    """A configuration from plain values of today's schema, without credentials in its address. Raises ConfigError."""
    config = from_dict(Config, tree)
    data = config.recipe.data
    # Files of earlier versions may hold a password.
    data = dataclasses.replace(data, source=redact_addresses(data.source))
    return dataclasses.replace(config, recipe=dataclasses.replace(config.recipe, data=data))


def override_from_text(config: Config, *assignments: str) -> Config:
    """Apply `a.b=c` from the command line; `c` is read as TOML, or as text where it is none."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        path, equals, text = (part.strip() for part in assignment.partition("="))
        if not equals or not path:
            raise ConfigError(f"{given('settings')} takes NAME=VALUE such as optim.lr=0.1, not {assignment!r}.")
        hint = described_settings().get(setting_name(path).removeprefix("recipe."), ("", Any))[1]
        values[path] = parse_value(text, hint)
    return override_all(config, values)


def assignment(path: str, value: Any) -> str:
    """The assignment `a.b=c` that gives a setting this value of Python."""
    return f"{path}={'none' if value is None else toml_value(value)}"


def parse_value(text: str, hint: Any) -> Any:
    """The value of a setting from the command line: TOML, or as it is where it is no TOML or the setting is text.

    `none` leaves out a setting that can be left out; for any other it is a text.
    """
    if text.lower() in ("none", "null") and type(None) in get_args(hint):
        return None
    if hint is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except (ValueError, RecursionError):  # TOML's own errors, numbers of too many digits, lists in lists without end
        return text
    # `name=2024` is text, although TOML reads a number.
    is_text = hint is str or (get_origin(hint) is not tuple and str in get_args(hint))
    return value if isinstance(value, str) or not is_text else text


def load_file(path: Path) -> Config:
    """A TOML file (recipe fields at the top, tables for the rest) or a run's config.json; defaults for the rest."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read {path}: {error}.") from None
    except (ValueError, RecursionError) as error:  # also numbers of too many digits
        raise ConfigError(f"{path} is not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}.") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} must hold a table of settings.")
    if "schema" in tree:
        tree = migrated("config", tree, path)
    # A file that people write has the recipe at the top, a run's config.json below `recipe`.
    if "recipe" not in tree:
        groups = {name: tree.pop(name) for name in list(tree) if name in _GROUPS}
        tree = {"recipe": tree, **groups}
    # An address that nobody typed is refused later; the error then names this file.
    note_origin(tree, path)
    try:
        config = from_dict(Config, tree)
        refuse_credentials(config.recipe.data.source, "data.source")
    except ConfigError as error:
        raise error.within(path) from None
    return config


# ------------------------------------------------------------------------------------------------- from values to text


def to_toml(recipe: Recipe) -> str:
    """The recipe as a TOML file to edit, every field with its line of help."""
    lines: list[str] = []
    tables: list[tuple[str, Any]] = []
    for f in dataclasses.fields(recipe):
        value = getattr(recipe, f.name)
        if dataclasses.is_dataclass(value):
            tables.append((f"[{f.name}]", value))
        elif f.name == "published":
            tables += [("[[published]]", entry) for entry in value]
        else:
            lines.append(_toml_line(f, value))
    # After all plain settings: in TOML, a key behind a table's name belongs to that table.
    for name, table in tables:
        lines += ["", name]
        following = _following(table)
        lines += [
            _toml_line(f, None if f.name in following else getattr(table, f.name)) for f in dataclasses.fields(table)
        ]
    return "\n".join(lines) + "\n"


def _following(table: Any) -> set[str]:
    """Settings that follow from others of the table, and are left out so that they go on following."""
    if not isinstance(table, Data):
        return set()
    usual = {"eval_px": table.image_px, "eval_short_side_px": short_side_of(table.eval_px)}
    return {name for name, value in usual.items() if getattr(table, name) == value}


def _toml_line(f: Any, value: Any) -> str:
    # TOML has no null: a setting without a value is a comment.
    setting = f"# {f.name} =" if value is None else f"{f.name} = {toml_value(value)}"
    return f"{setting:40}  # {f.metadata['doc']}"


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    # JSON's notation of texts, true and false is also TOML's.
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    return repr(value)


def digest(value: Any) -> str:
    """A short hash of a configuration's values: equal digests, equal settings."""
    text = json.dumps(to_dict(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differences(a: Any, b: Any) -> dict[str, tuple[Any, Any]]:
    """`a.b.c` -> (in a, in b) for every setting in which two configurations differ."""
    return tree_differences(to_dict(a), to_dict(b))


def tree_differences(a: Any, b: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """The same for plain values, as in the JSON files of a run."""
    if isinstance(a, dict) and isinstance(b, dict):
        out: dict[str, tuple[Any, Any]] = {}
        for key in [*a, *(k for k in b if k not in a)]:
            out |= tree_differences(a.get(key), b.get(key), f"{path}.{key}" if path else key)
        return out
    return {} if a == b else {path: (a, b)}
