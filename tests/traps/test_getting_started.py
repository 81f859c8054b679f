"""A newcomer types the commands of docs/getting-started.md from top to bottom."""

import re
import shlex

from tests.documented import DOCS, fences

PAGE = DOCS / "getting-started.md"


def _commands() -> list[list[str]]:
    lines = [line for fence in fences(PAGE) if fence.language == "sh" for _, line in fence.lines()]
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


def test_no_command_reads_what_no_earlier_one_has_made() -> None:
    """`vernier predict runs/RUN photos/val` came before any line had made photos/."""
    lines = [shlex.join(words) for words in _commands()]
    assert lines.index("source .venv/bin/activate") < next(i for i, line in enumerate(lines) if line[:8] == "vernier ")
    present = {"runs"}
    for words in _commands():
        outputs = {words[i + 1] for i, word in enumerate(words[:-1]) if word in ("--out", "-o", ">")}
        ours = r"(photos|runs|mine|own|shapes\.safetensors)\b.*"
        read = {word.partition("/")[0] for word in words[1:] if re.fullmatch(ours, word)} - outputs
        assert read <= present, shlex.join(words)
        present |= outputs


def test_the_main_commands_show_what_they_print() -> None:
    """The page showed no output, so nobody could tell whether it had worked."""
    shown = "\n".join(fence.text for fence in fences(PAGE) if fence.language == "text")
    assert re.search(r"^result +top-1 \d", shown, re.MULTILINE)
    assert re.search(r"^photos/\S+\.jpg: ", shown, re.MULTILINE)
