"""The outputs that pages show are what the commands print."""

import contextlib
import io
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from tests.documentation import outputs as shown
from tests.documentation.outputs import ELLIPSIS, PHOTOS, SMALL, Output, make_world, masked, outputs_of, substitute
from vernier.cli import main

FEWER = {
    "train": [*SMALL.split()],
    "profile": ["--set", "machine.threads=1"],
    "study design": ["--fleets", "5"],
}
"""What makes a command small: added to commands whose output is shown `in small` or `of the machine`, and to those
that only prepare it. Flags that a command has already are left out."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, vernier_home: Path) -> Path:
    """What readers have: photographs, and a training."""
    folder = tmp_path_factory.mktemp("world")

    def run(command: str) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            assert main(shlex.split(command)[1:]) == 0, command
        return printed.getvalue()

    with contextlib.chdir(folder):
        make_world(folder, run, small=True)
    return folder


def smaller(words: list[str]) -> list[str]:
    """The words of a command, with those that make it small."""
    more = FEWER.get(words[0]) or FEWER.get(" ".join(words[:2])) or []
    pairs = [more[i : i + 2] for i in range(0, len(more), 2)] if "--explain" not in words else []
    return [*words, *(word for pair in pairs if pair[0] not in words or pair[0] == "--set" for word in pair)]


def run_command(line: str, output: Output, vernier: Callable[..., Done]) -> str:
    if line == PHOTOS:
        return ""
    words = shlex.split(substitute(line, Path.cwd()), comments=True)
    assert words[0] == "vernier", f"{output.fence.page.name}: {line}"
    target = Path(words[words.index(">") + 1]) if ">" in words else None
    words = words[1 : words.index(">")] if target else words[1:]
    exact = output.shown and not (output.small or output.of_machine)
    done = vernier(*(words if exact else smaller(words)))
    if target is not None:
        target.write_text(done.out, encoding="utf-8")
    return done.out + done.err


def shown_lines(output: Output, text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.strip() and line.strip() != ELLIPSIS]
    if output.of_machine:
        return [line.split()[0] for line in lines]
    return [masked(line, figures=output.small) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("page", shown.pages(), ids=lambda p: p.stem)
def test_every_output_is_what_the_command_prints(
    page: Path, world: Path, tmp_path: Path, vernier_here: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    monkeypatch.setenv("COLUMNS", shown.COLUMNS)
    monkeypatch.setenv("NO_COLOR", "1")
    shutil.copytree(world, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for output in outputs_of(page):
        if output.costly:
            continue
        printed = "".join(run_command(line, output, vernier_here) for line in output.commands)
        if output.shown:
            actual = set(shown_lines(output, printed))
            stale = [line for line in shown_lines(output, output.fence.text) if line not in actual]
            assert stale == [], f"{page.name}:{output.fence.line}: run `make pages OUTPUTS={page.stem}`\n{printed}"


def test_a_changed_word_would_be_noticed() -> None:
    line = "speed      212 img/s total on 1 device, data included"
    assert masked(line, figures=True) == masked(line.replace("212", "99.5"), figures=True)
    assert masked(line, figures=True) != masked(line.replace("total", "in all"), figures=True)
    assert masked("top-1 97.2 % in 3.1 s", figures=False) != masked("top-1 97.3 % in 3.1 s", figures=False)
    assert masked("top-1 97.2 % in 3.1 s", figures=False) == masked("top-1 97.2 % in 4.0 s", figures=False)
