import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from vernier.engine.processes.affinity import (
    _bound_by_launcher,
    _core_share,
    _own_cores,
    _parse_core_list,
    _physical_cores,
    bind_cores,
)
from vernier.engine.processes.launch import Topology


def host(folder: Path, *, nodes: Sequence[str], siblings: Sequence[Sequence[int]] = ()) -> Path:
    """/sys/devices/system of a host with these cores by NUMA node, and these hyper-threads of a core."""
    for node, cores in enumerate(nodes):
        (folder / f"node/node{node}").mkdir(parents=True)
        (folder / f"node/node{node}/cpulist").write_text(cores + "\n")
    for threads in siblings:
        for core in threads:
            topology = folder / f"cpu/cpu{core}/topology"
            topology.mkdir(parents=True)
            (topology / "thread_siblings_list").write_text(",".join(map(str, threads)) + "\n")
    return folder


def test_every_core_is_in_one_share() -> None:
    shares = [_core_share([(core,) for core in range(7)], part, 3) for part in range(3)]
    assert sorted(core for mine in shares for (core,) in mine) == list(range(7))
    assert all(len(s) in (2, 3) for s in shares)
    assert [_core_share([(4,), (5,)], part, 3) for part in range(3)] == [[(4,)], [(5,)], [(4,)]]


def test_cores_of_one_numa_node_stay_together(tmp_path: Path) -> None:
    ordered = _physical_cores(list(range(8)), host(tmp_path, nodes=("0-1,4-5", "2-3,6-7")))
    assert [core for (core,), _ in ordered] == [0, 1, 4, 5, 2, 3, 6, 7]
    assert [node for _, node in ordered] == [0] * 4 + [1] * 4
    assert _physical_cores([3, 1], tmp_path / "absent") == [((1,), None), ((3,), None)]
    assert _parse_core_list("0-2,8\n") == [0, 1, 2, 8]


@pytest.fixture
def two_sockets(tmp_path: Path) -> list[tuple[tuple[int, ...], int | None]]:
    """2 x 56 cores with hyper-threads: 0 to 55 and 112 to 167 are the first socket."""
    folder = host(
        tmp_path, nodes=("0-55,112-167", "56-111,168-223"), siblings=[(core, core + 112) for core in range(112)]
    )
    return _physical_cores(list(range(224)), folder)


def test_no_two_processes_share_a_physical_core(two_sockets: list[tuple[tuple[int, ...], int | None]]) -> None:
    shares = [_own_cores(two_sockets, rank, [None] * 8) for rank in range(8)]
    assert [len(share) for share in shares] == [14] * 8
    assert len({core for share in shares for pair in share for core in pair}) == 224
    assert shares[0] == [(core, core + 112) for core in range(14)]


def test_a_process_is_on_the_node_of_its_device(two_sockets: list[tuple[tuple[int, ...], int | None]]) -> None:
    nodes: list[int | None] = [1, 1, 0, 0, 1, 1, 0, 0]
    shares = [_own_cores(two_sockets, rank, nodes) for rank in range(8)]
    for share, node in zip(shares, nodes, strict=True):
        assert {own for core, own in two_sockets if core in share} == {node}
    assert len({core for share in shares for pair in share for core in pair}) == 224
    # A node without a core that this process may use.
    assert _own_cores([((0,), 0), ((1,), 0)], 1, [0, 5]) == [(1,)]


def test_a_limit_takes_whole_cores_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = host(tmp_path, nodes=("0-3",), siblings=[(0, 2), (1, 3)])
    monkeypatch.setattr("vernier.engine.processes.affinity._physical_cores.__defaults__", (folder,))
    monkeypatch.setattr("vernier.engine.processes.affinity.allowed_cores", lambda: [0, 1, 2, 3])
    bound: list[list[int]] = []
    monkeypatch.setattr("vernier.engine.processes.affinity.run_on_cores", bound.append)
    assert bind_cores(Topology(), 2) == [0, 1]
    assert bind_cores(Topology(), 3) == [0, 1, 2]
    assert bound == [[0, 1], [0, 1, 2]]


def test_a_process_is_bound_to_its_share() -> None:
    before = os.sched_getaffinity(0)
    try:
        mine = bind_cores(Topology(rank=1, world=2, local_rank=1, local_world=2), max_cpus=1)
        assert len(mine) == 1
        assert os.sched_getaffinity(0) == set(mine)
    finally:
        os.sched_setaffinity(0, before)


def test_cores_bound_by_mpirun_are_kept() -> None:
    bound = Topology(rank=0, world=2, local_world=2, launcher="openmpi")
    assert _bound_by_launcher(bound, [0]) == ((os.cpu_count() or 1) > 1)
    assert not _bound_by_launcher(Topology(local_world=2, world=2, launcher="torchrun"), [0])
