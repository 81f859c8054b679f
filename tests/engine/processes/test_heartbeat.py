"""Processes that are stopped, killed, hung or slow: each has a stated outcome, and none hangs the run.

Hosts that are cut off are in tests/hosts.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.conftest import command
from tests.engine.processes.running import Start, arguments, start_by_hand, wait_for
from vernier.engine.processes import heartbeat
from vernier.engine.processes.heartbeat import Heartbeat, _Identity, open_store
from vernier.engine.processes.launch import Topology
from vernier.errors import RunFailed

slow = pytest.mark.slow


def test_a_process_is_killed_only_if_it_started_when_it_should_have() -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        started_s = psutil.Process(sleeper.pid).create_time()
        _Identity(pid=sleeper.pid, started_s=started_s - 100).kill()  # another process had this number
        assert sleeper.poll() is None
        _Identity(pid=sleeper.pid, started_s=started_s).kill()
        assert sleeper.wait(timeout=30) == -signal.SIGKILL
        _Identity(pid=sleeper.pid, started_s=started_s).kill()  # it is gone already
    finally:
        sleeper.kill()


def test_a_number_that_is_another_users_process_now_is_left_alone() -> None:
    """PID 1 belongs to root. It started when the peer did, as far as anybody can tell."""
    script = (
        "import os, psutil; from vernier.engine.processes.heartbeat import _Identity\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "_Identity(pid=1, started_s=psutil.Process(1).create_time()).kill()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")


def test_closing_waits_for_a_call_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends while a thread is in such a call is aborted, and its finished run has failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        topology = Topology(address="127.0.0.1", port=free.getsockname()[1])
    store = open_store(topology, 30.0, serve=True)
    heart = Heartbeat(topology, timeout_s=30.0, stall_s=300.0)
    inside, answer, returned = threading.Event(), threading.Event(), threading.Event()

    def slow_call(keys: list[str]) -> list[bytes]:
        inside.set()
        answer.wait(60)
        returned.set()
        return [b"1 0 0" for _ in keys]

    monkeypatch.setattr(heart, "_store", SimpleNamespace(set=store.set, check=lambda _: False, multi_get=slow_call))
    heart.start()
    assert inside.wait(60)
    threading.Timer(0.3, answer.set).start()
    heart.close()
    assert returned.is_set()
    assert not [t for t in threading.enumerate() if t.name.startswith("vernier-_")]


def test_a_program_that_accepts_connections_but_is_no_rendezvous_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's store waits for its answer without a limit."""
    monkeypatch.setattr(heartbeat, "_ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        topology = Topology(rank=1, world=2, host="node2", address="127.0.0.1", port=port, launcher="slurm")
        with pytest.raises(RunFailed, match=f"on node2: what listens at 127.0.0.1:{port} does not answer"):
            open_store(topology, 1.0, serve=False)


@slow
def test_a_signal_to_one_process_stops_all_and_a_killed_one_is_named(
    shapes: Path, tmp_path: Path, start: Start
) -> None:
    """SIGTERM to rank 1: saved, exit 75. The same command resumes; SIGKILL to rank 1: exit 1, named. One can finish."""
    out, two = tmp_path / "runs", ["--procs", "2", "--set", "machine.rank_timeout_s=20"]
    first = start(command(*arguments(shapes, out, *two)), out)
    os.kill(first.under_way()[1], signal.SIGTERM)
    code, output = first.wait()
    assert code == 75, output
    stopped_at = first.status()["summary"]["step"]
    assert first.status()["status"] == "stopped"

    second = start(command(*arguments(shapes, out, *two)), out)
    os.kill(second.under_way(starts=2)[1], signal.SIGKILL)
    code, output = second.wait()
    assert code == 1, output
    assert "rank 1" in output
    assert second.status()["status"] == "crashed"
    assert second.events("start")[-1]["resumed_from"] == stopped_at

    third = start(command(*arguments(shapes, out, "--procs", "1", "--max-steps", str(stopped_at + 40))), out)
    code, output = third.wait()
    assert code == 0, output
    assert third.status()["summary"]["step"] == stopped_at + 40
    assert len(list(out.iterdir())) == 1


@slow
def test_a_slow_process_is_reported_and_a_hung_one_ends_the_run(shapes: Path, tmp_path: Path, start: Start) -> None:
    """Rank 1 loses three quarters of its time: a warning with every rank's time. Then it is stopped: the run ends."""
    out = tmp_path / "runs"
    run = start(command(*arguments(shapes, out, "--procs", "2", "--set", "machine.rank_timeout_s=5")), out)
    slow, done = run.under_way()[1], threading.Event()

    def hinder() -> None:
        while not done.is_set():
            os.kill(slow, signal.SIGSTOP)
            done.wait(0.09)
            os.kill(slow, signal.SIGCONT)
            done.wait(0.03)

    thread = threading.Thread(target=hinder)
    thread.start()
    try:
        warned = wait_for(lambda: [e for e in run.events("warning") if "rank 1 is slow" in e["message"]], run.process)
    finally:
        done.set()
        thread.join()
    assert "rank 0" in warned[0]["message"]
    os.kill(slow, signal.SIGSTOP)
    code, output = run.wait()
    assert code == 1, output
    assert "rank 1 on" in output
    assert "has not answered for 5 s" in output
    assert run.status()["status"] == "crashed"
    assert not psutil.pid_exists(slow) or psutil.Process(slow).status() == psutil.STATUS_ZOMBIE


@slow
def test_a_process_that_is_alive_but_stuck_is_named(shapes: Path, tmp_path: Path, start: Start) -> None:
    """Every image of rank 1 turns into a pipe that nobody writes to: it waits for its disk, and beats all the same."""
    out, own = tmp_path / "runs", tmp_path / "data"
    shutil.copytree(shapes, own)
    settings = ["--set", "machine.rank_timeout_s=4", "--set", "machine.cache_share=0"]
    first, second = start_by_hand(start, out, [shapes, own], *settings)
    first.under_way()
    for image in (own / "train").glob("*/*.jpg"):
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "pipe").replace(image)
    code, output = first.wait()
    assert code == 1, output
    assert re.search(r"rank 1 on \S+ is behind the others, at step \d+, who have waited for 40 s", output), output
    assert first.status()["status"] == "crashed"
    assert "stuck" in first.status()["reason"]
    assert second.wait()[0] == 1
