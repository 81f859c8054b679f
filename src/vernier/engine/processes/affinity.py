"""CPU binding: the cores this process may use, split between the processes of a host, NUMA-aware."""

import os
import re
from pathlib import Path

from vernier.cores import allowed_cores, run_on_cores

from .launch import Topology

NODES = Path("/sys/devices/system/node")


def _parse_core_list(text: str) -> list[int]:
    """`0-2,8`, as the kernel writes it, as numbers."""
    cores: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return cores


def _order_by_numa_node(cores: list[int], nodes: Path = NODES) -> list[int]:
    """The same cores, those of one NUMA node next to each other."""
    lists = sorted(nodes.glob("node[0-9]*/cpulist"), key=lambda p: int(re.sub(r"\D", "", p.parent.name)))
    order = [core for path in lists for core in _parse_core_list(path.read_text())]
    position = {core: i for i, core in enumerate(order)}
    return sorted(cores, key=lambda core: (position.get(core, len(order)), core))


def _core_share(cores: list[int], part: int, parts: int) -> list[int]:
    """One of `parts` even, contiguous shares; with more parts than cores, one core each in turn."""
    # More processes than cores, as in tests: each still gets one.
    if parts > len(cores):
        return [cores[part % len(cores)]]
    begin, end = part * len(cores) // parts, (part + 1) * len(cores) // parts
    return cores[begin:end]


def _bound_by_launcher(topology: Topology, cores: list[int]) -> bool:
    """Whether mpirun or srun has already bound this process to cores of its own."""
    return topology.launcher in ("slurm", "openmpi", "pmi") and len(cores) < (os.cpu_count() or 1)


def bind_cores(topology: Topology, max_cpus: int | None) -> list[int]:
    """Bind this process to its share of the host's cores, at most `max_cpus`; call it before any thread starts."""
    cores = _order_by_numa_node(allowed_cores())
    own = (
        cores if _bound_by_launcher(topology, cores) else _core_share(cores, topology.local_rank, topology.local_world)
    )
    # After the share was taken: its first cores are on one NUMA node.
    own = own[:max_cpus]
    if own != cores:
        run_on_cores(own)
    return own
