"""Processes that are stopped, killed, hung, slow or cut off: a stated outcome each, and never a hang."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import TINY, command
from vernier.data.loading.order import TrainOrder

PATIENCE_S = 240
"""For a crowded machine; what is waited for takes seconds."""


def wait_for(what: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    """The first true answer; fails when the process ends before or nothing comes."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := what():
            return found
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("waited in vain")


class Running:
    """`vernier train` in several processes, watched through its run directory."""

    def __init__(self, arguments: list[str], out: Path) -> None:
        self.out = out
        self.process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )  # fmt: skip

    def run(self) -> Path:
        (found,) = self.out.iterdir()
        return found

    def events(self, kind: str) -> list[dict[str, Any]]:
        if not self.out.is_dir() or not list(self.out.glob("*/events.jsonl")):
            return []
        lines = (self.run() / "events.jsonl").read_text().splitlines()
        return [e for e in (json.loads(line) for line in lines) if e["kind"] == kind]

    def pids(self) -> list[int]:
        started = self.events("start")[-1]["processes"]
        return [p["pid"] for p in started]

    def under_way(self, starts: int = 1) -> list[int]:
        """The process numbers, once this session has done a few steps."""

        def moved() -> bool:
            steps, begun = self.events("step"), self.events("start")
            return len(begun) >= starts and bool(steps) and steps[-1]["step"] > (begun[-1]["resumed_from"] or 0) + 5

        wait_for(moved, self.process)
        return self.pids()

    def ended(self) -> tuple[int, str]:
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out + err

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run() / "run.json").read_text())
        return found


LONG = ["--epochs", "400", "--set", "checkpoint.every_steps=20", "--set", "eval.every_epochs=0", "--set", "checkpoint.every_epochs=0"]  # fmt: skip


def _arguments(shapes: Path, out: Path, *more: str) -> list[str]:
    return ["train", "--data", str(shapes), "--out", str(out), *TINY, *LONG, *more]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts trainings; none outlives the test."""
    running: list[Running] = []

    def begin(arguments: list[str], out: Path) -> Running:
        running.append(Running(arguments, out))
        return running[-1]

    yield begin
    for one in running:
        if one.process.poll() is None:
            for child in psutil.Process(one.process.pid).children(recursive=True):
                child.kill()
            one.process.kill()


def test_a_signal_to_one_process_stops_all_and_a_killed_one_is_named(
    shapes: Path, tmp_path: Path, start: Callable[..., Running]
) -> None:
    """SIGTERM to rank 1: saved, exit 75. The same command goes on; SIGKILL to rank 1: exit 1, named. One process finishes."""
    out, two = tmp_path / "runs", ["--procs", "2", "--set", "machine.rank_timeout_s=20"]
    first = start(command(*_arguments(shapes, out, *two)), out)
    os.kill(first.under_way()[1], signal.SIGTERM)
    code, said = first.ended()
    assert code == 75, said
    stopped_at = first.status()["summary"]["step"]
    assert first.status()["status"] == "stopped"

    second = start(command(*_arguments(shapes, out, *two)), out)
    os.kill(second.under_way(starts=2)[1], signal.SIGKILL)
    code, said = second.ended()
    assert code == 1, said
    assert "rank 1" in said
    assert second.status()["status"] == "crashed"
    assert second.events("start")[-1]["resumed_from"] == stopped_at

    third = start(command(*_arguments(shapes, out, "--procs", "1", "--max-steps", str(stopped_at + 40))), out)
    code, said = third.ended()
    assert code == 0, said
    assert third.status()["summary"]["step"] == stopped_at + 40
    assert len(list(out.iterdir())) == 1


def test_a_slow_process_is_reported_and_a_hung_one_ends_the_run(
    shapes: Path, tmp_path: Path, start: Callable[..., Running]
) -> None:
    """Rank 1 loses three quarters of its time: a warning with every rank's time. Then it is stopped for good: the run ends."""
    out = tmp_path / "runs"
    run = start(command(*_arguments(shapes, out, "--procs", "2", "--set", "machine.rank_timeout_s=5")), out)
    slow, enough = run.under_way()[1], threading.Event()

    def hinder() -> None:
        while not enough.is_set():
            os.kill(slow, signal.SIGSTOP)
            enough.wait(0.09)
            os.kill(slow, signal.SIGCONT)
            enough.wait(0.03)

    thread = threading.Thread(target=hinder)
    thread.start()
    try:
        warned = wait_for(lambda: [e for e in run.events("warning") if "rank 1 is slow" in e["message"]], run.process)
    finally:
        enough.set()
        thread.join()
    assert "rank 0" in warned[0]["message"]
    os.kill(slow, signal.SIGSTOP)
    code, said = run.ended()
    assert code == 1, said
    assert "rank 1 on" in said
    assert "has not answered for 5 s" in said
    assert run.status()["status"] == "crashed"
    assert not psutil.pid_exists(slow) or psutil.Process(slow).status() == psutil.STATUS_ZOMBIE


def _by_hand(start: Callable[..., Running], out: Path, data: list[Path], *more: str) -> list[Running]:
    """Processes that find each other through variables, each with data of its own, as on hosts with disks of their own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = [f"WORLD_SIZE={len(data)}", "MASTER_ADDR=127.0.0.1", f"MASTER_PORT={port}"]
    return [
        start(["env", f"RANK={rank}", *meeting, *command(*_arguments(folder, out, *more))], out)
        for rank, folder in enumerate(data)
    ]


def test_a_process_that_is_alive_but_stuck_is_named(
    shapes: Path, tmp_path: Path, start: Callable[..., Running]
) -> None:
    """Every image of rank 1 turns into a pipe that nobody writes to: it waits for its disk, and beats all the same."""
    out, own = tmp_path / "runs", tmp_path / "data"
    shutil.copytree(shapes, own)
    settings = ["--set", "machine.rank_timeout_s=2", "--set", "machine.cache_share=0"]
    first, second = _by_hand(start, out, [shapes, own], *settings)
    first.under_way()
    for image in (own / "train").glob("*/*.jpg"):
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "pipe").replace(image)
    code, said = first.ended()
    assert code == 1, said
    assert re.search(r"rank 1 on \S+ is behind the others, at step \d+, who have waited for 20 s", said), said
    assert first.status()["status"] == "crashed"
    assert "stuck" in first.status()["reason"]
    assert second.ended()[0] == 1


def test_data_missing_at_one_process_ends_all_with_its_message(
    shapes: Path, tmp_path: Path, start: Callable[..., Running]
) -> None:
    first, second = _by_hand(start, tmp_path / "runs", [shapes, tmp_path / "absent"])
    code, said = first.ended()
    assert code == 1, said
    assert re.search(r"rank 1 of 2 on \S+ failed: The data path \S+ does not exist", said), said
    assert "Traceback" not in said
    assert second.ended()[0] == 2
    assert not (tmp_path / "runs").exists()


def test_an_error_of_one_local_process_is_said_once_at_the_top(
    shapes: Path, tmp_path: Path, start: Callable[..., Running]
) -> None:
    """An image that rank 1 has to read in its first step is broken, and none may be."""
    out, broken = tmp_path / "runs", tmp_path / "data"
    shutil.copytree(shapes, broken)
    images = sorted((broken / "train").glob("*/*.jpg"))
    order = TrainOrder(samples=len(images), seed=1, global_batch=16, accumulation=1, repeats=1, world=2, rank=1)
    images[int(order.indices(0, 0, 0)[0])].write_text("no image")
    run = start(command(*_arguments(broken, out, "--procs", "2", "--max-bad-images", "0")), out)
    pids = wait_for(lambda: run.events("start") and run.pids(), run.process)
    code, said = run.ended()
    assert code == 1, said
    errors = [line for line in said.splitlines() if line.startswith("vernier: ")]
    assert len(errors) == 1, said
    assert re.match(r"vernier: .*rank 1 of 2 on \S+ failed: Cannot read the image", errors[0]), said
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert run.status()["status"] == "crashed"


def test_torchrun_restarts_a_killed_group_and_ends_where_an_undisturbed_one_does(
    shapes: Path, tmp_path: Path, start: Callable[..., Running]
) -> None:
    out = tmp_path / "runs"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=2"]
    run = start([*torchrun, "-m", "vernier", *_arguments(shapes, out, "--max-steps", "300")], out)
    wait_for(lambda: len(run.events("checkpoint")) >= 1 and run.events("step"), run.process)
    os.kill(run.pids()[1], signal.SIGKILL)
    code, said = run.ended()
    assert code == 0, said
    begun = run.events("start")
    assert [e["restarts"] for e in begun] == [0, 1]
    assert begun[1]["resumed_from"] >= 20
    assert run.status()["status"] == "finished"
    assert run.status()["summary"]["step"] == 300
    whole = start(
        command(*_arguments(shapes, tmp_path / "whole", "--max-steps", "300", "--procs", "2")), tmp_path / "whole"
    )
    assert whole.ended()[0] == 0
    last = "checkpoints/step-00000300/model.safetensors"
    assert (run.run() / last).read_bytes() == (whole.run() / last).read_bytes()  # to the last bit


@pytest.mark.skipif(
    shutil.which("mpirun") is None, reason="Open MPI's mpirun is not here (apt-get install openmpi-bin)"
)
def test_mpirun_makes_one_run(shapes: Path, tmp_path: Path, start: Callable[..., Running]) -> None:
    out = tmp_path / "runs"
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]
    run = start([*mpirun, *command(*_arguments(shapes, out, "--max-steps", "12"))], out)
    code, said = run.ended()
    assert code == 0, said
    assert [p["launcher"] for p in run.events("start")[0]["processes"]] == ["openmpi", "openmpi"]
    assert run.status()["summary"]["step"] == 12


@pytest.mark.skipif(
    shutil.which("mpiexec.hydra") is None, reason="MPICH's mpiexec.hydra is not here (apt-get install mpich)"
)
def test_hydra_makes_one_run_also_through_a_shell(shapes: Path, tmp_path: Path, start: Callable[..., Running]) -> None:
    out = tmp_path / "runs"
    shell = ["sh", "-c", '"$@"; exit $?', "sh"]
    run = start(["mpiexec.hydra", "-n", "2", *shell, *command(*_arguments(shapes, out, "--max-steps", "12"))], out)
    code, said = run.ended()
    assert code == 0, said
    assert [p["launcher"] for p in run.events("start")[0]["processes"]] == ["pmi", "pmi"]
    assert run.status()["summary"]["step"] == 12


def _slurm() -> str:
    """Why no Slurm job of two tasks can be run here; empty when one can."""
    if shutil.which("srun") is None:
        return "Slurm's srun is not here"
    answered = subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%C"], capture_output=True, text=True)
    return (
        "" if answered.returncode == 0 and answered.stdout.strip() else "no Slurm controller with an idle host answers"
    )


def test_srun_makes_one_run(shapes: Path, tmp_path: Path, start: Callable[..., Running]) -> None:
    if why := _slurm():
        pytest.skip(why)
    out = tmp_path / "runs"
    run = start(["srun", "-n", "2", *command(*_arguments(shapes, out, "--max-steps", "12"))], out)
    code, said = run.ended()
    assert code == 0, said
    assert [p["launcher"] for p in run.events("start")[0]["processes"]] == ["slurm", "slurm"]
    assert run.status()["summary"]["step"] == 12


def _namespaces() -> str:
    """Why two hosts cannot be made of network namespaces here; empty when they can."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return "needs root and iproute2 for network namespaces"
    made = subprocess.run(["ip", "netns", "add", "vernier-try"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", "vernier-try"], capture_output=True)
    return "" if made.returncode == 0 else f"network namespaces are not permitted: {made.stderr.strip()}"


@pytest.fixture
def two_hosts() -> Iterator[list[str]]:
    """Two network namespaces joined by a cable: 10.77.0.1 and 10.77.0.2."""
    if why := _namespaces():
        pytest.skip(why)
    names = [f"vernier-{os.getpid()}-{i}" for i in (1, 2)]
    commands = [["netns", "add", n] for n in names] + [
        ["link", "add", "vrn1", "netns", names[0], "type", "veth", "peer", "name", "vrn2", "netns", names[1]]
    ]
    for i, name in enumerate(names, start=1):
        inside = ["-n", name]
        commands += [
            [*inside, "addr", "add", f"10.77.0.{i}/24", "dev", f"vrn{i}"],
            [*inside, "link", "set", f"vrn{i}", "up"],
            [*inside, "link", "set", "lo", "up"],
        ]
    try:
        for one in commands:
            done = subprocess.run(["ip", *one], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"two hosts cannot be made here: {done.stderr.strip()}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def test_a_host_that_is_cut_off_ends_the_run_on_both(
    shapes: Path, tmp_path: Path, two_hosts: list[str], start: Callable[..., Running]
) -> None:
    """Two hosts, one process each, as an MPI or Slurm job would set them up; then the cable of the second is pulled."""
    out = tmp_path / "runs"

    def host(rank: int) -> Running:
        variables = ["env", f"RANK={rank}", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=10.77.0.1", "MASTER_PORT=29511"]  # fmt: skip
        inner = command(*_arguments(shapes, out, "--set", "machine.rank_timeout_s=5", "--set", "machine.max_cpus=1"))
        return start(["ip", "netns", "exec", two_hosts[rank], *variables, *inner], out)

    first, second = host(0), host(1)
    first.under_way()
    subprocess.run(["ip", "-n", two_hosts[1], "link", "set", "vrn2", "down"], check=True)
    code, said = first.ended()
    assert code == 1, said
    assert "rank 1 on" in said
    assert first.status()["status"] == "crashed"
    assert second.ended()[0] == 1
    assert "10.77.0.1" in (first.run() / "logs" / "rank1.log").read_text()
