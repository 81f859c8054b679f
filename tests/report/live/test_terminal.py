"""Commands whose output goes to a full disk, a closed pipe, or nowhere."""

import os
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import command

SCRIPT = """
import sys
from vernier.report.live.terminal import protect_streams
protect_streams()
"""


def _run(words: list[str], **streams: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, text=True, timeout=120, **streams)


def _script(body: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    return _run([sys.executable, "-c", SCRIPT + body], **streams)


def test_messages_that_nobody_can_take_raise_nothing() -> None:
    body = "sys.stderr.write('lost\\n' * 5)\nsys.stderr.flush()\nprint('result')"
    with open("/dev/full", "w") as full:
        done = _script(body, stderr=full, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (0, "result\n")
    reader, writer = os.pipe()
    os.close(reader)
    done = _script(body, stderr=writer, stdout=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stdout) == (0, "result\n")


def test_messages_to_a_terminal_that_was_closed_raise_nothing() -> None:
    leader, follower = os.openpty()
    body = "input()\nfrom rich.console import Console\nConsole(stderr=True).print('lost')\nprint('result')"
    pipe = subprocess.PIPE
    words = [sys.executable, "-c", SCRIPT + body]
    process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=follower, text=True)
    os.close(follower)
    os.close(leader)
    assert process.communicate("now\n", timeout=120)[0] == "result\n"
    assert process.returncode == 0


def test_a_background_thread_that_the_disk_fails_is_one_line_and_a_bug_keeps_its_traceback() -> None:
    body = "import threading\ndef write():\n    with open('/dev/full', 'w') as f:\n        f.write('x')\n"
    start = "thread = threading.Thread(target={}, name='writer')\nthread.start()\nthread.join()\n"
    done = _script(body + start.format("write"), stderr=subprocess.PIPE)
    assert done.stderr == "vernier: thread writer: No space left on device\n"
    done = _script(body + start.format("lambda: 1 / 0"), stderr=subprocess.PIPE)
    assert "ZeroDivisionError" in done.stderr


def test_results_that_cannot_be_written_are_an_error_that_names_standard_output() -> None:
    with open("/dev/full", "w") as full:
        done = _run(command("recipes", "--json"), stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, "vernier: No space left on device: standard output.\n")


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "2>&-", ">&-"])
def test_streams_that_were_closed_are_nowhere(closed: str) -> None:
    words = " ".join(command("recipes", "--json"))
    assert _run(["sh", "-c", f"{words} {closed}"], stdout=subprocess.DEVNULL).returncode == 0
