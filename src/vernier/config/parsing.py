"""Settings from TOML, JSON and assignments `a.b=c`, checked as they are read; back to TOML; digest and differences.

Files of older schemas are read through `config.migrations`; rules between settings are `config.checks`.
"""

import codecs
import dataclasses
import difflib
import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache, partial, reduce
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from vernier.addresses import note_origin, redact_addresses, refuse_credentials
from vernier.errors import ConfigError
from vernier.own_code import is_own
from vernier.plugins import plugin_names
from vernier.references import command, given, use
from vernier.typed import Mismatch, convert, hints_of

from .migrations import migrated
from .names import ALIASES, OTHER_VALUES, REMOVED_SETTINGS, RENAMED_SETTINGS, USUAL_NAMES
from .settings import (
    DATA_SOURCES,
    LOSSES,
    METRICS,
    MODEL_ORIGINS,
    OWN_MODELS,
    SCHEDULES,
    TRANSFORMS,
    Config,
    Data,
    Optim,
    Recipe,
    choices_of,
    optimizers,
    short_side_of,
)

T = TypeVar("T")

_GROUPS = {f.name for f in dataclasses.fields(Config)}
_IGNORED = ("trust_coefficient", "beta2", "eps", "filter_momentum")
"""Settings of optimizers that versions before 0.4 recorded and ignored with other optimizers."""


# ------------------------------------------------------------------------------------------------- from text to values


def from_dict(cls: type[T], tree: Any, path: str = "", base: T | None = None) -> T:
    """A dataclass from plain values; unknown names, wrong types and values out of range are ConfigErrors.

    Fields that are not given have their default, or the value that they have in `base`.
    """
    if not isinstance(tree, dict):
        raise ConfigError(f"{path or 'The configuration'} must be a table of settings, not {tree!r}.")
    if not isinstance(base, cls):  # the elements of a list replace those of the base
        base = None
    if issubclass(cls, Optim):
        # Which fields there are depends on the name, so what `base` has is read again with the rest. A model whose
        # optimizer is in a package that is not here can be used, `check_optimizer` refuses to train it.
        before = {} if base is None else to_dict(base)
        if is_own(name := str(tree.get("name", before.get("name", cls.name)))):
            # A user's optimizer has arguments instead: what the recipe sets for its own does not concern it.
            before = {key: value for key, value in before.items() if hasattr(Optim, key)}
        tree = {**before, **tree}
        kind: Any = optimizers().get(name, Optim)
        optim: T = kind(**_values(kind, _own_settings(kind, tree), path, None))
        return optim
    values = _values(cls, tree, path, base)
    return cls(**values) if base is None else dataclasses.replace(base, **values)  # type: ignore[type-var]


def _values(cls: Any, tree: Any, path: str, base: Any) -> dict[str, Any]:
    """The values of a dataclass by field, converted and checked."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for name, value in tree.items():
        # Messages name settings of a recipe as assignments do: `optim.lr`, not `recipe.optim.lr`.
        where = str(name) if path in ("", "recipe") else f"{path}.{name}"
        if name not in fields:
            raise ConfigError(_unknown(where))
        if isinstance(value, str):
            value = OTHER_VALUES.get(where, {}).get(value, value)
        # A table changes that of the base, so that settings which it omits stay.
        inner = partial(from_dict, base=getattr(base, name, None))
        try:
            values[name] = convert(value, hints_of(cls)[name], where, inner)
        except Mismatch as error:
            is_not = "is not" if error.needed.startswith("one of") else "is not possible: it must be"
            raise ConfigError(f"{given(error.where.partition('[')[0], error.value)} {is_not} {error.needed}.") from None
        _check_range(values[name], fields[name].metadata, where)
    return values


def _own_settings(kind: type[Optim], table: Any) -> Any:
    """The table of an optimizer without settings of others: earlier versions wrote those of all into every file.

    Raises ConfigError if one of them is not at its default: it has no effect.
    """
    table = dict(table)
    for key in [key for key in table if not hasattr(kind, key)]:
        defaults = {name: getattr(other, key) for name, other in optimizers().items() if hasattr(other, key)}
        if (
            (kind is Optim and not is_own(str(table.get("name", ""))))
            or key in _IGNORED
            or table[key] in defaults.values()
        ):
            del table[key]
        elif defaults:
            name = next(iter(defaults))
            raise ConfigError(
                f"{given(f'optim.{key}', table[key])} is for {' and '.join(defaults)}, and this is "
                f"{given('optim.name', table.get('name', kind.name))}. Use {use(f'optim.{key}', defaults[name])} or "
                f"{use('optim.name', name)}."
            )
    return table


def _check_range(value: Any, meta: Any, where: str) -> None:
    for number in value if isinstance(value, tuple) else (value,):
        if not isinstance(number, int | float) or isinstance(number, bool):
            continue
        low, high, above = meta["low"], meta["high"], meta["above"]
        limit = f"{low} or more" if number < low else f"above {above}" if number <= above else ""
        if limit := limit or (f"{high} or less" if number > high else ""):
            raise ConfigError(f"{given(where, number)} is out of range: it must be {limit}.")


def to_dict(value: Any) -> dict[str, Any]:
    """Plain JSON values, tuples as lists."""
    # Through JSON, so that a tree in memory equals one that was read from a file.
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(value)))
    return plain


def override(config: Config, path: str, value: Any) -> Config:
    """`config` with one field replaced. Recipe fields need no prefix: `optim.lr`, `machine.procs`, `global_batch`."""
    return _override_all(config, {path: value})


def _override_all(config: Config, values: Mapping[str, Any]) -> Config:
    """`config` with fields replaced, in one go: which ones the optimizer has depends on its name."""
    changes: dict[str, Any] = {}
    for path, value in values.items():
        name = setting_name(path)
        own = name.removeprefix("recipe.")
        inside = [each.rpartition(".")[2] for each in described_settings() if each.startswith(f"{own}.")]
        if inside and not isinstance(value, dict):
            raise ConfigError(f"{path!r} is a group of settings: name one of {', '.join(inside)}.")
        if not inside and own not in described_settings():
            raise ConfigError(_unknown(path.removeprefix("recipe.")))
        if isinstance(value, str):
            refuse_credentials(value, path)
        *groups, last = name.split(".")
        reduce(lambda tree, group: tree.setdefault(group, {}), groups, changes)[last] = value
    changed = from_dict(Config, changes, base=config)
    check_plugins(changed, values)
    return changed


def check_plugins(config: Config, paths: Iterable[str] | None = None) -> None:
    """Refuse settings that name a plug-in which is not installed: those at `paths`, or all. Raises ConfigError.

    It is not part of reading, so that a run can be read without the package whose plug-in it used.
    """
    settings = described_settings()
    for path in settings if paths is None else paths:
        hint = settings.get(path, ("", Any))[1]
        if get_origin(hint) is Annotated:
            value, choices, code = attrgetter(setting_name(path))(config), choices_of(hint), get_args(hint)[1].code
            if value not in choices and not (code and is_own(value)):
                more = ", or code of your own, module:name" if code else ""
                raise ConfigError(f"{given(path, value)} is not one of: {', '.join(choices)}{more}.")


_OWN_CODE = {
    "model.name": "",
    "data.source": DATA_SOURCES,
    "augment.extra": TRANSFORMS,
    "loss.kind": LOSSES,
    "optim.name": "",
    "schedule.kind": SCHEDULES,
    "eval.metrics": METRICS,
}
"""Settings that may name code outside of Vernier, and the entry points of each if those are the same kind of code."""


def own_references(recipe: Recipe) -> list[tuple[str, str, str]]:
    """The code outside of Vernier that a recipe names: setting, reference or entry point, and the latter's group."""
    values = [(setting, attrgetter(setting)(recipe), group) for setting, group in _OWN_CODE.items()]
    each = [(s, text, g) for s, value, g in values for text in ((value,) if isinstance(value, str) else value)]
    return [
        (s, text, g)
        for s, text, g in each
        if (names_code(text) if s == "model.name" else is_own(text) or (g and text in plugin_names(g)))
    ]


def names_code(model: str) -> bool:
    """Whether the name of a model is code that building it would run, not a model of a library such as timm."""
    prefix = model.partition(":")[0]
    return is_own(model) and (prefix == OWN_MODELS or prefix not in plugin_names(MODEL_ORIGINS))


@cache
def described_settings(group: Any = Config, path: str = "") -> dict[str, tuple[str, Any]]:
    """Every setting by the name that assignments take (`optim.lr`, `seed`), with its line of help and its type."""
    out: dict[str, tuple[str, Any]] = {}
    kinds: Iterable[Any] = optimizers().values() if group is Optim else (group,)
    for kind in kinds:
        hints = get_type_hints(kind, include_extras=True)
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
    if removed := REMOVED_SETTINGS.get(path):
        return f"Unknown setting {path!r}. {removed}"
    names, last = described_settings(), path.rpartition(".")[2]
    near = [USUAL_NAMES[last]] if last in USUAL_NAMES else [n for n in names if n.rpartition(".")[2] == last]
    # In lower case: no setting has capitals, and people type LR.
    near = near or difflib.get_close_matches(path.lower(), names, n=1, cutoff=0.75)
    group = path.lower().rpartition(".")[0]
    inside = [n.rpartition(".")[2] for n in names if group and n.startswith(f"{group}.")]
    hint = f"{command('recipes', 'shapes-quick')} lists them all."
    hint = f"Settings of {group}: {', '.join(inside)}." if inside else hint
    hint = f"Did you mean {' or '.join(near)}?" if near else hint
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
    """Apply `a.b=c` from the command line; `c` is read as TOML, or as text if it is not TOML."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        path, equals, text = (part.strip() for part in assignment.partition("="))
        if not equals or not path:
            raise ConfigError(f"{given('settings')} takes NAME=VALUE such as optim.lr=0.1, not {assignment!r}.")
        hint = described_settings().get(setting_name(path).removeprefix("recipe."), ("", Any))[1]
        values[path] = parse_value(text, hint)
    return _override_all(config, values)


def assignment(path: str, value: Any) -> str:
    """The assignment `a.b=c` that gives a setting this value of Python."""
    return f"{path}={'none' if value is None else toml_value(value)}"


def parse_value(text: str, hint: Any) -> Any:
    """The value of a setting from the command line: TOML, or the text itself if it is not TOML or the setting is text.

    `none` leaves out a setting that can be left out; for any other it is a text.
    """
    if text.lower() in ("none", "null") and type(None) in get_args(hint):
        return None
    if hint is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        # As the value of a key, since TOML has no other values.
        value = tomllib.loads(f"v = {text}")["v"]
    except (ValueError, RecursionError):  # TOML's own errors, numbers of too many digits, lists in lists without end
        return text
    # `name=2024` is text, although TOML reads a number.
    is_text = hint is str or (get_origin(hint) is not tuple and str in get_args(hint))
    return value if isinstance(value, str) or not is_text else text


def _decode(content: bytes) -> str:
    """Text as editors save it: UTF-8, also with a byte order mark, or UTF-16 with one (Windows)."""
    utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if utf_16 else "utf-8-sig").replace("\r\n", "\n")


def load_file(path: Path) -> Config:
    """A TOML file (recipe fields at the top, tables for the rest) or a run's config.json; defaults for the rest."""
    try:
        text = _decode(path.read_bytes())
        tree = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read {path}: {error}.") from None
    except (ValueError, RecursionError) as error:  # also numbers of too many digits
        raise ConfigError(f"{path} is not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}.") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} must hold a table of settings.")
    if not tree:
        raise ConfigError(f"{path} has no settings. {command('recipes', 'shapes-quick')} prints a file to start from.")
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
    """Settings that are derived from others of the table, and omitted so that they stay derived."""
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
    # Sorted, as the order of fields is not a setting.
    text = json.dumps(to_dict(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differences(a: Any, b: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """`a.b.c` -> (in a, in b) for every setting in which two configurations differ, or two trees as in JSON files."""
    a, b = (to_dict(each) if dataclasses.is_dataclass(each) else each for each in (a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        out: dict[str, tuple[Any, Any]] = {}
        for key in [*a, *(k for k in b if k not in a)]:
            out |= differences(a.get(key), b.get(key), f"{path}.{key}" if path else key)
        return out
    return {} if a == b else {path: (a, b)}
