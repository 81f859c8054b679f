"""`src/vernier/__init__.pyi`: the public functions with their real signatures, for editors and type checkers.

Functions are made from requests when they are used, which no static tool sees. The stub is written from the same
declarations (`make pages`), and a test compares it.
"""

import ast
import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import vernier
from tests.conftest import REPO
from vernier.api.functions import annotation_of, options_in_python
from vernier.requests.declaring import Request

FILE = REPO / "src" / "vernier" / "__init__.pyi"
HEAD = '''\
"""Vernier: train, evaluate, benchmark and profile vision models, and report what was measured."""

# Made by `make pages` from the requests in src/vernier/requests: edit those, not this file.

from collections.abc import Mapping, Sequence
from typing import Literal

from vernier.requests.values import StrPath
'''


def text() -> str:
    """The stub: classes and hand-written functions are imported, functions of requests have their signature."""
    imports: set[tuple[str, str]] = set()
    functions, plain = [], []
    for name, home in vernier._HOMES.items():
        thing = getattr(import_module(home), name)
        cls = getattr(thing, "request", None)
        if cls is None or name in OVERLOADED:
            plain.append(f"from {home} import {name} as {name}")
            continue
        returns, needed = _return_type(thing, home)
        imports |= needed
        functions.append(_function(cls, name, returns))
    own = {line.split()[-1] for line in plain}
    lines = [f"from {module} import {name}" for module, name in sorted(imports) if name not in own]
    return "\n".join(
        [
            HEAD + "\n".join([*lines, *sorted(plain)]),
            "",
            "__version__: str",
            f"__all__ = {sorted(['__version__', *vernier._HOMES])!r}",
            "",
            *functions,
        ]
    )


OVERLOADED = ("predict",)
"""Functions with several signatures, which their module declares itself."""


def _function(cls: type[Request], name: str, returns: str) -> str:
    parameters: list[str] = []
    for each in options_in_python(cls):
        if not each.declared.positional and "*" not in parameters:
            parameters.append("*")
        default = "" if each.required else f" = {None if each.form.kind == 'settings' else each.default!r}"
        parameters.append(f"{each.name}: {annotation_of(each)}{default}")
    inner = "".join(f"    {parameter},\n" for parameter in parameters)
    return f"def {name}(\n{inner}) -> {returns}: ...\n" if parameters else f"def {name}() -> {returns}: ...\n"


def _return_type(function: Any, home: str) -> tuple[str, set[tuple[str, str]]]:
    """The return type as text, and what has to be imported for it."""
    annotation = inspect.signature(function).return_annotation
    shown = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    shown = shown.replace("pathlib.", "")
    names = {node.id for node in ast.walk(ast.parse(shown, mode="eval")) if isinstance(node, ast.Name)}
    if not isinstance(annotation, str) and isinstance(annotation, type) and annotation.__module__ != "builtins":
        return annotation.__name__, {(annotation.__module__, annotation.__name__)}
    sources = _imported_names(home)
    return shown, {(sources[name], name) for name in names if name in sources}


def _imported_names(home: str) -> dict[str, str]:
    """Where the names of a module come from, also those that only type checkers see."""
    module = import_module(home)
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    package = home.rpartition(".")[0]
    sources = {node.name: home for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            origin = f"{package}.{node.module}" if node.level else str(node.module)
            sources |= {alias.asname or alias.name: origin for alias in node.names}
    return sources
