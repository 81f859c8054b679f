"""Files of torch.export from strangers: only a network is taken from them, nothing that PyTorch would execute.

PyTorch's reader trusts a .pt2 file: it unpickles objects, loads compiled libraries, evaluates expressions and guards as
Python, and calls whatever function a node names. `checked_archive` makes a new archive in memory, with the parts that a
network consists of, after checking each of them. What a file says about itself is read by `model_file`.
"""

import io
import json
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError

_MEMBERS = re.compile(
    r"[^/]+/(archive_format|archive_version|byteorder|version|\.data/\w+|\.format/\w+|models/model\.json|extra/[\w.]+|"
    r"data/sample_inputs/model\.pt|data/(weights|constants)/(weight_\d+|tensor_\d+|model\.pt|model_\w+_config\.json))"
)
_OPERATIONS = re.compile(
    r"torch\.ops\.aten\.\w+\.\w+|torch\.sym_(float|int|max|min|not|sqrt)|"
    r"_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|pow|neg|eq|ne|lt|le|gt|ge|and_|or_)"
)
_EXPRESSION = re.compile(
    r"(?:[su]\d++|'[su]\d++'|Symbol|positive|nonnegative|integer|real|True|False|Integer|Rational|Add|Mul|Pow|Max|Min|"
    r"Mod|FloorDiv|CeilDiv|PythonMod|Eq|Ne|Le|Lt|Ge|Gt|And|Or|Not|\d++(?:\.\d++)?|oo|int_oo|[-+*/%(),=<>&|~\s])*+"
)
_CONTAINERS = {"builtins.tuple", "builtins.list", "builtins.dict"}


def checked_archive(path: Path) -> io.BytesIO:
    """The archive for `torch.export.load`. Raises ConfigError for a file with anything that could be executed."""
    checked = io.BytesIO()
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(checked, "w", zipfile.ZIP_STORED) as out:
        for name in dict.fromkeys(source.namelist()):
            if not _MEMBERS.fullmatch(name):
                raise _refusal(path, f"the part {name!r}")
            content = source.read(name)
            if name.endswith("/models/model.json"):
                tree = json.loads(content)
                for problem in _problems(tree):
                    raise _refusal(path, problem)
                content = json.dumps(_without_extras(tree)).encode()
            out.writestr(name, content)
    checked.seek(0)
    return checked


def _refusal(path: Path, problem: str) -> ConfigError:
    return ConfigError(
        f"{path} is not opened: it has {problem[:200]}, which PyTorch would execute. Files of `vernier export` have no "
        "such thing; from others, take safetensors or ONNX."
    )


def _problems(tree: Any) -> Iterator[str]:
    """What a description of a network has that is neither a known operation nor plain arithmetic."""
    if isinstance(tree, list):
        for value in tree:
            yield from _problems(value)
    if not isinstance(tree, dict):
        return
    for key, value in tree.items():
        if key == "target" and "inputs" in tree and not _OPERATIONS.fullmatch(str(value)):
            yield f"the operation {value!r}"
        elif key == "as_operator":
            yield f"the operator {value!r}"
        elif key == "expr_str" and not _EXPRESSION.fullmatch(str(value)):
            yield f"the expression {value!r}"
        elif key in ("in_spec", "out_spec") and not _containers(value) <= _CONTAINERS:
            yield f"the container {value!r}"
        yield from _problems(value)


def _containers(spec: Any) -> set[str]:
    """The types that a description of inputs or outputs names."""
    try:
        tree = json.loads(spec) if isinstance(spec, str) and spec else []
    except (ValueError, RecursionError):
        return {"?"}
    waiting, types = [tree], set()
    while waiting:
        value = waiting.pop()
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        if isinstance(value, dict) and value.get("type") is not None:
            types.add(str(value["type"]))
    return types


def _without_extras(tree: Any) -> Any:
    """A description without guards, which are Python, and without notes about the source that was traced."""
    if isinstance(tree, list):
        return [_without_extras(value) for value in tree]
    if not isinstance(tree, dict):
        return tree
    empty: dict[str, Any] = {"guards_code": []} | ({"metadata": {}} if "inputs" in tree and "target" in tree else {})
    return {key: empty[key] if key in empty else _without_extras(value) for key, value in tree.items()}


@contextmanager
def plain_values_only() -> Iterator[None]:
    """While entered, `torch.load` reads tensors and plain values only, also where PyTorch itself asks for more."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before
