"""`src/vernier/__init__.pyi`: the public functions with their real signatures, for editors and type checkers.

Functions are made from requests when they are used, which no static tool sees. The stub is written from the same
declarations (`make pages`), and a test compares it.
"""

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import vernier
from tests.conftest import REPO
from vernier.api.functions import _annotation_of, _options_in_python
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
    for name, home in vernier._public_names().items():
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
    names = f"__all__ = {sorted(['__version__', *vernier._public_names()])!r}"
    head = HEAD + "\n".join([*lines, *sorted(plain)])
    return _formatted("\n".join([head, "", "__version__: str", names, "", *functions]))


def _formatted(stub: str) -> str:
    """The stub as `make lint` wants it."""
    for words in (["check", "--quiet", "--fix", "--select", "I"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *words, "--stdin-filename", str(FILE), "-"]
        stub = subprocess.run(command, input=stub, capture_output=True, text=True, check=True, cwd=REPO).stdout
    return stub


OVERLOADED = ("predict",)
"""Functions with several signatures, which their module declares itself."""


def _function(cls: type[Request], name: str, returns: str) -> str:
    parameters: list[str] = []
    for each in _options_in_python(cls):
        if not each.positional and "*" not in parameters:
            parameters.append("*")
        default = "" if each.required else f" = {None if each.form.kind == 'settings' else each.default!r}"
        parameters.append(f"{each.name}: {_annotation_of(each)}{default}")
    inner = "".join(f"    {parameter},\n" for parameter in parameters)
    return f"def {name}(\n{inner}) -> {returns}: ...\n" if parameters else f"def {name}() -> {returns}: ...\n"


def _return_type(function: Any, home: str) -> tuple[str, set[tuple[str, str]]]:
    """The return type as text, and what has to be imported for it."""
    annotation = inspect.signature(function).return_annotation
    if not isinstance(annotation, str):
        shown = inspect.formatannotation(annotation) if not inspect.isclass(annotation) else _full_name(annotation)
        found = set(re.findall(r"([\w.]+)\.(\w+)", shown))
        return re.sub(r"[\w.]+\.(\w+)", r"\1", shown), found
    names = {node.id for node in ast.walk(ast.parse(annotation, mode="eval")) if isinstance(node, ast.Name)}
    sources = _imported_names(home)
    return annotation, {(sources[name], name) for name in names if name in sources}


def _full_name(cls: type[Any]) -> str:
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


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
