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
    gb_s: Estimate


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
        found = dict[str, float]()
        for where, name in (("within hosts", "link"), ("between hosts", "host")):
            sums, messages = (
                sorted((row for row in self.rows if (row.where, row.what) == (where, what)), key=lambda row: row.bytes)
                for what in ("all-reduce", "point-to-point")
            )
            if sums and messages:
                found |= {f"{name}_gb_s": sums[-1].gb_s.value, f"{name}_us": messages[0].us.value}
        return found | {"per_host": self.processes // self.hosts}

    def table(self) -> list[dict[str, str]]:
        """The rows as people read them, with 95 % intervals."""
        return [
            {
                "operation": row.what,
                "where": row.where,
                "processes": str(row.processes),
                "KiB": f"{row.bytes >> 10:,}",
                "us": _with_interval(row.us),
                "GB/s": _with_interval(row.gb_s),
            }
            for row in self.rows
        ]


def _with_interval(estimate: Estimate) -> str:
    known = estimate.low is not None and estimate.high is not None
    return f"{estimate.value:.4g}" + (f" ({estimate.low:.4g} to {estimate.high:.4g})" if known else "")
