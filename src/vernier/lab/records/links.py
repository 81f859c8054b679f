"""What `vernier bench link` measured: time and bandwidth by operation and message size, and the file it writes."""

from vernier.frozen import frozen
from vernier.records.statistics import Estimate


@frozen
class LinkRow:
    """One operation at one message size. `where` is within or between hosts, `bytes` what each process contributes."""

    what: str
    where: str
    processes: int
    bytes: int
    us: Estimate
    gb_s: float


@frozen
class LinkResult:
    """All rows, with the kind of the devices and what connects them."""

    device: str
    backend: str
    processes: int
    hosts: int
    rows: tuple[LinkRow, ...]

    def network(self) -> dict[str, float]:
        """What `plan` needs of a network: bandwidths of the largest all-reduce, latencies of the smallest message."""
        figures: dict[str, float] = {"per_host": self.processes // self.hosts}
        for row in sorted(self.rows, key=lambda row: row.bytes):
            name = "link" if row.where == "within hosts" else "host"
            if row.what == "all-reduce":
                figures[f"{name}_gb_s"] = row.gb_s
            elif row.what == "point-to-point":
                figures.setdefault(f"{name}_us", row.us.value)
        return figures
