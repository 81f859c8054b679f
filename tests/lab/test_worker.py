"""Workers: a request in, an answer out, and nothing left running."""

import sys
from pathlib import Path

import psutil
import pytest

from vernier.lab import worker
from vernier.lab.worker import Worker, environment
from vernier.records.bench import TrialRequest

REQUEST = TrialRequest(trial="copies", config={})


def with_script(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Workers run this Python text, with the paths of request and answer as arguments."""
    monkeypatch.setattr(worker, "COMMAND", [sys.executable, "-c", text])


def test_the_request_goes_in_and_the_answer_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_script(
        monkeypatch,
        "import json, os, sys; json.dump({'trial': json.load(open(sys.argv[1]))['trial'], 'given': os.environ['GIVEN']}"
        ", open(sys.argv[2], 'w')); print('one'); print(); print('two')",
    )
    with Worker(REQUEST, tmp_path, {"GIVEN": "7"}) as running:
        assert running.ends_within(60)
        assert running.answer() == {"trial": "copies", "given": "7"}
        assert running.code == 0
        assert running.last_lines(2) == "one two"


def test_no_answer_is_none_and_no_output_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_script(monkeypatch, "raise SystemExit(3)")
    with Worker(REQUEST, tmp_path) as running:
        assert running.ends_within(60)
        assert (running.answer(), running.code) == (None, 3)
        assert running.last_lines(2) == "no message"


@pytest.mark.parametrize("suspended", [False, True])
def test_the_end_is_that_of_all_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suspended: bool) -> None:
    with_script(
        monkeypatch,
        f"import subprocess, time; child = subprocess.Popen(['sleep', '600']); "
        f"open({str(tmp_path / 'pid')!r} + '~', 'w').write(str(child.pid)); import os; "
        f"os.rename({str(tmp_path / 'pid')!r} + '~', {str(tmp_path / 'pid')!r}); time.sleep(600)",
    )
    running = Worker(REQUEST, tmp_path)
    try:
        while not (tmp_path / "pid").exists():
            assert not running.ends_within(0.05), running.last_lines(3)
        child = psutil.Process(int((tmp_path / "pid").read_text()))
        if suspended:
            running.suspend()
            assert running.memory_bytes() > 0
    finally:
        running.end(grace_s=30.0)
    assert running.code is not None
    psutil.wait_procs([child], timeout=30)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_another_version_is_found_by_its_folder_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    assert environment(Path("/theirs"))["PYTHONPATH"] == "/theirs"
    assert environment(None)["PYTHONPATH"].endswith("/mine")
