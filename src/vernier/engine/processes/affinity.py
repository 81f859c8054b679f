"""Which cores a process computes on: those it may use, shared out between the processes of a host, near memory kept near."""

import os
import re
from pathlib import Path

from vernier.engine.processes.launch import Topology

NODES = Path("/sys/devices/system/node")


def allowed() -> list[int]:
    """The cores this process may run on."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def cores_of(text: str) -> list[int]:
    """`0-2,8` as the kernel writes it."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def by_memory(cores: list[int], nodes: Path = NODES) -> list[int]:
    """The same cores, those that share a memory (a NUMA node) next to each other."""
    lists = sorted(nodes.glob("node[0-9]*/cpulist"), key=lambda p: int(re.sub(r"\D", "", p.parent.name)))
    order = [core for path in lists for core in cores_of(path.read_text())]
    place = {core: at for at, core in enumerate(order)}
    return sorted(cores, key=lambda core: (place.get(core, len(order)), core))


def share(cores: list[int], part: int, parts: int) -> list[int]:
    """One of `parts` even, contiguous shares; with more parts than cores, one core each in turn."""
    if parts > len(cores):
        return [cores[part % len(cores)]]
    begin, end = part * len(cores) // parts, (part + 1) * len(cores) // parts
    return cores[begin:end]


def already_bound(found: Topology, cores: list[int]) -> bool:
    """Whether mpirun or srun has given this process cores of its own."""
    return found.launcher in ("slurm", "openmpi", "pmi") and len(cores) < (os.cpu_count() or 1)


def take_cores(found: Topology, max_cpus: int | None) -> list[int]:
    """Keep this process to its share of the host's cores, at most `max_cpus`; before it starts any thread."""
    cores = by_memory(allowed())
    mine = cores if already_bound(found, cores) else share(cores, found.local_rank, found.local_world)
    mine = mine[:max_cpus]
    if hasattr(os, "sched_setaffinity") and mine != cores:
        os.sched_setaffinity(0, mine)
    return mine
