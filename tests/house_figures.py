"""How large and how orderly the source is: the figures of the table in CHANGELOG.md. `make figures` prints them."""

import ast
import io
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "vernier"
MAX_LINE = 120


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of one source folder. `tokens` are names, operators, numbers and strings other than docstrings."""

    modules: int
    largest_folder: tuple[str, int]
    tokens: int
    lines: int
    lines_over_120: int
    format_off: int
    untyped_dicts: int
    longest_function: tuple[str, int]


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


def _tokens(text: str, tree: ast.Module) -> int:
    docstrings = _docstrings(tree)
    counted = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
    return sum(
        t.type in counted and not (t.type == tokenize.STRING and t.start in docstrings)
        for t in tokenize.generate_tokens(io.StringIO(text).readline)
    )


def measure(source: Path = SOURCE) -> Figures:
    """Read every module below a folder."""
    files = sorted(source.rglob("*.py"))
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    functions = [
        (f"{path.relative_to(source)}:{node.name}", body_lines(node))
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    folders = [(str(f.relative_to(source)), len(entries(f))) for f in {p.parent for p in files}]
    lines = [line for text in texts.values() for line in text.splitlines()]
    return Figures(
        modules=len(files),
        largest_folder=max(folders, key=lambda f: f[1]),
        tokens=sum(_tokens(texts[path], trees[path]) for path in files),
        lines=len(lines),
        lines_over_120=sum(len(line) > MAX_LINE for line in lines),
        format_off=sum("fmt: skip" in line or "fmt: off" in line for line in lines),
        untyped_dicts=sum(line.count("dict[str, Any]") for line in lines),
        longest_function=max(functions, key=lambda f: f[1]),
    )


if __name__ == "__main__":
    figures = measure(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE)
    for name, value in vars(figures).items():
        sys.stdout.write(f"{name.replace('_', ' '):18} {value}\n")
