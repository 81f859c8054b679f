"""What several hosts go through, and what must come of it: each scenario trains for real and checks the outcome."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.fork_server import Forked, ForkServer, kill
from tests.conftest import command, only_run
from tests.engine.processes.running import PATIENCE_S, Running, arguments
from vernier.compat.preparing.packing import pack_shards
from vernier.data.sources import EncodedSource, open_split

from .machines import Host, Hosts, made_hosts
from .slurm import missing_programs, several_nodes

PORT = 29500
TIMEOUT_S = 10
SETTINGS = ("--set", f"machine.rank_timeout_s={TIMEOUT_S}", "--set", "machine.max_cpus=1")
AGENTS = ("--rdzv-conf", "last_call_timeout=20")
"""How long torchrun waits for hosts that come late, once it has enough of them; 30 s by default."""


class _ForkedProcess:
    """The part of subprocess.Popen that is needed to watch a session of the fork server."""

    def __init__(self, session: Forked, log: Path) -> None:
        self._session, self._log = session, log
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and not self._session.running():
            self.returncode = self._session.server.reap(self._session.pid)
        return self.returncode

    def communicate(self, timeout: float = PATIENCE_S) -> tuple[str, str]:
        deadline_s = time.monotonic() + timeout
        while self.poll() is None:
            assert time.monotonic() < deadline_s, f"still running after {timeout:g} s: {self._log.read_text()}"
            time.sleep(0.1)
        return self._log.read_text(), ""

    def kill(self) -> None:
        if self.poll() is None:
            kill(self._session.pid)


class _ForkedRank(Running):
    """One process of a training, on a host, without the seconds that importing PyTorch takes."""

    def __init__(self, server: ForkServer, training: list[str], out: Path, environ: dict[str, str], host: Host) -> None:
        self.out = out
        log = out.with_name(f"output of {host.name}")
        session = server.start(training, log, environ, host.pid)
        self.process = _ForkedProcess(session, log)  # type: ignore[assignment]


@dataclass
class Site:
    """Hosts, and folders that all of them share."""

    hosts: Hosts
    server: ForkServer
    shapes: Path
    out: Path
    runs: list[Running] = field(default_factory=list)
    disturbed_s: float = 0.0
    ended_s: float = 0.0
    """When the training had ended, where that is before the end of the scenario."""

    def start(self, host: Host, words: list[str]) -> Running:
        self.runs.append(Running(host.command(*words), self.out))
        return self.runs[-1]

    def torchrun(self, *more: str, endpoint: str = f"node1:{PORT}", nodes: str = "2", restarts: int = 0) -> None:
        """The same command on every host."""
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--rdzv-backend", "c10d"]
        where = ["--nnodes", nodes, "--rdzv-endpoint", endpoint, "--rdzv-id", "job", "--max-restarts", str(restarts)]
        training = arguments(self.shapes, self.out, *SETTINGS, *more)
        for host in self.hosts:
            self.start(host, [*launcher, *where, *AGENTS, "-m", "vernier", *training])

    def ranks(self, *more: str) -> None:
        """One process per host with the variables that Slurm or MPI would give, without a launcher that watches."""
        world = {"WORLD_SIZE": str(len(list(self.hosts))), "MASTER_ADDR": "node1", "MASTER_PORT": str(PORT)}
        for rank, host in enumerate(self.hosts):
            environ = {**world, "RANK": str(rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
            training = arguments(self.shapes, self.out, *SETTINGS, *more)
            self.runs.append(_ForkedRank(self.server, training, self.out, environ, host))

    def disturb(self, **conditions: object) -> None:
        """Change the network once the training is under way."""
        self.runs[0].under_way()
        self.disturbed_s = time.monotonic()
        self.hosts.change(**conditions)

    def ended(self, *codes: int) -> list[str]:
        """The outputs, once every host has ended with its exit code and left no process behind."""
        outcomes = [run.wait() for run in self.runs]
        outputs = [output for _, output in outcomes]
        assert [code for code, _ in outcomes] == list(codes), outputs
        assert (left := self.hosts.orphans()) == {}, left
        return outputs

    def log_of(self, rank: int) -> str:
        return (only_run(self.out) / "logs" / f"rank{rank}.log").read_text()


Scenario = Callable[[Site], None]


def by_name(site: Site) -> None:
    """torchrun, rendezvous by host name: trains to the end."""
    site.torchrun("--max-steps", "20")
    output, _ = site.ended(0, 0)
    assert "rank 1: node2" in output


def ipv6_address(site: Site) -> None:
    """torchrun, hosts without IPv4, rendezvous at an address in brackets: trains to the end."""
    site.torchrun("--max-steps", "20", endpoint=f"[fd77::1]:{PORT}")
    site.ended(0, 0)


def poor_network_then_cut(site: Site) -> None:
    """As Slurm or MPI start them: no IPv4, 10 Mbit/s, 50 ms, 1 % loss: trains. Then node2 is cut off: exit 1, named."""
    site.hosts.change(mbit_s=10, delay_ms=25, loss=0.01)
    site.ranks()
    site.disturb(cut=[2])
    output, _ = site.ended(1, 1)
    assert f"rank 1 on node2 has not answered for {TIMEOUT_S} s" in output, output
    assert site.runs[0].status()["status"] == "crashed"
    assert f"rank 0 at node1:{PORT} cannot be reached" in site.log_of(1)


def cut(site: Site) -> None:
    """torchrun, node2 is cut off: both end, exit 1, node2 is named; node2's torchrun ends when TCP gives up."""
    site.hosts[2].give_up_after(5)
    site.torchrun()
    site.disturb(cut=[2])
    output, _ = site.ended(1, 1)
    assert f"rank 1 on node2 has not answered for {TIMEOUT_S} s" in output, output
    assert "the launcher at node1:" in site.log_of(1), site.log_of(1)


def cut_of_the_rendezvous(site: Site) -> None:
    """torchrun, the host of the rendezvous is cut off: both end, exit 1, each names the other."""
    site.hosts[2].give_up_after(5)
    site.torchrun()
    site.disturb(cut=[1])
    output, _ = site.ended(1, 1)
    assert "rank 1 on node2" in output, output
    assert "the launcher at node1:" in site.log_of(1), site.log_of(1)


def packet_loss(site: Site) -> None:
    """20 % of all packets are lost from the middle of the run on: slow, but trains to the end."""
    site.ranks("--max-steps", "40", "--set", "machine.rank_timeout_s=60")
    site.disturb(loss=0.2)
    site.ended(0, 0)


def slow_link(site: Site) -> None:
    """1 Mbit/s and 200 ms from the middle of the run on: slow, but trains to the end."""
    site.ranks("--max-steps", "20", "--set", "machine.rank_timeout_s=60")
    site.disturb(mbit_s=1, delay_ms=100)
    site.ended(0, 0)


def cable_back_in_time(site: Site) -> None:
    """node2's cable is out for half of the limit: trains to the end."""
    site.ranks("--max-steps", "200")
    site.disturb(cut=[2])
    time.sleep(TIMEOUT_S / 2)
    site.hosts.change(cut=[])
    site.ended(0, 0)


def power_off_of_the_rendezvous(site: Site) -> None:
    """node1, the host of the rendezvous, loses its power: node2 ends, exit 1, node1 is named."""
    site.hosts[2].give_up_after(5)
    site.ranks()
    site.disturb()
    site.hosts[1].switch_off()
    code, output = site.runs[1].wait()
    assert code == 1, output
    # Whichever notices first: the heartbeat, or a collective.
    texts = f"rank 0 at node1:{PORT} cannot be reached", f"The rendezvous at node1:{PORT} is gone"
    assert any(text in output + site.log_of(1) for text in texts), output
    assert site.hosts[2].processes() == []


def power_off(site: Site) -> None:
    """node2 loses its power: node1 ends, exit 1, node2 is named."""
    site.torchrun()
    site.disturb()
    site.hosts[2].switch_off()
    code, output = site.runs[0].wait()
    assert code == 1, output
    assert "rank 1 on node2" in output, output
    assert site.hosts[1].processes() == []


def firewall(site: Site) -> None:
    """Only the port of the rendezvous is open: no training begins, exit 1, both hosts are named."""
    site.hosts.change(open_ports=[PORT])
    site.ranks()
    for output in site.ended(1, 1):
        assert "cannot connect to rank" in output, output
        assert "node1 (10.77.0.1" in output, output
        assert "node2 (10.77.0.2" in output, output


def firewall_of_the_rendezvous(site: Site) -> None:
    """No port is open: node2 names the rendezvous it cannot reach, node1 the rank that did not come; exit 1."""
    site.hosts.change(open_ports=[])
    site.ranks()
    first, second = site.ended(1, 1)
    assert "rank 1 did not come to the rendezvous at node1:29500" in first, first
    assert "rank 1 of 2 on node2 could not reach the rendezvous at node1:29500" in second, second


def busy_port(site: Site) -> None:
    """Another program has the port of the rendezvous: exit 1, the port and MASTER_PORT are named."""
    script = f"import socket; s = socket.create_server(('', {PORT})); print('here', flush=True); input()"
    words = site.hosts[1].command(sys.executable, "-c", script)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "here\n"
        site.ranks()
        outcomes = [run.wait() for run in site.runs]
        other.communicate("\n")
    assert [code for code, _ in outcomes] == [1, 1], outcomes
    assert f"another program uses port {PORT} there" in outcomes[0][1], outcomes
    assert f"what listens at node1:{PORT} does not answer as the rendezvous" in outcomes[1][1], outcomes
    assert site.hosts.orphans() == {}


def own_name_is_loopback(site: Site) -> None:
    """node1's /etc/hosts gives its own name 127.0.1.1, as Debian does: the other network interface is used."""
    names = "sed 's/^10.77.0.1 /127.0.1.1 /' /etc/hosts > /tmp/hosts && mount --bind /tmp/hosts /etc/hosts"
    mounted = subprocess.run(
        site.hosts[1].command("sh", "-c", f"mount -t tmpfs none /mnt && {names.replace('/tmp', '/mnt')}")
    )
    assert mounted.returncode == 0
    site.ranks("--max-steps", "20")
    site.ended(0, 0)


def elastic(site: Site) -> None:
    """`--nnodes 1:2`, exact reduction, node2 is cut off: node1 goes on alone to the weights of an undisturbed run."""
    site.hosts[2].give_up_after(5)
    site.hosts.change(delay_ms=25)  # two hosts are slow, one is not
    training = ("--max-steps", "80", "--set", "machine.reduction=exact")
    site.torchrun(*training, nodes="1:2", restarts=3)
    site.disturb(cut=[2])
    code, output = site.runs[0].wait()
    assert code == 0, output
    assert f"rank 1 on node2 has not answered for {TIMEOUT_S} s" in output, output
    assert "resuming from step" in output, output
    assert site.runs[1].wait()[0] == 1
    assert site.hosts.orphans() == {}
    assert weights(site.out) == _weights_of_one_process(site, training)


def mpirun(site: Site) -> None:
    """Open MPI, one process per host, started over the network by an agent like ssh: trains to the end."""
    if shutil.which("mpirun") is None:
        raise Unavailable("mpirun is not installed (apt install openmpi-bin)")
    options = ["--allow-run-as-root", "--mca", "plm_rsh_agent", _agent(site), "-x", "MASTER_ADDR=10.77.0.1"]
    options += [word for layer in ("oob", "btl") for word in ("--mca", f"{layer}_tcp_if_include", "eth0")]
    hosts = ["--host", ",".join(host.address for host in site.hosts), "-np", "2", "--map-by", "ppr:1:node"]
    training = command(*arguments(site.shapes, site.out, *SETTINGS, "--max-steps", "20"))
    _start_from_outside(site, ["mpirun", *options, *hosts, "-x", "PYTHONPATH", *training])
    (output,) = site.ended(0)
    assert "rank 1: node2, cpu" in output, output
    assert "(openmpi)" in output, output


def hydra(site: Site) -> None:
    """PMI: MPICH's Hydra trains on both hosts. node2 is cut off: both processes end, node2 is named; mpiexec waits for
    node2 until it can be reached again, and ends with a code that is not 0."""
    if shutil.which("mpiexec.hydra") is None:
        raise Unavailable("mpiexec.hydra is not installed (apt install mpich)")
    options = ["-launcher", "ssh", "-launcher-exec", _agent(site), "-iface", "eth0"]
    hosts = ["-hosts", ",".join(host.address for host in site.hosts), "-n", "2", "-ppn", "1"]
    training = command(*arguments(site.shapes, site.out, *SETTINGS))
    _start_from_outside(site, ["mpiexec.hydra", *options, *hosts, "-env", "MASTER_ADDR", "10.77.0.1", *training])
    site.disturb(cut=[2])
    deadline_s = time.monotonic() + 4 * TIMEOUT_S
    while any(" train " in line for host in site.hosts for line in host.processes()):
        assert time.monotonic() < deadline_s, [host.processes() for host in site.hosts]
        time.sleep(0.1)
    site.ended_s = time.monotonic()
    assert site.runs[0].process.poll() is None, "mpiexec itself has ended: tell docs/many-machines.md"
    site.hosts.change(cut=[])
    code, output = site.runs[0].wait()
    assert code != 0, output
    assert "rank 1: node2, cpu" in output, output
    assert "(pmi)" in output, output
    assert f"rank 1 on node2 has not answered for {TIMEOUT_S} s" in output, output
    assert site.hosts.orphans() == {}


def _agent(site: Site) -> str:
    """A program that runs a command on a host, called as ssh is."""
    agent = site.out.with_name("agent")
    cases = "\n".join(f'{host.address}) exec {" ".join(host.command("sh", "-c"))} "$*" ;;' for host in site.hosts)
    skip = 'while [ "${1#-}" != "$1" ]; do shift; done'
    agent.write_text(f'#!/bin/sh\n{skip}\nhost=$1; shift\ncase "$host" in\n{cases}\nesac\n')
    agent.chmod(0o755)
    return str(agent)


def _start_from_outside(site: Site, words: list[str]) -> None:
    """On the network of node1, but among the processes outside: a host cannot start what is on another."""
    site.runs.append(Running(site.hosts[1].network_command(*words), site.out))


def srun(site: Site) -> None:
    """Slurm, one controller and two nodes, one task per node: trains to the end."""
    if missing := missing_programs():
        raise Unavailable(f"Slurm is not installed (apt install slurm-wlm munge): no {missing[0]}")
    training = command(*arguments(site.shapes, site.out, *SETTINGS, "--max-steps", "20"))
    with several_nodes(site.hosts, site.out.with_name("slurm")) as environ:
        words = ["srun", "--nodes=2", "--ntasks-per-node=1", "--kill-on-bad-exit=0", *training]
        job = site.start(site.hosts[1], ["env", f"SLURM_CONF={environ['SLURM_CONF']}", *words])
        code, output = job.wait()
    assert code == 0, output
    assert "rank 1: node2, cpu" in output, output
    assert "(slurm)" in output, output


def slurm_node_fails(site: Site) -> None:
    """Slurm, two nodes, node2 loses its power: srun ends, its code is not 0, node2 is named and no task is left."""
    if missing := missing_programs():
        raise Unavailable(f"Slurm is not installed (apt install slurm-wlm munge): no {missing[0]}")
    training = command(*arguments(site.shapes, site.out, *SETTINGS))
    with several_nodes(site.hosts, site.out.with_name("slurm")) as environ:
        words = ["srun", "--nodes=2", "--ntasks-per-node=1", "--kill-on-bad-exit=0", *training]
        site.start(site.hosts[1], ["env", f"SLURM_CONF={environ['SLURM_CONF']}", *words])
        site.disturb()
        site.hosts[2].switch_off()
        code, output = site.runs[0].wait()
        left = [line for line in site.hosts[1].processes() if "vernier" in line.split(str(site.out.parent))[0]]
    assert code != 0, output
    assert "rank 1 on node2 has not answered" in output, output
    assert site.runs[0].status()["status"] == "crashed"
    assert left == []


def four_hosts(site: Site) -> None:
    """torchrun on four hosts with exact reduction: ends with the weights of one process, bit for bit."""
    training = ("--max-steps", "20", "--set", "machine.reduction=exact")
    site.torchrun(*training, nodes="4")
    output, *_ = site.ended(0, 0, 0, 0)
    assert "rank 3: node4" in output, output
    assert weights(site.out) == _weights_of_one_process(site, training)


def four_hosts_then_cut(site: Site) -> None:
    """Four hosts, 10 Mbit/s, 50 ms and 1 % loss: train. Then node3 is cut off: all four exit with 1 and name it."""
    site.hosts.change(mbit_s=10, delay_ms=25, loss=0.01)
    site.ranks()
    site.disturb(cut=[3])
    output, *_ = site.ended(1, 1, 1, 1)
    for text in (output, site.log_of(1), site.log_of(3)):
        assert f"rank 2 on node3 has not answered for {TIMEOUT_S} s" in text, text
    assert f"rank 0 at node1:{PORT} cannot be reached" in site.log_of(2)


def one_report(site: Site) -> None:
    """torchrun; node2's files arrive after the run has ended: the report says so, then has both hosts."""
    site.torchrun("--max-steps", "20")
    site.ended(0, 0)
    run, late = only_run(site.out), site.out.with_name("late")
    late.mkdir()
    names = ("events.rank1.jsonl", "telemetry.rank1.jsonl")
    for name in names:
        (run / name).rename(late / name)
    assert "Not here: the events of 1 process on node2. Copy events.rank1.jsonl" in _page(site, run)
    for name in names:
        (late / name).rename(run / name)
    page = _page(site, run)
    assert "Not here" not in page
    for text in ("Processes and hosts", "traggler: ", "exchange and update take", "rank 1 on node2", "node2: cpu 0"):
        assert text in page, text


def _page(site: Site, run: Path) -> str:
    page, log = site.out.with_name("report.html"), site.out.with_name("output of report")
    page.unlink(missing_ok=True)
    assert site.server.start(["report", str(run), "--out", str(page)], log).wait() == 0, log.read_text()
    return page.read_text()


def shards_from_a_server(site: Site) -> None:
    """Two hosts read shards from a web server on node1, each through a cache of its own that holds some of them, with
    exact reduction: the weights of one process that reads the folder, bit for bit."""
    folder, log = site.out.with_name("set"), site.out.with_name("output of prepare")
    for split in ("train", "val"):
        source = open_split(str(site.shapes), split)
        assert isinstance(source, EncodedSource)
        pack_shards(source, folder, split, shard_bytes=60_000, restarts=False, workers=1)
    served = site.hosts[1].network_command(sys.executable, "-m", "http.server", "-d", str(folder), "8000")
    training = ("--max-steps", "20", "--set", "machine.reduction=exact", "--set", "machine.shard_cache_gb=0.00015")
    homes = {host.name: site.out.with_name(f"home of {host.name}") for host in site.hosts}
    with log.open("w") as output, subprocess.Popen(served, stdout=output, stderr=output) as server:
        for rank, host in enumerate(site.hosts):
            variables = [f"RANK={rank}", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=node1"]
            words = ["env", *variables, f"MASTER_PORT={PORT}", f"VERNIER_HOME={homes[host.name]}"]
            address = command(*arguments(Path("address"), site.out, *SETTINGS, *training))
            site.start(host, [*words, *("http://node1:8000" if word == "address" else word for word in address)])
        codes = [run.wait() for run in site.runs]
        server.kill()
    assert [code for code, _ in codes] == [0, 0], codes
    assert site.hosts.orphans() == {}
    for home in homes.values():
        assert 0 < sum(path.stat().st_size for path in home.rglob("*.tar")) <= 150_000
    local = Site(site.hosts, site.server, folder, site.out)
    assert weights(site.out) == _weights_of_one_process(local, training)


def _weights_of_one_process(site: Site, training: tuple[str, ...]) -> dict[str, bytes]:
    """The checkpoint that the same training ends with in a process of its own, undisturbed."""
    alone, log = site.out.with_name("undisturbed"), site.out.with_name("output of undisturbed")
    session = site.server.start(arguments(site.shapes, alone, *SETTINGS, *training), log)
    assert session.wait() == 0, log.read_text()
    return weights(alone)


class Unavailable(Exception):
    """What a scenario needs is not on this machine."""


def weights(out: Path) -> dict[str, bytes]:
    """The files of the newest checkpoint of the only run."""
    newest = sorted((only_run(out) / "checkpoints").glob("step-*"))[-1]
    return {newest.name: b"", **{p.name: p.read_bytes() for p in newest.glob("*.safetensors")}}


FOUR_HOSTS = (four_hosts, four_hosts_then_cut)
IPV6_ONLY = (ipv6_address, poor_network_then_cut)
IN_CI = (poor_network_then_cut, firewall, elastic)
ALL: tuple[Scenario, ...] = (
    *(by_name, ipv6_address, own_name_is_loopback, mpirun, srun, poor_network_then_cut, cut, cut_of_the_rendezvous),
    *(power_off, power_off_of_the_rendezvous, packet_loss, slow_link, cable_back_in_time),
    *(firewall, firewall_of_the_rendezvous, busy_port, elastic, hydra, slurm_node_fails),
    *(one_report, shards_from_a_server),
    *FOUR_HOSTS,
)


def play(scenario: Scenario, server: ForkServer, shapes: Path, folder: Path) -> tuple[float, float | None]:
    """Make two hosts, or four, and play the scenario: its seconds, and those since the network was disturbed."""
    began_s = time.monotonic()
    with made_hosts(4 if scenario in FOUR_HOSTS else 2, ipv6_only=scenario in IPV6_ONLY) as hosts:
        site = Site(hosts, server, shapes, folder / "runs")
        try:
            scenario(site)
            now_s = time.monotonic()
            ended_s = site.ended_s or now_s
        finally:
            for run in site.runs:
                run.process.kill()
    return now_s - began_s, ended_s - site.disturbed_s if site.disturbed_s else None
