import os
from pathlib import Path

from vernier.engine.processes.affinity import (
    _bound_by_launcher,
    _core_share,
    _order_by_numa_node,
    _parse_core_list,
    bind_cores,
)
from vernier.engine.processes.launch import Topology


def test_every_core_is_in_one_share() -> None:
    shares = [_core_share(list(range(7)), part, 3) for part in range(3)]
    assert sorted(core for mine in shares for core in mine) == list(range(7))
    assert all(len(s) in (2, 3) for s in shares)
    assert [_core_share([4, 5], part, 3) for part in range(3)] == [[4], [5], [4]]


def test_cores_of_one_numa_node_stay_together(tmp_path: Path) -> None:
    for node, cores in enumerate(("0-1,4-5", "2-3,6-7")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(cores + "\n")
    ordered = _order_by_numa_node(list(range(8)), tmp_path)
    assert ordered == [0, 1, 4, 5, 2, 3, 6, 7]
    assert _core_share(ordered, 0, 2) == [0, 1, 4, 5]
    assert _order_by_numa_node([3, 1], tmp_path / "absent") == [1, 3]
    assert _parse_core_list("0-2,8\n") == [0, 1, 2, 8]


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
