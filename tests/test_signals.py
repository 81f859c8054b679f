"""Signals to processes that start: in imports, in calls that wait, before and after `vernier.cli` is there."""

import os
import signal
import subprocess
import sys
import textwrap
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import REPO, command
from vernier.signals import SIGNALS

PATIENCE_S = 120
SLEEP = "import time; time.sleep(600)"
ANOTHER_ERROR = f"""
try:
    {SLEEP}
except BaseException:
    raise ImportError("a library that turns everything into its own error")
"""
WAIT_WITHOUT_SIGNALS = """
import ctypes, vernier.signals
vernier.signals.GRACE_S = 0.2
mutex = ctypes.create_string_buffer(64)
lock = ctypes.CDLL(None).pthread_mutex_lock
lock(mutex)
lock(mutex)  # for ever, whatever signal comes
"""
"""What a call of a library does that waits for another process: no Python code runs, no handler either."""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Start]:
    """Start Vernier and give it back when it is stuck in the import of a module."""
    started: list[subprocess.Popen[str]] = []

    def start(
        module: str, words: list[str], *, body: str = SLEEP, prefix: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        mark = tmp_path / "stuck"
        (tmp_path / f"{module}.py").write_text(f"open({str(mark)!r}, 'w').close()\n{body}\n")
        path = os.pathsep.join([str(tmp_path), *sys.path])
        environ = {**os.environ, "PYTHONPATH": path}
        pipe = subprocess.PIPE
        process = subprocess.Popen([*prefix, *words], env=environ, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        deadline = time.monotonic() + PATIENCE_S
        while not mark.exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def _end(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, err


def _line(name: str) -> str:
    return f"vernier: stopped by {name} before the first step: nothing to save, run the same command again\n"


@pytest.mark.parametrize("name", ["train", "finetune"])
@pytest.mark.parametrize("number", SIGNALS, ids=lambda n: n.name)
def test_a_signal_while_the_command_line_is_imported_gives_75_and_one_line(
    stuck: Start, number: signal.Signals, name: str
) -> None:
    process = stuck("difflib", command(name))
    process.send_signal(number)
    assert _end(process) == (75, _line(number.name))


@pytest.mark.parametrize(
    "body",
    [SLEEP, WAIT_WITHOUT_SIGNALS, ANOTHER_ERROR],
    ids=["in Python", "in a call that waits", "in a library that catches everything"],
)
def test_a_signal_while_torch_is_imported_gives_75_and_leaves_no_run(stuck: Start, tmp_path: Path, body: str) -> None:
    process = stuck("torch", command("train", "--smoke", "--out", str(tmp_path / "runs")), body=body)
    process.send_signal(signal.SIGTERM)
    assert _end(process) == (75, _line("SIGTERM"))
    assert not (tmp_path / "runs").exists()


def test_the_installed_command_catches_signals_before_it_imports_the_command_line(stuck: Start, tmp_path: Path) -> None:
    entry = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["scripts"]["vernier"]
    module, function = entry.split(":")
    script = tmp_path / "vernier-script"
    script.write_text(f"import re\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    process = stuck("difflib", [sys.executable, str(script), "train"])
    process.send_signal(signal.SIGTERM)
    assert _end(process) == (75, _line("SIGTERM"))


def test_a_second_ctrl_c_at_the_start_ends_at_once(stuck: Start, tmp_path: Path) -> None:
    slow_ending = (
        "import time\ntry:\n    time.sleep(600)\nfinally:\n    open('first', 'w').close()\n    time.sleep(600)\n"
    )
    process = stuck("torch", command("train", "--smoke"), body=slow_ending)
    process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + PATIENCE_S
    while not (tmp_path / "first").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert _end(process) == (130, "vernier: interrupted\n")


def test_ctrl_c_while_another_command_is_imported_gives_130_without_a_traceback(stuck: Start) -> None:
    process = stuck("difflib", command("eval", "runs/x"))
    process.send_signal(signal.SIGINT)
    assert _end(process) == (130, "vernier: interrupted\n")


def test_sigterm_to_another_command_does_what_it_does_to_any_program(stuck: Start) -> None:
    process = stuck("difflib", command("eval", "runs/x"))
    process.send_signal(signal.SIGTERM)
    assert _end(process) == (-signal.SIGTERM, "")


def test_under_nohup_sighup_stays_ignored(stuck: Start) -> None:
    process = stuck("difflib", command("train"), prefix=("nohup",))
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    code, err = _end(process)
    assert code == 75
    assert err.endswith(_line("SIGTERM"))


def test_a_signal_that_a_library_swallowed_is_obeyed_before_the_first_step() -> None:
    assert _in_a_process(
        """
        signals.unwind_from_now()
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except BaseException:
            pass
        try:
            StopFlag().__enter__()
        except signals.StopRequested as request:
            print(request)
        """
    ) == ["SIGTERM"]


def test_after_the_last_step_a_signal_changes_nothing_and_a_second_ctrl_c_ends() -> None:
    assert _in_a_process(
        """
        with StopFlag():
            pass
        os.kill(os.getpid(), signal.SIGINT)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
            os.kill(os.getpid(), number)
        print("goes-on")
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            print("interrupted")
        """
    ) == ["goes-on", "interrupted"]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda n: n.name)
def test_while_a_model_is_exported_after_training_a_signal_gives_75(number: signal.Signals) -> None:
    script = f"""
import os
from vernier import signals
from vernier.engine.training.stop import StopFlag
signals.catch_from_start()
signals.unwind_from_now()
with StopFlag():
    pass
signals.end_from_now()
os.kill(os.getpid(), {int(number)})
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)
    message = f"vernier: stopped by {number.name}: run the same command to finish\n"
    assert (done.returncode, done.stderr) == (75, message)


def test_a_forked_process_has_the_handlers_of_any_program() -> None:
    assert _in_a_process(
        """
        if not (child := os.fork()):
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    ) == [str(-signal.SIGTERM)]


def _in_a_process(body: str) -> list[str]:
    """What a script prints in which signals are caught from the start."""
    head = "import os, signal\nfrom vernier import signals\nfrom vernier.engine.training.stop import StopFlag\n"
    script = f"{head}signals.catch_from_start()\n{textwrap.dedent(body)}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_stopped_process_ends_with_the_one_that_started_it() -> None:
    child = (
        "import os, time, vernier.signals as s; s.end_with_parent(); print(os.getpid(), flush=True); time.sleep(600)"
    )
    parent = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    os.kill(pid, signal.SIGSTOP)
    process.kill()
    process.wait()
    deadline = time.monotonic() + PATIENCE_S
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    """Whether a process is there and has not ended; the one that would collect it is gone."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
