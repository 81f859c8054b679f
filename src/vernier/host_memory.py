"""The host's memory that this process may still take: the one place that asks, for containers and limits too.

A container sees all memory of its host, and is killed when it takes more than its own limit (cgroup); a shell or a
benchmark may have set a limit for its processes (`ulimit`).
"""

from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self")
_Names = tuple[str, str, str]
_FILES: _Names = ("memory.max", "memory.current", "inactive_file")
_FILES_V1: _Names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_bytes(cgroups: Path = _CGROUPS, own: Path = _OWN) -> int:
    """Memory that this process can take now: the least of what the host, its cgroups and its own limits have left."""
    import psutil

    left = [psutil.virtual_memory().available, *_left_in_cgroups(cgroups, own), *_left_of_limits(own)]
    return int(max(0, min(left)))


def resident_bytes() -> int:
    """Memory of this process that is in use now."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def _left_in_cgroups(cgroups: Path, own: Path) -> Iterator[int]:
    """What each control group of this process has left; cached files count as free, the kernel drops them first."""
    for folder, (limit, used, cached) in _folders(cgroups, own):
        try:
            text = (folder / limit).read_text().strip()
            if text == "max":
                continue
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            yield int(text) - int((folder / used).read_text()) + int(stat.get(cached, 0))
        except (OSError, ValueError):  # no such group is visible here, or its files have another form
            continue


def _folders(cgroups: Path, own: Path) -> Iterator[tuple[Path, _Names]]:
    """Folders of this process's control groups, from its own up to the root, with the names of their files."""
    try:
        lines = (own / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, names = (cgroups / "memory", _FILES_V1) if controllers else (cgroups, _FILES)
        folder = root / path.lstrip("/")
        for at in (folder, *folder.parents):
            yield at, names
            if at == root:
                break


def _left_of_limits(own: Path) -> Iterator[int]:
    """What the limits on data and address space of this process have left."""
    try:
        import resource

        status = dict(line.split(":", 1) for line in (own / "status").read_text().splitlines() if ":" in line)
    except (ImportError, OSError):
        return
    for kind, name in ((resource.RLIMIT_DATA, "VmData"), (resource.RLIMIT_AS, "VmSize")):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY and name in status:
            yield limit - int(status[name].split()[0]) * 1024
