"""`vernier bench link`: every operation at every size in real processes, within hosts and between them; and `plan`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from tests.integration.slurm import free_port
from vernier.devices.cpu import Cpu
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.errors import ConfigError
from vernier.lab.measured.links import measure_links
from vernier.lab.records.links import LinkResult
from vernier.store import read_record

OPERATIONS = {"all-reduce", "all-gather", "point-to-point"}
COMMAND = ["bench", "link", "--sizes-kib", "1,64", "--repeats", "6", "--device", "cpu"]


@pytest.mark.slow
def test_links_within_a_host_are_measured_and_plan_takes_them(
    vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    file = tmp_path / "link.json"
    done = vernier_here(*COMMAND, "--procs", "2", "--out", str(file), "--json")
    assert done.code == 0, done.err
    result = read_record(LinkResult, file)
    assert json.loads(done.out)["processes"] == 2
    assert (result.backend, result.processes, result.hosts) == ("gloo", 2, 1)
    assert {(row.what, row.where, row.bytes) for row in result.rows} == {
        (what, "within hosts", size) for what in OPERATIONS for size in (1024, 65536)
    }
    for row in result.rows:
        assert row.us.n == 6
        assert row.us.low is not None
        assert row.us.low <= row.us.value
        # Twice the message, less the own part, is the message itself with two processes.
        assert row.gb_s == pytest.approx(row.bytes / row.us.value / 1e3)
    largest = next(row for row in result.rows if (row.what, row.bytes) == ("all-reduce", 65536))
    plan = ("plan", "shapes-quick", "--bench", "100", "--batch", "32", "--devices", "2", "--json", "--link", str(file))
    network = json.loads(vernier_here(*plan).out)["network"]
    assert (network["per_host"], network["link_gb_s"]) == (2, largest.gb_s)
    assert network["host_gb_s"] == 12.5  # not measured: that of the network
    given = json.loads(vernier_here(*plan, "--link-gb-s", "7").out)["network"]
    assert (given["link_gb_s"], given["link_us"]) == (7, network["link_us"])
    missing = vernier_here(*plan[:-1], str(tmp_path / "none.json"))
    assert missing.code == 2
    assert "--link" in missing.err
    assert "vernier bench link --procs 2 --out FILE" in missing.err


@pytest.mark.slow
def test_links_between_hosts_are_measured(tmp_path: Path) -> None:
    file, port = tmp_path / "link.json", free_port()
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "OMP_NUM_THREADS": "1"}
    world |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "vernier", *COMMAND, "--out", str(file)],
            env=os.environ | world | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in (0, 1)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert "2 x cpu on 2 hosts, gloo" in outputs[0]
    result = read_record(LinkResult, file)
    assert {(row.what, row.where) for row in result.rows} == {(what, "between hosts") for what in OPERATIONS}
    network = result.network()
    assert network["per_host"] == 1
    assert {"host_gb_s", "host_us"} <= network.keys()
    assert "link_gb_s" not in network


def test_one_process_or_a_device_without_collectives_has_no_links() -> None:
    world = World(Topology())
    with pytest.raises(ConfigError) as caught:
        measure_links(world, Cpu(), [1], 6)
    assert caught.value.works == [("procs", 2)]

    class Alone(Cpu):
        name = "mps"
        backend = None

    world.size = 2
    with pytest.raises(ConfigError) as caught:
        measure_links(world, Alone(), [1], 6)
    assert caught.value.given == {"machine.device": "mps"}
