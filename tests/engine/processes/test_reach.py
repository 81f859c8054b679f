"""Hosts that cannot connect are named before the first collective. Several hosts are tried in tests/hosts."""

import os
import socket
import threading
from collections.abc import Iterator

import pytest
import torch.distributed as dist

from vernier.engine.processes import reach
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.reach import connect_hosts
from vernier.errors import ConfigError, RunFailed


def rank(number: int, world: int = 2) -> Topology:
    return Topology(rank=number, world=world, host=f"node{number + 1}", port=29500, launcher="torchrun")


@pytest.fixture(autouse=True)
def interface() -> Iterator[None]:
    """The choice is left to Vernier, and forgotten afterwards."""
    before = os.environ.pop("GLOO_SOCKET_IFNAME", None)
    yield
    os.environ.pop("GLOO_SOCKET_IFNAME", None)
    os.environ.update({} if before is None else {"GLOO_SOCKET_IFNAME": before})


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def absent_rank(store: dist.HashStore, number: int) -> None:
    """A process that said where it listens, behind a firewall that lets nobody through."""
    store.set(f"address/{number}", "127.0.0.1")
    store.set(f"listening/{number}", f"node{number + 1} 127.0.0.1 {closed_port()}")
    store.add("tried", 1)


def test_three_ranks_connect_and_the_interface_is_the_one_to_the_rendezvous() -> None:
    store = dist.HashStore()
    others = [threading.Thread(target=connect_hosts, args=(store, rank(n, 3), 5.0)) for n in (1, 2)]
    for other in others:
        other.start()
    connect_hosts(store, rank(0, 3), 5.0)
    for other in others:
        other.join()
    assert int(store.add("tried", 0)) == 3
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    assert not [t for t in threading.enumerate() if t.name == "vernier-reach" and t.join(10) is None and t.is_alive()]


def test_both_hosts_without_a_connection_are_named_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_READ_S", 0.0)
    store = dist.HashStore()
    absent_rank(store, 1)
    words = r"rank 0 on node1 \(127.0.0.1\) cannot connect to rank 1 on node2 .*refused.*through the firewall"
    with pytest.raises(RunFailed, match=words):
        connect_hosts(store, rank(0), 5.0)


def test_ranks_that_never_come_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "LATE_S", 0.2)
    words = (
        r"rank 0 of 3 on node1 has waited for 0.2 s, and ranks 1, 2 did not come to the rendezvous at 127.0.0.1:29500"
    )
    with pytest.raises(RunFailed, match=words):
        connect_hosts(dist.HashStore(), rank(0, 3), 0.1)


def test_an_interface_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth99")
    with pytest.raises(ConfigError, match=r"eth99: .* has no such network interface.* It has .*lo"):
        connect_hosts(dist.HashStore(), rank(0), 5.0)


def test_a_name_that_leads_to_loopback_is_replaced_by_the_way_to_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Debian, whose /etc/hosts gives the host's own name 127.0.1.1."""
    towards: list[str] = []

    def address_towards(address: str, port: int) -> str:
        towards.append(address)
        return "127.0.1.1" if len(towards) == 1 else "10.77.0.1"

    monkeypatch.setattr(reach, "_address_towards", address_towards)
    store = dist.HashStore()
    store.set("address/1", "10.77.0.2")
    assert reach._own_address(store, rank(0), 5.0) == "10.77.0.1"
    assert towards == ["127.0.0.1", "10.77.0.2"]
