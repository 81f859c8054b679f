"""Hosts made of namespaces: each has its own network, name, processes and /etc/hosts, and all share the disk.

Root only. Cables lead to a `switch` process, whose conditions a test changes.
"""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import psutil

from .switch import Conditions

PROGRAMS = ("ip", "unshare", "nsenter", "mount", "hostname")
START_S = 30.0
_SPACES = ("--net", "--uts", "--pid", "--mount")
_WAIT = "cat -"
"""A host's first process waits for this, and reaps orphans; it ends with its input, and so with who made the host."""


def why_not() -> str:
    """Why hosts cannot be made here; empty when they can."""
    if os.geteuid() != 0:
        return "hosts are made of namespaces, which needs root"
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        return f"hosts need the programs of iproute2 and util-linux: no {missing[0]}"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "hosts are joined by TAP interfaces: /dev/net/tun is missing"
    done = subprocess.run(["unshare", *_SPACES, "--fork", "true"], capture_output=True, text=True)
    return f"namespaces are not permitted: {done.stderr.strip()}" if done.returncode else ""


class Host:
    """One host. Its commands are started by `command`, as `ssh` would."""

    def __init__(self, number: int, names: Path) -> None:
        """`names` has the files of /etc that it has for itself."""
        self.number, self.name = number, f"node{number}"
        self.address = f"10.77.0.{number}"
        mounts = [f"mount --bind {shlex.quote(str(path))} /etc/{path.name}" for path in sorted(names.iterdir())]
        script = " && ".join([f"hostname {self.name}", *mounts, "echo ready", _WAIT])
        self._unshare = subprocess.Popen(
            ["unshare", *_SPACES, "--fork", "--mount-proc", "--kill-child", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # where unshare complains about being ended
            text=True,
            start_new_session=True,
        )
        assert self._unshare.stdout is not None
        assert self._unshare.stdout.readline() == "ready\n", f"{self.name} could not be made"
        (self._first,) = [child.pid for child in psutil.Process(self._unshare.pid).children()]

    def plug_in(self, tap: str, *, ipv6_only: bool) -> None:
        """Move the interface here; both families have an address unless only IPv6 is wanted."""
        _run(["ip", "link", "set", tap, "netns", str(self._first)])
        lines = [f"link set {tap} name eth0", f"link set eth0 address 02:00:00:00:00:{self.number:02x}"]
        lines += [] if ipv6_only else [f"addr add {self.address}/24 dev eth0"]
        lines += [f"addr add fd77::{self.number}/64 dev eth0 nodad", "link set eth0 up", "link set lo up"]
        _run(self.command("ip", "-batch", "-"), "\n".join(lines))

    def command(self, *words: str) -> list[str]:
        """The command that runs these words on this host, in the current folder, with the caller's variables."""
        return ["nsenter", "--target", str(self._first), *_SPACES, f"--wdns={Path.cwd()}", *words]

    def network_command(self, *words: str) -> list[str]:
        """With the network and the name of this host, but among the processes outside: they can start others."""
        return ["nsenter", "--target", str(self._first), "--net", "--uts", *words]

    def give_up_after(self, retries: int) -> None:
        """How often TCP repeats what nobody confirms: 15 times by default, a quarter of an hour; 5 times, 13 s."""
        _run(self.command("sh", "-c", f"echo {retries} > /proc/sys/net/ipv4/tcp_retries2"))

    def processes(self) -> list[str]:
        """Command lines of what runs here, without the first process and what it waits for."""
        inside = Path(f"/proc/{self._first}/ns/pid").readlink()
        lines = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                own = Path(f"/proc/{process.pid}/ns/pid").readlink() == inside
                idle = process.pid == self._first or process.cmdline() == _WAIT.split()
                if own and not idle and process.status() != psutil.STATUS_ZOMBIE:
                    lines.append(shlex.join(process.cmdline()))
        return lines

    @property
    def pid(self) -> int:
        """Its first process, whose namespaces are the host."""
        return self._first

    def switch_off(self) -> None:
        """Ends every process at once, as a power cut does."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._first, 9)
        self._unshare.wait()


class Hosts:
    """Hosts and the network between them. Used by `with made_hosts(...)`."""

    def __init__(self, hosts: list[Host], switch: "subprocess.Popen[str]") -> None:
        self._hosts, self._switch = hosts, switch
        self._conditions = Conditions()

    def __getitem__(self, number: int) -> Host:
        return self._hosts[number - 1]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts)

    def change(self, **conditions: object) -> None:
        """New conditions of the network, in force when this returns; the others stay."""
        self._conditions = replace(self._conditions, **conditions)  # type: ignore[arg-type]
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        self._switch.stdin.write(json.dumps(asdict(self._conditions)) + "\n")
        self._switch.stdin.flush()
        assert self._switch.stdout.readline() == "changed\n", "the switch has ended"

    def orphans(self, within_s: float = 30.0) -> dict[str, list[str]]:
        """What still runs on each host after this time; empty as soon as nothing does."""
        deadline_s = time.monotonic() + within_s
        while running := {host.name: lines for host in self._hosts if (lines := host.processes())}:
            if time.monotonic() > deadline_s:
                return running
            time.sleep(0.1)
        return {}


@contextlib.contextmanager
def made_hosts(count: int, *, ipv6_only: bool = False) -> Iterator[Hosts]:
    """Hosts node1, node2 ... that reach each other by these names, while entered."""
    taps = [f"vrn{os.getpid() % 1_000_000}-{number}" for number in range(1, count + 1)]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vernier-hosts-")))
        prefix = "fd77::" if ipv6_only else "10.77.0."
        lines = ["127.0.0.1 localhost", *(f"{prefix}{number} node{number}" for number in range(1, count + 1))]
        (folder / "hosts").write_text("\n".join(lines) + "\n")
        # The machine's name server cannot be reached from here, and asking it would take seconds.
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        hosts: list[Host] = []
        stack.callback(lambda: [host.switch_off() for host in hosts])
        for number in range(1, count + 1):
            hosts.append(Host(number, folder))
        switch = stack.enter_context(_switch(taps))
        for host, tap in zip(hosts, taps, strict=True):
            host.plug_in(tap, ipv6_only=ipv6_only)
        yield Hosts(hosts, switch)


@contextlib.contextmanager
def _switch(taps: list[str]) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, str(Path(__file__).with_name("switch.py")), *taps]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n", "the switch could not be started"
        yield process
    finally:
        process.stdin.close()
        process.wait(timeout=START_S)


def _run(command: list[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=START_S)
    assert done.returncode == 0, f"{shlex.join(command)}: {done.stderr}"
