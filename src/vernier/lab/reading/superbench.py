"""Reads the results of SuperBench, with which fleets are accepted: JSON lines, one object per node.

A key is a benchmark, its metric, and the device behind a colon (`gemm-flops/fp64_flops:3`); without a device it is a
figure of the whole node. Several benchmarks are in one file: the user names the metric.
"""

import re
from collections.abc import Iterator

from vernier.store import parse_json

from .csv_tables import CsvRow

_KEY = re.compile(r"^(?P<metric>[^/]+/.+?)(:(?P<device>\d+))?$")
# As SuperBench documents them; other metrics have no unit that their names tell.
_UNITS = {"step_?time": "ms", "throughput": "samples/s", "flops": "GFLOP/s", "_bw$": "GB/s"}


def read_superbench(text: str) -> list[CsvRow] | None:
    """One row per device, with a column per metric; None if these are not SuperBench's results."""
    rows: list[CsvRow] = []
    for line in filter(str.strip, text.splitlines()):
        try:
            tree = parse_json(line)
        except ValueError:
            return None
        if not isinstance(tree, dict) or "node" not in tree or not any(_KEY.match(key) for key in tree):
            return None
        rows += _devices(tree)
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in names} for row in rows] or None


def _devices(tree: dict[str, object]) -> Iterator[CsvRow]:
    node, devices = str(tree["node"]), dict[str, dict[str, str | int | float | None]]()
    for key, value in tree.items():
        match = _KEY.match(key)
        if match is None or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        name = node if match["device"] is None else f"{node}-{match['device']}"
        devices.setdefault(name, {"device": name, "host": node})[match["metric"]] = value
    yield from devices.values()


def unit_of_superbench(metric: str) -> str | None:
    """The unit of a metric by its name; None for other columns."""
    return next((unit for name, unit in _UNITS.items() if "/" in metric and re.search(name, metric, re.I)), None)
