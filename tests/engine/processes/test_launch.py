"""What launchers say about a process, and what is made of it."""

import os
from pathlib import Path

import pytest

from vernier.engine.processes.affinity import (
    bind_cores,
    bound_by_launcher,
    core_share,
    order_by_numa_node,
    parse_core_list,
)
from vernier.engine.processes.launch import Topology, first_host, process_count, topology
from vernier.errors import ConfigError

TORCHRUN = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "head", "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_USE_AGENT_STORE": "True",
}  # fmt: skip
SLURM = {
    "SLURM_PROCID": "9", "SLURM_LOCALID": "1", "SLURM_NODEID": "2", "SLURM_STEP_NUM_TASKS": "11", "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_STEP_NODELIST": "gpu[007-009]",
}  # fmt: skip
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "12345",
}  # fmt: skip


def test_without_a_launcher_a_process_is_alone() -> None:
    found = topology({"PATH": "/bin"})
    assert (found.rank, found.world, found.launcher) == (0, 1, "single")
    assert found.first


def test_torchrun() -> None:
    found = topology(TORCHRUN)
    assert (found.rank, found.world, found.local_rank, found.local_world) == (5, 8, 1, 4)
    assert (found.address, found.port, found.launcher) == ("head", 29500, "torchrun")
    assert found.launcher_serves_store
    assert found.restarts == 2


def test_slurm_meets_on_the_first_host_and_counts_the_tasks_of_its_own() -> None:
    found = topology(SLURM)
    assert (found.rank, found.world, found.local_rank, found.local_world) == (9, 11, 1, 3)
    assert found.address == "gpu007"
    assert found.port == topology({**SLURM, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}).port
    assert found.port != topology({**SLURM, "SLURM_JOB_ID": "78"}).port


def test_an_sbatch_script_without_srun_is_one_process() -> None:
    assert topology({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}).launcher == "single"


def test_torchrun_inside_srun_wins() -> None:
    assert topology({**SLURM, **TORCHRUN}).launcher == "torchrun"


def test_open_mpi_on_one_host_meets_there() -> None:
    found = topology(OPENMPI)
    assert (found.rank, found.world, found.address, found.launcher) == (1, 2, "127.0.0.1", "openmpi")


def test_open_mpi_over_hosts_has_to_be_told_where_to_meet() -> None:
    several = {**OPENMPI, "OMPI_COMM_WORLD_SIZE": "64", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}
    with pytest.raises(ConfigError, match="-x MASTER_ADDR"):
        topology(several)
    assert topology({**several, "MASTER_ADDR": "10.0.0.1"}).address == "10.0.0.1"


def test_pmi() -> None:
    found = topology({"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "3", "MPI_LOCALNRANKS": "4"})
    assert (found.rank, found.world, found.local_rank, found.launcher) == (3, 4, 3, "pmi")


def test_pmi_processes_of_a_job_meet_at_one_port() -> None:
    """Hydra's variables, on one host: the processes differ in all but the size, and in which pipe leads to their proxy."""
    hydra = {"PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}
    ports = [topology({**hydra, "PMI_RANK": r, "MPI_LOCALRANKID": r, "PMI_FD": fd}).port for r, fd in (("0", "6"), ("1", "8"))]  # fmt: skip
    assert ports[0] == ports[1]
    assert topology({**hydra, "PMI_RANK": "0", "MPI_LOCALRANKID": "0", "PMI_JOBID": "7"}).port != ports[0]


def test_pmi_over_hosts_meets_where_it_is_told_to() -> None:
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
def test_half_a_launcher_is_an_error_for_people(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"torchrun|impossible"):
        topology(environ)


def test_slurm_host_lists() -> None:
    assert [first_host(text) for text in ("a1", "a1,b2", "gpu[007-9,12],x", "n[3]-ib,n4", "")] == ["a1", "a1", "gpu007", "n3", ""]  # fmt: skip


def test_procs_must_not_contradict_the_launcher() -> None:
    under = topology(TORCHRUN)
    assert process_count(1, under) == process_count(8, under) == 8
    assert process_count(3, Topology()) == 3
    with pytest.raises(ConfigError, match="torchrun started 8"):
        process_count(3, under)


def test_cores_are_shared_out_completely_and_once() -> None:
    shares = [core_share(list(range(7)), part, 3) for part in range(3)]
    assert sorted(core for mine in shares for core in mine) == list(range(7))
    assert all(len(s) in (2, 3) for s in shares)
    assert [core_share([4, 5], part, 3) for part in range(3)] == [[4], [5], [4]]


def test_parse_core_list_one_memory_stay_together(tmp_path: Path) -> None:
    for node, cores in enumerate(("0-1,4-5", "2-3,6-7")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(cores + "\n")
    ordered = order_by_numa_node(list(range(8)), tmp_path)
    assert ordered == [0, 1, 4, 5, 2, 3, 6, 7]
    assert core_share(ordered, 0, 2) == [0, 1, 4, 5]
    assert order_by_numa_node([3, 1], tmp_path / "absent") == [1, 3]
    assert parse_core_list("0-2,8\n") == [0, 1, 2, 8]


def test_a_process_keeps_to_its_cores() -> None:
    before = os.sched_getaffinity(0)
    try:
        mine = bind_cores(Topology(rank=1, world=2, local_rank=1, local_world=2), max_cpus=1)
        assert len(mine) == 1
        assert os.sched_getaffinity(0) == set(mine)
    finally:
        os.sched_setaffinity(0, before)


def test_cores_given_by_mpirun_are_left_alone() -> None:
    bound = Topology(rank=0, world=2, local_world=2, launcher="openmpi")
    assert bound_by_launcher(bound, [0]) == ((os.cpu_count() or 1) > 1)
    assert not bound_by_launcher(Topology(local_world=2, world=2, launcher="torchrun"), [0])
