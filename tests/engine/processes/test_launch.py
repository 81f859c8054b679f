"""What launchers say about a process, and runs that real launchers start."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.conftest import command
from tests.engine.processes.running import Start, arguments, start_by_hand, wait_for
from vernier.data.loading.order import TrainOrder
from vernier.engine.processes.launch import Topology, _first_host, run_local, time_left_s, topology
from vernier.errors import ConfigError

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "head",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
SLURM = {
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_STEP_NUM_TASKS": "11",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
    "SLURM_STEP_NODELIST": "gpu[007-009]",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "12345",
}


slow = pytest.mark.slow


def test_without_a_launcher_a_process_is_alone() -> None:
    process = topology({"PATH": "/bin"})
    assert (process.rank, process.world, process.launcher) == (0, 1, "single")
    assert process.first


def test_torchrun() -> None:
    process = topology(TORCHRUN)
    assert (process.rank, process.world, process.local_rank, process.local_world) == (5, 8, 1, 4)
    assert (process.address, process.port, process.launcher) == ("head", 29500, "torchrun")
    assert process.launcher_serves_store
    assert process.restarts == 2
    assert process.rendezvous == "head:29500"
    assert topology({**TORCHRUN, "MASTER_ADDR": "fd77::1"}).rendezvous == "[fd77::1]:29500"


def test_slurm_uses_the_first_host_and_counts_the_tasks_of_its_own() -> None:
    process = topology(SLURM)
    assert (process.rank, process.world, process.local_rank, process.local_world) == (9, 11, 1, 3)
    assert process.address == "gpu007"
    assert process.port == topology({**SLURM, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}).port
    assert process.port != topology({**SLURM, "SLURM_JOB_ID": "78"}).port


def test_an_sbatch_script_without_srun_is_one_process() -> None:
    assert topology({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}).launcher == "single"


def test_torchrun_inside_srun_wins() -> None:
    assert topology({**SLURM, **TORCHRUN}).launcher == "torchrun"


def test_open_mpi_on_one_host_uses_the_loopback_address() -> None:
    process = topology(OPENMPI)
    assert (process.rank, process.world, process.address, process.launcher) == (1, 2, "127.0.0.1", "openmpi")


def test_open_mpi_over_hosts_needs_the_address_of_the_first() -> None:
    several = {**OPENMPI, "OMPI_COMM_WORLD_SIZE": "64", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}
    with pytest.raises(ConfigError, match="-x MASTER_ADDR"):
        topology(several)
    assert topology({**several, "MASTER_ADDR": "10.0.0.1"}).address == "10.0.0.1"


def test_pmi() -> None:
    process = topology({"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "3", "MPI_LOCALNRANKS": "4"})
    assert (process.rank, process.world, process.local_rank, process.launcher) == (3, 4, 3, "pmi")


def test_pmi_processes_of_a_job_use_one_port() -> None:
    """Hydra's variables on one host: the processes share only the size, and have different pipes to their proxy."""
    hydra = {"PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}
    ports = [
        topology({**hydra, "PMI_RANK": rank, "MPI_LOCALRANKID": rank, "PMI_FD": pipe}).port
        for rank, pipe in (("0", "6"), ("1", "8"))
    ]
    assert ports[0] == ports[1]
    assert topology({**hydra, "PMI_RANK": "0", "MPI_LOCALRANKID": "0", "PMI_JOBID": "7"}).port != ports[0]


def test_pmi_over_hosts_uses_the_given_address() -> None:
    several = {"PMI_RANK": "0", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
    with pytest.raises(ConfigError, match="-env MASTER_ADDR"):
        topology(several)
    other = {**several, "PMI_RANK": "2", "PMI_FD": "9", "MASTER_ADDR": "host1"}
    assert topology(other).port == topology({**several, "MASTER_ADDR": "host1"}).port


@pytest.mark.parametrize(
    "environ",
    [
        {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "two"},
        {"RANK": "0", "WORLD_SIZE": "2"},
        {**TORCHRUN, "RANK": "eight"},
        {**TORCHRUN, "RANK": "8"},
        {"OMPI_COMM_WORLD_RANK": "0"},
    ],
)
def test_incomplete_variables_of_a_launcher_are_explained(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"torchrun|impossible"):
        topology(environ)


def test_slurm_host_lists() -> None:
    first = {"a1": "a1", "a1,b2": "a1", "gpu[007-9,12],x": "gpu007", "n[3]-ib,n4": "n3", "": ""}
    assert {text: _first_host(text) for text in first} == first


def test_procs_must_not_contradict_the_launcher() -> None:
    under = topology(TORCHRUN)
    assert under.process_count(1) == under.process_count(8) == 8
    assert Topology().process_count(3) == 3
    with pytest.raises(ConfigError, match="torchrun started 8"):
        under.process_count(3)


def test_the_time_left_counts_from_the_start_of_the_command_or_to_the_end_of_the_job() -> None:
    now = time.time()
    assert time_left_s(None) is None
    assert time_left_s("1h", {"VERNIER_STARTED_S": str(now - 7200)}) < -3599
    assert 0 < time_left_s("100d", {}) < 100 * 86_400
    assert 3599 - 60 < time_left_s("auto", {"SLURM_JOB_END_TIME": str(int(now) + 3600)}) <= 3600
    with pytest.raises(ConfigError, match="SLURM_JOB_END_TIME is missing"):
        time_left_s("auto", {})


def test_signals_are_forwarded_also_to_a_process_that_starts_later_and_kill_none_that_has_no_handlers() -> None:
    """Handlers take a while: the child is ready when it says so, and would be dead if the signal were not blocked.

    In a process of its own: every process that it started gets the signal.
    """
    child = (
        "import signal, time; time.sleep(0.5); signal.signal(signal.SIGTERM, lambda *_: exit(75)); "
        "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM]); time.sleep(600)"
    )
    launcher = (
        "import os, signal, subprocess, sys\n"
        "from vernier.engine.processes import launch\n"
        "with launch._forwarded_signals():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        f"    later = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "    sys.exit(later.wait(timeout=120))"
    )
    assert subprocess.run([sys.executable, "-c", launcher], timeout=240, check=False).returncode == 75


# ------------------------------------------------------------------------------------------------ real launchers


@slow
def test_a_signal_while_local_processes_start_gives_75_and_one_line(shapes: Path, tmp_path: Path) -> None:
    """Both processes are stuck in an import; the launcher gets the signal."""
    out, ranks = tmp_path / "runs", tmp_path / "ranks"
    ranks.mkdir()
    mark = f"open({str(ranks)!r} + '/' + os.environ['RANK'], 'w').close()"
    (tmp_path / "simplejpeg.py").write_text(
        f"import os, time\nif 'RANK' in os.environ:\n    {mark}\n    time.sleep(600)\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    words = command(*arguments(shapes, out, "--procs", "2"))
    run = subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: len(list(ranks.iterdir())) == 2, run)
        run.terminate()
        _, err = run.communicate(timeout=240)
    finally:
        run.kill()
    assert run.returncode == 75, err
    assert [line.split(" before")[0] for line in err.splitlines()] == ["vernier: stopped by SIGTERM"]
    assert not out.exists()


@slow
def test_a_signal_to_one_process_at_the_start_ends_all_with_75(shapes: Path, tmp_path: Path, start: Start) -> None:
    """Rank 1 gets it when there is a run directory: rank 0 is then reading the first batch, or training."""
    out = tmp_path / "runs"
    first, second = start_by_hand(start, out, [shapes, shapes])
    wait_for(lambda: out.is_dir() and list(out.iterdir()), first.process)
    second.process.terminate()
    codes = [run.wait() for run in (first, second)]
    assert [code for code, _ in codes] == [75, 75], codes


@slow
def test_a_signal_to_one_process_while_training_ends_all_with_75(shapes: Path, tmp_path: Path, start: Start) -> None:
    first, second = start_by_hand(start, tmp_path / "runs", [shapes, shapes])
    wait_for(lambda: first.events("step"), first.process)
    second.process.terminate()
    codes = [run.wait() for run in (first, second)]
    assert [code for code, _ in codes] == [75, 75], codes
    assert first.status()["status"] == "stopped"


@slow
def test_an_error_of_one_local_process_is_printed_once(shapes: Path, tmp_path: Path, start: Start) -> None:
    """An image that rank 1 has to read in its first step is broken, and none may be."""
    out, broken = tmp_path / "runs", tmp_path / "data"
    shutil.copytree(shapes, broken)
    images = sorted((broken / "train").glob("*/*.jpg"))
    order = TrainOrder(samples=len(images), seed=1, global_batch=16, accumulation=1, repeats=1, world=2, rank=1)
    images[int(order.indices(0, 0, 0)[0])].write_text("no image")
    run = start(command(*arguments(broken, out, "--procs", "2", "--max-bad-images", "0")), out)
    code, output = run.wait()
    assert code == 1, output
    errors = [line for line in output.splitlines() if line.startswith("vernier: ")]
    assert len(errors) == 1, output
    assert re.match(r"vernier: .*rank 1 of (2|this run) on \S+ failed: Cannot read the image", errors[0]), output
    assert not any(psutil.pid_exists(pid) for pid in run.pids())
    assert run.status()["status"] == "crashed"


@slow
def test_torchrun_restarts_a_killed_group_and_ends_where_an_undisturbed_one_does(
    shapes: Path, tmp_path: Path, start: Start
) -> None:
    out = tmp_path / "runs"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=2"]
    run = start([*torchrun, "-m", "vernier", *arguments(shapes, out, "--max-steps", "300")], out)
    wait_for(lambda: len(run.events("checkpoint")) >= 1 and run.events("step"), run.process)
    os.kill(run.pids()[1], signal.SIGKILL)
    code, output = run.wait()
    assert code == 0, output
    begun = run.events("start")
    assert [e["restarts"] for e in begun] == [0, 1]
    assert begun[1]["resumed_from"] >= 20
    assert run.status()["status"] == "finished"
    assert run.status()["summary"]["step"] == 300
    whole = start(
        command(*arguments(shapes, tmp_path / "whole", "--max-steps", "300", "--procs", "2")), tmp_path / "whole"
    )
    code, output = whole.wait()
    assert code == 0, output
    last = "checkpoints/step-00000300/model.safetensors"
    assert (run.run() / last).read_bytes() == (whole.run() / last).read_bytes()  # to the last bit


@pytest.mark.skipif(
    shutil.which("mpirun") is None, reason="Open MPI's mpirun is not here (apt-get install openmpi-bin)"
)
@slow
def test_mpirun_makes_one_run(shapes: Path, tmp_path: Path, start: Start) -> None:
    out = tmp_path / "runs"
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]
    run = start([*mpirun, *command(*arguments(shapes, out, "--max-steps", "12"))], out)
    code, output = run.wait()
    assert code == 0, output
    assert [p["launcher"] for p in run.events("start")[0]["processes"]] == ["openmpi", "openmpi"]
    assert run.status()["summary"]["step"] == 12


@pytest.mark.skipif(
    shutil.which("mpiexec.hydra") is None, reason="MPICH's mpiexec.hydra is not here (apt-get install mpich)"
)
@slow
def test_hydra_makes_one_run_also_through_a_shell(shapes: Path, tmp_path: Path, start: Start) -> None:
    out = tmp_path / "runs"
    shell = ["sh", "-c", '"$@"; exit $?', "sh"]
    run = start(["mpiexec.hydra", "-n", "2", *shell, *command(*arguments(shapes, out, "--max-steps", "12"))], out)
    code, output = run.wait()
    assert code == 0, output
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


@slow
def test_srun_makes_one_run(shapes: Path, tmp_path: Path, start: Start) -> None:
    if why := _slurm():
        pytest.skip(why)
    out = tmp_path / "runs"
    run = start(["srun", "-n", "2", *command(*arguments(shapes, out, "--max-steps", "12"))], out)
    code, output = run.wait()
    assert code == 0, output
    assert [p["launcher"] for p in run.events("start")[0]["processes"]] == ["slurm", "slurm"]
    assert run.status()["summary"]["step"] == 12


@pytest.mark.slow
def test_messages_of_the_first_process_can_be_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages come line by line, without the colours that a notebook asks for; results, see tests/api."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    lines: list[str] = []
    ended = run_local(1, ["recipes", "no-such"], capture=True, on_line=lines.append)
    assert (ended.code, ended.stopped_by) == (2, None)
    assert ended.reason.startswith("There is no recipe")
    assert lines == [f"vernier: {ended.reason}"]
    assert os.environ["FORCE_COLOR"] == "1"
