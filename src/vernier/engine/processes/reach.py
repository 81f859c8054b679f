"""Whether the hosts of a run can connect to each other, found out before the first collective, by name.

Collectives connect processes by TCP ports that the system chooses. With a firewall that lets only the rendezvous
through, or on the wrong network interface, they would wait for minutes and fail without a name. `world` joins the
processes afterwards; `launch` knows where the rendezvous is.
"""

import contextlib
import ipaddress
import os
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta

import psutil
from torch.distributed import Store  # type: ignore[attr-defined]

from vernier.clock import now_s
from vernier.errors import ConfigError, RunFailed

from .launch import Topology

LATE_S = 120.0
"""Processes may start so much later than others; twice machine.rank_timeout_s where that is longer."""
CONNECT_S = 20.0
"""A connection between two hosts that takes longer is refused."""
_INTERFACE = "GLOO_SOCKET_IFNAME"
_FAILED, _TRIED = "failed", "tried"
_ASK_EVERY_S = 0.05
_READ_S = 2.0
"""The store ends with the first process, after the others have read the reason."""


def connect_hosts(store: Store, topology: Topology, patience_s: float) -> None:
    """Choose this host's network interface and try its connections. Raises RunFailed that names both hosts.

    The interface is the one that leads to the rendezvous, unless GLOO_SOCKET_IFNAME names another one.
    """
    late_s = max(LATE_S, 2 * patience_s)
    address = _own_address(store, topology, late_s)
    # gloo reads the variable when the process group is created, which comes after this.
    if interface := _interface_of(address):
        os.environ.setdefault(_INTERFACE, interface)
    with _listening(address) as port:
        peers = _exchange_texts(store, topology, "listening", f"{topology.host} {address} {port}", late_s)
        # A ring sends to the next rank, gathering and broadcasting use rank 0. All pairs would be world^2 connections.
        for rank in sorted({0, (topology.rank + 1) % topology.world} - {topology.rank}):
            host, remote, remote_port = peers[rank].split(" ")
            if why := _try_connection(remote, int(remote_port)):
                message = (
                    f"rank {topology.rank} on {topology.host} ({address}) cannot connect to rank {rank} on {host} "
                    f"({remote}, port {remote_port}): {why}. Processes connect by TCP ports that the system chooses: "
                    "let them through the firewall between these hosts, or name another network interface with "
                    f"{_INTERFACE}."
                )
                # Not raised here: the others would wait in `_wait_for_all` for a rank that has left.
                store.compare_set(_FAILED, "", message)
        _wait_for_all(store, topology, late_s)


def _own_address(store: Store, topology: Topology, late_s: float) -> str:
    """The address by which other hosts reach this one.

    Where the rendezvous is this host itself and its name leads to the loopback interface, as Debian's /etc/hosts has
    it, the way to another host tells.
    """
    if names := os.environ.get(_INTERFACE):
        own = _address_of(names.split(",")[0])  # gloo takes a list
    else:
        own = _address_towards(topology.address, topology.port)
    addresses = _exchange_texts(store, topology, "address", own, late_s)
    others = (address for address in addresses if not _is_loopback(address))
    if _is_loopback(own) and (other := next(others, None)):
        return _address_towards(other, topology.port)
    return own


def _address_towards(address: str, port: int) -> str:
    """The address of this host in the network that leads there; sends nothing."""
    for family, kind, _, _, target in socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM):
        with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
            probe.connect(target)  # UDP: only looks up the route
            return str(probe.getsockname()[0])
    raise RunFailed(f"{socket.gethostname()} has no network that leads to the rendezvous at {address}.")


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _address_of(interface: str) -> str:
    """The first address of an interface, IPv4 before IPv6, none that is valid on one cable only."""
    known = psutil.net_if_addrs()
    families = [int(socket.AF_INET), int(socket.AF_INET6)]
    entries = sorted((families.index(a.family), a.address) for a in known.get(interface, ()) if a.family in families)
    usable = [address for _, address in entries if not address.lower().startswith("fe80")]
    if not usable:
        raise ConfigError(
            f"{_INTERFACE} = {interface}: {socket.gethostname()} has no such network interface with an address. It has "
            f"{', '.join(sorted(known))}."
        )
    return usable[0]


def _interface_of(address: str) -> str | None:
    interfaces = psutil.net_if_addrs().items()
    return next((name for name, entries in interfaces if any(e.address == address for e in entries)), None)


@contextlib.contextmanager
def _listening(address: str) -> Iterator[int]:
    """While entered, accepts connections at this address; the port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # Rank 0 gets a connection from every other rank at about the same time.
    server = socket.create_server((address, 0), family=family, backlog=1024)

    def accept() -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                server.accept()[0].close()

    threading.Thread(target=accept, name="vernier-reach", daemon=True).start()
    try:
        yield int(server.getsockname()[1])
    finally:
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)  # ends the thread, which closing alone does not
        server.close()


def _try_connection(address: str, port: int) -> str:
    """Why there is no connection; empty where there is."""
    try:
        socket.create_connection((address, port), timeout=CONNECT_S).close()
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def _exchange_texts(store: Store, topology: Topology, name: str, own: str, late_s: float) -> list[str]:
    """What every rank has given. Raises RunFailed that says which have not come."""
    store.set(f"{name}/{topology.rank}", own)
    keys = [f"{name}/{rank}" for rank in range(topology.world)]
    try:
        store.wait(keys, timedelta(seconds=late_s))
    except RuntimeError as error:
        raise RunFailed(_describe_missing(store, topology, keys, late_s)) from error
    return [store.get(key).decode() for key in keys]


def _describe_missing(store: Store, topology: Topology, keys: list[str], late_s: float) -> str:
    missing = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
    ranks = f"rank{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    return (
        f"{topology.describe()} has waited for {late_s:g} s, and {ranks} did not come to the rendezvous at "
        f"{topology.rendezvous}. Look at the output of their hosts, and whether they reach that address."
    )


def _wait_for_all(store: Store, topology: Topology, late_s: float) -> None:
    """Until every rank has tried its connections. Raises RunFailed in all of them where one of them could not."""
    store.add(_TRIED, 1)
    began_s = now_s()
    while int(store.add(_TRIED, 0)) < topology.world:  # adding 0 reads the counter
        if now_s() - began_s > late_s:
            raise RunFailed(f"{topology.describe()} has waited for {late_s:g} s until the others were connected.")
        threading.Event().wait(_ASK_EVERY_S)
    if store.check([_FAILED]):
        message = store.get(_FAILED).decode()
        threading.Event().wait(0.0 if topology.launcher_serves_store or not topology.first else _READ_S)
        raise RunFailed(message)
