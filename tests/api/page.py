"""Executes the Python of docs/python.md.

    .venv/bin/python -m tests.api.page    # writes the outputs that the page shows; a few minutes

A block shows what a Python prompt would: what it prints, the value of its last expression, or its error.
"""

import ast
import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.documented import DOCS, FENCE
from vernier.cli import main as run_command

PAGE = DOCS / "python.md"
WIDTH = 150


def prepare(folder: Path, *, train: int, val: int) -> None:
    """Make what the commands of the page make, in any size."""
    sizes = ["--train", str(train), "--val", str(val)]
    with contextlib.redirect_stdout(io.StringIO()):
        assert run_command(["data", "make", "shapes", "--out", str(folder / "photos"), *sizes]) == 0
    shutil.copy(DOCS / "examples" / "fleet.csv", folder)


def outputs(text: str, folder: Path) -> Iterator[tuple[str, str]]:
    """The Python blocks of a page and what each shows, executed one after the other in `folder`."""
    names: dict[str, Any] = {}
    for match in FENCE.finditer(text):
        if match[2] == "python":
            with contextlib.chdir(folder):
                yield match[3], _shown(match[3], names)


def _shown(code: str, names: dict[str, Any]) -> str:
    tree = ast.parse(code)
    *_, last = tree.body
    if isinstance(last, ast.Expr):
        kept_as = ast.Assign([ast.Name("_", ast.Store())], last.value)
        tree.body[-1] = ast.fix_missing_locations(ast.copy_location(kept_as, last))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        try:
            exec(compile(tree, "page", "exec"), names)
        except ValueError as error:  # the errors that the page shows
            return f"{type(error).__name__}: {error}"
    value = names.pop("_", None)
    return printed.getvalue() + ("" if value is None else repr(value))


def with_outputs(text: str, shown: list[str]) -> str:
    """The page with the text block after each Python block replaced."""
    answers = iter(shown)

    def replaced(match: re.Match[str]) -> str:
        lines = "\n".join(line[:WIDTH] for line in next(answers).splitlines())
        return f"{match[1]}\n\n```text\n{lines}\n```"

    return re.sub(r"(```python\n.*?^```)\n\n```text\n.*?^```", replaced, text, flags=re.MULTILINE | re.DOTALL)


def main() -> None:
    os.environ.pop("OMP_NUM_THREADS", None)
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), train=2000, val=500)
        text = PAGE.read_text(encoding="utf-8")
        shown = [output for _, output in outputs(text, Path(folder))]
    PAGE.write_text(with_outputs(text, shown), encoding="utf-8")
    sys.stderr.write(f"{PAGE}: {len(shown)} blocks\n")


if __name__ == "__main__":
    main()
