"""The habits of the house that can be checked by reading the source."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "vernier"
FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize(
    ("pattern", "home"),
    [
        (r"torch\.(cuda|hpu|mps|xpu)\b", "devices/"),
        (r"time\.(time|perf_counter|monotonic)\b", "clock.py"),
        (r"import time\b", "clock.py"),
        (r"(?<![.\w])print\(", "nowhere"),
        (r"\"(events\.jsonl|run\.json|config\.json|environment\.json)\"", "store.py"),
        (r"\bLOCAL_RANK\b|\bSLURM_PROCID\b", "engine/processes/launch.py"),
    ],
)
def test_each_concern_lives_in_one_place(pattern: str, home: str) -> None:
    strays = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in FILES
        if not path.relative_to(SOURCE).as_posix().startswith(home)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(pattern, line.split("#")[0])
    ]
    assert strays == []


def _imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    found = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return found | {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}


LAYERS = {
    "report": {"engine", "cli"},
    "engine": {"cli", "report", "recipes"},
    "measure": {"engine", "cli", "report", "recipes", "data", "tasks"},
    "data": {"engine", "cli", "report", "tasks", "models", "recipes"},
    "models": {"engine", "cli", "report", "tasks", "data", "recipes"},
    "optim": {"engine", "cli", "report", "tasks", "data", "models", "recipes"},
    "tasks": {"engine", "cli", "report", "recipes"},
    "devices": {"engine", "cli", "report", "tasks", "data", "models", "recipes"},
}


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_do_not_import_upwards(layer: str) -> None:
    forbidden = tuple(f"vernier.{name}" for name in LAYERS[layer])
    wrong = [
        f"{p.relative_to(SOURCE)} imports {i}"
        for p in (SOURCE / layer).rglob("*.py")
        for i in _imports(p)
        if i.startswith(forbidden)
    ]
    assert wrong == []


def test_every_module_says_what_it_owns() -> None:
    assert [str(p.relative_to(SOURCE)) for p in FILES if not ast.get_docstring(ast.parse(p.read_text()))] == []


def _body_lines(function: ast.FunctionDef) -> int:
    """Without its signature and docstring, which for a command are its help."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_functions_fit_on_a_screen() -> None:
    long = [
        f"{p.relative_to(SOURCE)}:{f.name} {_body_lines(f)}"
        for p in FILES
        for f in ast.walk(ast.parse(p.read_text()))
        if isinstance(f, ast.FunctionDef) and _body_lines(f) > 50
    ]
    assert long == []
