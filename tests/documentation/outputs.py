"""The outputs that pages show: made by running the commands, and found again by `test_outputs.py`.

A comment on the line before a fenced block says what to do with it:

    <!-- run -->                           run the commands of this block; it shows no output
    <!-- output -->                        the block is what the commands of the block before it print
    <!-- output: first 6, last 5 -->       only these lines, with an ellipsis between them
    <!-- output: in small, last 5 -->      the test runs a small command and compares words, not figures
    <!-- output: of the machine -->        the same, comparing the first word of each line only
    <!-- output: costly -->                no test runs it; also after `run`

The commands of a page run in a folder of their own that `make_world` has filled with what readers have by then:
`photos` (rendered ones), `boxes` (the same with boxes), the files of docs/examples, `mine.toml`, and one training,
`runs/RUN`.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import REPO
from tests.documented import DOCS, Fence, fences

COLUMNS = "88"
"""What a box of the site holds at a width of 1,280 pixels."""
DIRECTIVE = re.compile(r"^ *<!-- (run|output)(?:: ([^>]*?))? -->\n\Z", re.MULTILINE)
ELLIPSIS = "..."
PHOTOS = "vernier data make shapes --out photos --train 400 --val 100 --size-px 96 --seed 7"
"""A command of the pages that `make_world` has run already."""
SMALL = "--data photos --epochs 1 --set machine.threads=1 --no-tensorboard"
"""What makes a training small."""


@dataclass(frozen=True)
class Output:
    """An output on a page, with the commands that print it."""

    fence: Fence
    commands: tuple[str, ...]
    shown: bool
    options: str = ""

    @property
    def small(self) -> bool:
        """Whether the test runs a smaller command than the page shows."""
        return "in small" in self.options

    @property
    def of_machine(self) -> bool:
        """Whether lines are compared by their first word only."""
        return "of the machine" in self.options

    @property
    def costly(self) -> bool:
        """Whether no test runs it."""
        return "costly" in self.options

    def part(self, text: str) -> str:
        """The lines of an output that the page shows."""
        lines = [line.rstrip() for line in text.strip("\n").splitlines()]
        first, last = (int(m[1]) if (m := re.search(rf"{w} (\d+)", self.options)) else 0 for w in ("first", "last"))
        if not first + last or len(lines) <= first + last:
            return "\n".join(lines)
        return "\n".join([*lines[:first], ELLIPSIS, *lines[len(lines) - last :]])


def outputs_of(page: Path) -> Iterator[Output]:
    """What a page runs, in its order."""
    text = page.read_text(encoding="utf-8")
    before: Fence | None = None
    for fence in fences(page):
        start = text[: _start(text, fence)]
        directive = DIRECTIVE.search(start)
        if directive and directive[1] == "run":
            yield Output(fence, tuple(_commands(fence)), shown=False, options=directive[2] or "")
        elif directive:
            assert before is not None, f"{page.name}:{fence.line}: no command before this output"
            yield Output(fence, tuple(_commands(before)), shown=True, options=directive[2] or "")
        before = fence


def _start(text: str, fence: Fence) -> int:
    """Where a fence begins."""
    return sum(len(line) for line in text.splitlines(keepends=True)[: fence.line - 1])


def _commands(fence: Fence) -> Iterator[str]:
    for _, line in fence.lines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line.strip()


def pages() -> list[Path]:
    """The pages that show an output or run something."""
    return [page for page in sorted(DOCS.rglob("*.md")) if any(outputs_of(page))]


def substitute(command: str, folder: Path) -> str:
    """A command with the names of real runs: RUN is the oldest under runs/, RUN_B the newest."""
    runs = sorted((folder / "runs").glob("*-*")) if (folder / "runs").exists() else []
    if runs:
        command = re.sub(r"\bruns/RUN_B\b", f"runs/{runs[-1].name}", command)
        command = re.sub(r"\bruns/RUN(_A)?\b", f"runs/{runs[0].name}", command)
    return command


def make_world(folder: Path, run: Callable[[str], str], *, small: bool) -> dict[str, str]:
    """Fill a folder with what the commands of any page may use; the commands, with what they print."""
    commands = (
        PHOTOS,
        "vernier data make shapes --kind detect --out boxes --train 150 --val 30",
        f"vernier train {SMALL}" if small else "vernier train",
    )
    shutil.copytree(DOCS / "examples", folder, dirs_exist_ok=True)
    (folder / "mine.toml").write_text(run("vernier recipes show shapes-quick"), encoding="utf-8")
    return {command: run(command) for command in commands}


class _Shell:
    """Runs command lines in a folder as a reader would, in a shell, and gives back all they print.

    `printed` has what the commands of `make_world` printed, which are not run again.
    """

    def __init__(self, folder: Path, home: Path, printed: dict[str, str]) -> None:
        self.folder, self.home, self.printed = folder, home, printed
        tools = home / "bin"
        tools.mkdir(parents=True, exist_ok=True)
        script = tools / "vernier"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -m vernier "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPO / "src"),
            "VERNIER_HOME": str(home),
            "COLUMNS": COLUMNS,
            "NO_COLOR": "1",
        }

    def __call__(self, command: str, *, check: bool = False) -> str:
        if command in self.printed:
            return self.printed[command]
        words = ["bash", "-c", substitute(command, self.folder)]
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if check and done.returncode:
            sys.exit(f"{command}\n{done.stdout}")
        return done.stdout


def write(asked: str = "") -> None:
    """Run every command and write its output into its page. `asked`: only pages whose name contains it.

    The folder that pages start from takes minutes to make; `VERNIER_DOCS_WORLD` names one to keep.
    """
    chosen = [page for page in pages() if asked in page.stem]
    if not chosen:
        sys.exit(f"no page that shows an output has {asked!r} in its name: {', '.join(p.stem for p in pages())}")
    home = Path(os.environ.get("VERNIER_DOCS_WORLD") or tempfile.mkdtemp(prefix="vernier-docs-"))
    base, printed = home / "world", home / "printed.json"
    if not printed.exists():
        base.mkdir(parents=True)
        texts = make_world(base, functools.partial(_Shell(base, home / "home", {}), check=True), small=False)
        printed.write_text(json.dumps(texts), encoding="utf-8")
    for page in chosen:
        folder = Path(tempfile.mkdtemp(dir=home, prefix=f"{page.stem}-"))
        shutil.copytree(base, folder, dirs_exist_ok=True)
        _write_page(page, _Shell(folder, home / "home", json.loads(printed.read_text(encoding="utf-8"))))


def _write_page(page: Path, shell: _Shell) -> None:
    texts: list[tuple[Output, str]] = []
    for output in outputs_of(page):
        printed = "".join(shell(command, check=not output.shown) for command in output.commands)
        sys.stderr.write(f"{page.name}: {'; '.join(output.commands)}\n")
        if output.shown:
            texts.append((output, output.part(_portable(printed, shell))))
    content = page.read_text(encoding="utf-8").splitlines(keepends=True)
    for output, text in reversed(texts):
        first = output.fence.line
        size = output.fence.text.count("\n")
        content[first : first + size] = [f"{line}\n" for line in text.splitlines()]
    page.write_text("".join(content), encoding="utf-8")


def _portable(text: str, shell: _Shell) -> str:
    """Without paths of this machine, escape codes, and the commit."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text).replace(f"{shell.folder}/", "").replace(str(shell.folder), ".")
    text = re.sub(r"(Vernier \d[\w.]*) \([^)]*\)", r"\1", text)
    return text.replace(str(shell.home), "~/.cache/vernier").replace(str(Path.home()), "~")


MASKS = (
    (r"\d{8}-\d{6}", "DATE"),
    (r"\d{4}-\d\d-\d\d", "DATE"),
    (r"\d+:\d\d(:\d\d)?", "TIME"),
    (r"[\d.,]+ (s|ms|min|h|img/s|GiB|MiB|GFLOP/s)\b", r"N \1"),
    (r"(torch|Vernier|onnxruntime) \S+( \([^)]*\))?", r"\1 VERSION"),
    (r"\bcpu \([^)]*\)", "cpu"),
)
"""What differs from run to run and from machine to machine in the output of any command."""


def masked(line: str, *, figures: bool) -> str:
    """A line without what may differ; `figures`: its first part, without any figure, name of a data set and plural."""
    for pattern, name in MASKS:
        line = re.sub(pattern, name, line)
    if figures:
        line = re.sub(r"[-+±~]?\d[\d.,:%e-]*|[▁▂▃▄▅▆▇█]+|[─━╺╸]+", "#", line)
        line = re.sub(r"(?:\bN|#) (?:ms|s|min|h|d)\b", "TIME", line)
        line = re.split(r"[,(;:·]", re.sub(r"\b(shapes|photos)\b", "SET", line))[0]
        line = re.sub(r"s\b", "", line)
    return " ".join(line.split())
