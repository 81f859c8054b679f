"""CPU binding: the cores this process may use, split between the processes of a host.

The unit is a physical core: two processes on the two hyper-threads of one would share it. Where the nodes of the
processes' devices are known, each process gets cores of its device's NUMA node.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

from vernier.cores import allowed_cores, run_on_cores

from .launch import Topology

SYSTEM = Path("/sys/devices/system")
_Core = tuple[int, ...]
"""A physical core: the numbers of its hyper-threads."""


def _parse_core_list(text: str) -> list[int]:
    """`0-2,8`, as the kernel writes it, as numbers."""
    cores: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return cores


def _physical_cores(cores: list[int], system: Path = SYSTEM) -> list[tuple[_Core, int | None]]:
    """These cores as physical ones with their NUMA nodes, those of one node next to each other."""
    nodes = dict[int, int]()
    for path in system.glob("node/node[0-9]*/cpulist"):
        node = int(re.sub(r"\D", "", path.parent.name))
        nodes |= dict.fromkeys(_parse_core_list(path.read_text()), node)
    physical = dict[_Core, int | None]()
    for core in cores:
        threads = system / f"cpu/cpu{core}/topology/thread_siblings_list"
        siblings = _parse_core_list(threads.read_text()) if threads.exists() else [core]
        # A container may allow one of two.
        physical[tuple(c for c in siblings if c in cores)] = nodes.get(core)
    return sorted(physical.items(), key=lambda item: (item[1] is None, item[1] or 0, item[0]))


def _core_share(cores: list[_Core], part: int, parts: int) -> list[_Core]:
    """One of `parts` even, contiguous shares; with more parts than cores, one core each in turn."""
    # More processes than cores, as in tests: each still gets one.
    if parts > len(cores):
        return [cores[part % len(cores)]]
    begin, end = part * len(cores) // parts, (part + 1) * len(cores) // parts
    return cores[begin:end]


def _own_cores(physical: list[tuple[_Core, int | None]], part: int, nodes: list[int | None]) -> list[_Core]:
    """The cores of process number `part`, whose device and those of the other processes are attached to `nodes`."""
    near = [core for core, node in physical if node == nodes[part]]
    if None in nodes or not near:
        return _core_share([core for core, _ in physical], part, len(nodes))
    return _core_share(near, nodes[:part].count(nodes[part]), nodes.count(nodes[part]))


def _bound_by_launcher(topology: Topology, cores: list[int]) -> bool:
    """Whether mpirun or srun has already bound this process to cores of its own."""
    return topology.launcher in ("slurm", "openmpi", "pmi") and len(cores) < (os.cpu_count() or 1)


def bind_cores(
    topology: Topology, max_cpus: int | None, numa_node: Callable[[int], int | None] = lambda _: None
) -> list[int]:
    """Bind this process to its share of the host's cores, at most `max_cpus`; call it before any thread starts.

    `numa_node`: that of the device of each process of this host, by its number.
    """
    cores = allowed_cores()
    physical = _physical_cores(cores)
    if _bound_by_launcher(topology, cores):
        share = [core for core, _ in physical]
    else:
        nodes = [numa_node(rank) for rank in range(topology.local_world)]
        share = _own_cores(physical, topology.local_rank, nodes)
    # First one hyper-thread of each core, then the others: a limit takes whole cores as long as there are any.
    own = [core[thread] for thread in range(max(map(len, share))) for core in share if thread < len(core)][:max_cpus]
    if own != cores:
        run_on_cores(own)
    return own
