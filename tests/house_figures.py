"""How large and how orderly the source is, as a whole and by part. `make figures` prints it."""

import ast
import io
import sys
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "vernier"
MAX_LINE = 120
PARTS: dict[str, tuple[str, ...]] = {
    "core": (
        *("requests", "cli", "api", "config", "recipes", "records", "store", "models", "data", "tasks"),
        *("optim", "devices", "measure", "engine", "report"),
    ),
    "lab": ("lab",),
    "compat": ("compat", "contracts"),
    "kernels": ("kernels",),
}
"""Parts of the source: the packages of each. The core has the modules that are in no package, too."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of some source files. `tokens` are names, operators, numbers and strings other than docstrings.

    `public_names` are functions and classes of modules, `comments` are per 100 lines of code.
    """

    modules: int
    largest_folder: tuple[str, int]
    tokens: int
    lines: int
    lines_over_120: int
    format_off: int
    untyped_dicts: int
    longest_function: tuple[str, int]
    public_names: int
    comments: float


def entries(folder: Path) -> list[Path]:
    """Modules and packages in a folder, without its own `__init__` and `__main__`."""
    hidden = ("__init__.py", "__main__.py", "__pycache__", "py.typed")
    return sorted(p for p in folder.iterdir() if p.name not in hidden)


def body_lines(function: ast.FunctionDef) -> int:
    """Lines without the signature and docstring, which for a command are its help."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _docstrings(tree: ast.Module) -> set[tuple[int, int]]:
    """Where strings stand that are statements of their own: docstrings of modules, functions, classes and fields."""
    bodies = (node.body for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list))
    statements = (s for body in bodies for s in body if isinstance(s, ast.Expr))
    values = (s.value for s in statements if isinstance(s.value, ast.Constant) and isinstance(s.value.value, str))
    return {(v.lineno, v.col_offset) for v in values}


def _tokens(text: str, tree: ast.Module) -> list[tokenize.TokenInfo]:
    """The tokens that count, and comments."""
    docstrings = _docstrings(tree)
    counted = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING, tokenize.COMMENT)
    return [
        t
        for t in tokenize.generate_tokens(io.StringIO(text).readline)
        if t.type in counted and not (t.type == tokenize.STRING and t.start in docstrings)
    ]


def files_of(part: str) -> list[Path]:
    """The modules of a part."""
    inside = [path for package in PARTS[part] for path in sorted((SOURCE / package).rglob("*.py"))]
    return [*sorted(SOURCE.glob("*.py")), *inside] if part == "core" else inside


def measure(files: Sequence[Path] | None = None) -> Figures:
    """Read some modules; all of them if none are given."""
    files = sorted(SOURCE.rglob("*.py")) if files is None else files
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    tokens = [(path, token) for path in files for token in _tokens(texts[path], trees[path])]
    comments = {(path, t.start[0]) for path, t in tokens if t.type == tokenize.COMMENT}
    code = {(path, n) for path, t in tokens if t.type != tokenize.COMMENT for n in range(t.start[0], t.end[0] + 1)}
    functions = [
        (f"{path.relative_to(SOURCE)}:{node.name}", body_lines(node))
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    top = [node for tree in trees.values() for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    folders = [(str(f.relative_to(SOURCE)), len(entries(f))) for f in {p.parent for p in files}]
    lines = [line for text in texts.values() for line in text.splitlines()]
    return Figures(
        modules=len(files),
        largest_folder=max(folders, key=lambda f: f[1]),
        tokens=sum(token.type != tokenize.COMMENT for _, token in tokens),
        lines=len(lines),
        lines_over_120=sum(len(line) > MAX_LINE for line in lines),
        format_off=sum("fmt: skip" in line or "fmt: off" in line for line in lines),
        untyped_dicts=sum(line.count("dict[str, Any]") for line in lines),
        longest_function=max(functions, key=lambda f: f[1]),
        public_names=sum(not node.name.startswith("_") for node in top),
        comments=100 * len(comments) / len(code),
    )


def table() -> str:
    """The figures of every part, and of all."""
    rows = {**{part: measure(files_of(part)) for part in PARTS}, "all": measure()}
    lines = [f"{'part':<12}{'modules':>9}{'lines':>9}{'tokens':>9}{'public names':>14}{'comments per 100':>18}"]
    for part, f in rows.items():
        lines.append(f"{part:<12}{f.modules:>9,}{f.lines:>9,}{f.tokens:>9,}{f.public_names:>14,}{f.comments:>18.1f}")
    every = rows["all"]
    name, length = every.longest_function
    return "\n".join(
        [*lines, "", f"longest function: {name}, {length} lines; dict[str, Any]: {every.untyped_dicts}", ""]
    )


if __name__ == "__main__":
    sys.stdout.write(table())
