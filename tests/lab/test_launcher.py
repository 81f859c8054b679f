"""Processes: a request in, an answer out, and nothing left running."""

import signal
import sys
from pathlib import Path

import psutil
import pytest

from vernier.lab import launcher
from vernier.lab.launcher import Process
from vernier.lab.records.bench import MeasuringProgress, RepeatResult, StudyRequest

REQUEST = StudyRequest(workload="sgemm", iterations=2, device="cpu")


def with_script(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Processes run this Python text, with the paths of request and answer as arguments."""
    monkeypatch.setattr(launcher, "COMMAND", [sys.executable, "-c", text])


def test_the_request_goes_in_and_the_answer_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_script(
        monkeypatch,
        "import json, os, sys; workload = json.load(open(sys.argv[1]))['workload']\n"
        "json.dump({'workload': workload, 'given': os.environ['GIVEN']}, open(sys.argv[2], 'w'))\n"
        "print('one'); print(); print('two')",
    )
    ended = launcher.run(REQUEST, variables={"GIVEN": "7"})
    assert ended.tree == {"workload": "sgemm", "given": "7"}
    assert (ended.code, ended.output) == (0, "one two")


def test_no_answer_is_none_and_no_output_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_script(monkeypatch, "raise SystemExit(3)")
    ended = launcher.run(REQUEST)
    assert (ended.tree, ended.code, ended.output) == (None, 3, "no message")


@pytest.mark.parametrize("suspended", [False, True])
def test_the_end_is_that_of_all_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suspended: bool) -> None:
    with_script(
        monkeypatch,
        f"import subprocess, time; child = subprocess.Popen(['sleep', '600']); "
        f"open({str(tmp_path / 'pid')!r} + '~', 'w').write(str(child.pid)); import os; "
        f"os.rename({str(tmp_path / 'pid')!r} + '~', {str(tmp_path / 'pid')!r}); time.sleep(600)",
    )
    running = Process(REQUEST, tmp_path)
    try:
        while not (tmp_path / "pid").exists():
            assert not running.ends_within(0.05), running.last_lines(3)
        child = psutil.Process(int((tmp_path / "pid").read_text()))
        if suspended:
            running.signal(signal.SIGSTOP)
            assert running.memory_bytes() > 0
    finally:
        running.end(grace_s=30.0)
    assert running.code is not None
    psutil.wait_procs([child], timeout=30)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_what_a_process_is_doing_is_passed_on_with_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    with_script(
        monkeypatch,
        "import json, os, sys\n"
        "progress = json.load(open(sys.argv[1]))['progress']\n"
        "json.dump({'phase': 'measuring', 'fastest_s': 0.5}, open(progress, 'w'))\n"
        "json.dump({'status': 'ok', 'time': 'now', 'seconds': [1, 2], 'train_time_s': 3, 'warmup': 1,\n"
        "           'notes': [os.environ['ONLY_DEVICE']]}, open(sys.argv[2], 'w'))\n",
    )
    said: list[MeasuringProgress | None] = []
    request = StudyRequest(workload="sgemm", iterations=2, device="cpu")
    result = launcher.run(request, variables={"ONLY_DEVICE": "7"}, on_progress=said.append).result(RepeatResult, "gpu0")
    assert isinstance(result, RepeatResult)
    assert result.seconds == (1.0, 2.0)
    assert result.notes == ("7",)
    assert said[-1] is not None
    assert said[-1].fastest_s == 0.5
