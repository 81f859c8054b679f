"""What `plan` takes of a measured network."""

from vernier.lab.records.links import LinkResult, LinkRow
from vernier.records.statistics import Estimate


def row(what: str, where: str, size_bytes: int, us: float, gb_s: float) -> LinkRow:
    time = Estimate(us, None, None, 1, "once")
    return LinkRow(what=what, where=where, processes=4, bytes=size_bytes, us=time, gb_s=gb_s)


def test_bandwidth_is_of_the_largest_sum_and_latency_of_the_smallest_message() -> None:
    rows = (
        row("all-reduce", "within hosts", 2048, 9.0, 3.0),
        row("all-reduce", "within hosts", 1024, 8.0, 7.0),
        row("point-to-point", "within hosts", 2048, 6.0, 1.0),
        row("point-to-point", "within hosts", 1024, 5.0, 1.0),
        row("all-gather", "between hosts", 4096, 1.0, 99.0),
        row("all-reduce", "between hosts", 1024, 20.0, 0.5),
    )
    result = LinkResult(device="cpu", backend="gloo", processes=4, hosts=2, rows=rows)
    # What was not measured, such as a latency between hosts here, is not there.
    assert result.network() == {"per_host": 2, "link_gb_s": 3.0, "link_us": 5.0, "host_gb_s": 0.5}
