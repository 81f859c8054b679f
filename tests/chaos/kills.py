"""Kill trainings and preparations at random and chosen moments, run the same command to its end, compare the results.

    python -m tests.chaos.kills                               1,000 kills, half an hour on one core
    python -m tests.chaos.kills --kills 50 --scenario detector

A chain is one to four sessions that are killed, each resuming what the one before left, and one that runs to the end.
Its result must be that of a session that nobody disturbed, bit for bit: tensors of every checkpoint that is kept,
progress, pointers, each step's loss, each evaluation, predictions; or the SHA-256 of every prepared file. A kill counts
as identical when its chain ended so.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from .commands import COMMANDS
from .fork_server import ForkServer, Session, StillRunning, fork_server, kill, start_command
from .results import Result, differences, leftovers
from .scenarios import MOMENTS, SCENARIOS, Data, Scenario, View

SESSION_LIMIT_S = 600.0
LONGEST_CHAIN = 4
POLL_S = 0.0005
ACTIVITIES = ("starting", "saving", "replacing a file", "evaluating", "elsewhere", "resumed")
"""What a session was doing when it was killed, more than one may be true. `starting`: it had logged or written nothing;
`elsewhere`: none of the four; `resumed`: the session before it was killed too."""


class ChainFailed(AssertionError):
    """A session did not end as it should."""


@dataclass
class Tally:
    """The counts of one scenario."""

    kills: int = 0
    identical: int = 0
    chains: int = 0
    at: Counter[str] = field(default_factory=Counter)
    leftovers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, chain: "Chain") -> None:
        self.chains += 1
        self.kills += chain.kills
        self.at += chain.at
        self.leftovers.update(chain.leftovers)
        if chain.failure:
            self.failures.append(chain.failure)
        else:
            self.identical += chain.kills


@dataclass
class Chain:
    """Sessions that are killed, and one to the end."""

    kills: int = 0
    at: Counter[str] = field(default_factory=Counter)
    failure: str = ""
    leftovers: list[str] = field(default_factory=list)
    finished: Result = field(default_factory=dict)
    """What the sessions so far had finished."""


@dataclass
class Harness:
    """Runs the chains of one scenario."""

    scenario: Scenario
    data: Data
    work: Path
    server: ForkServer
    dice: random.Random
    reference: Result = field(init=False)
    seconds: float = 0.0
    """Of the undisturbed session."""
    eval_steps: frozenset[int] = frozenset()
    last_step: int = 0

    def __post_init__(self) -> None:
        out, began_s = self._new_folder("reference"), time.monotonic()
        if code := self._start(out).wait():
            raise ChainFailed(f"{self.scenario.name}: the undisturbed session ended with {code}\n{self._log_tail(out)}")
        self.seconds = time.monotonic() - began_s
        self.reference = self.scenario.result(out)
        steps = [int(name.split()[1]) for name in self.reference if name.startswith("step ")]
        evaluations = [int(name.split()[1]) for name in self.reference if name.startswith("eval ")]
        self.eval_steps, self.last_step = frozenset(evaluations), max(steps, default=0)
        if self.scenario.is_training and not (steps and evaluations):
            raise ChainFailed(f"{self.scenario.name}: the undisturbed run has no steps: {self.reference}")

    def _new_folder(self, name: str) -> Path:
        out = self.work / name
        out.mkdir(parents=True)
        self.scenario.fill(self.data, out)
        return out

    def _log(self, out: Path) -> Path:
        return out.with_suffix(".log")

    def _log_tail(self, out: Path) -> str:
        return "\n".join(self._log(out).read_text(errors="replace").splitlines()[-20:])

    def _start(self, out: Path) -> Session:
        arguments, environ = self.scenario.arguments(self.data, out), self.scenario.environ(out)
        starters = {"command": start_command, "forked": self.server.start, "ranks": self.server.start_ranks}
        session: Session = starters[self.scenario.start](arguments, self._log(out), environ)
        return session

    def run_chain(self, number: int, kills: int) -> Chain:
        """Kill that many sessions at most, run one to the end, compare. The folder is kept where something differs."""
        chain, out = Chain(), self._new_folder(f"chain-{number:04d}")
        try:
            for _ in range(kills):
                if not self._kill_session(chain, out):
                    break
            if not self.scenario.is_complete(out, self.reference) and (code := self._start(out).wait()):
                raise ChainFailed(f"the session that nobody disturbed ended with {code}\n{self._log_tail(out)}")
            self._note_finished(chain, out)
        except (ChainFailed, StillRunning) as failure:
            chain.failure = f"{out}: {failure}"
            return chain
        if differing := differences(self.scenario.result(out), self.reference):
            chain.failure = "\n  ".join([f"{out}: {len(differing)} differences", *differing[:6]])
            return chain
        chain.leftovers = leftovers(out)
        shutil.rmtree(out)
        return chain

    def _kill_session(self, chain: Chain, out: Path) -> bool:
        """Start a session and kill it at some moment; False where the work was complete before."""
        moment = self.dice.choice(self.scenario.moments)
        reached, longest_s = MOMENTS[moment](self.dice)
        view = View(self.scenario, out, self.eval_steps, self.last_step)
        session = self._start(out)
        deadline_s = time.monotonic() + SESSION_LIMIT_S
        while session.running() and not reached(view):
            if time.monotonic() > deadline_s:
                _kill_all(session)
                raise ChainFailed(f"a session is still running after {SESSION_LIMIT_S:.0f} s")
            time.sleep(POLL_S)
        # Mostly at once: what is replaced is replaced in a millisecond.
        share = self.dice.random()
        time.sleep(share**3 * longest_s if moment != "any time" else share * self.seconds)
        killed = session.running() and self._kill(session)
        code = session.wait()
        if not killed and code:
            raise ChainFailed(f"a session ended by itself with {code}\n{self._log_tail(out)}")
        if killed:
            self._note_finished(chain, out)
            chain.kills += 1
            chain.at.update(_activities(view, resumed=chain.kills > 1))
        return killed and not self.scenario.is_complete(out, self.reference)

    def _note_finished(self, chain: Chain, out: Path) -> None:
        """Raise ChainFailed for a part that was finished before and is now another one."""
        now = self.scenario.finished(out)
        if repeated := [name for name, part in chain.finished.items() if now.get(name, part) != part]:
            raise ChainFailed(f"done again: {', '.join(repeated)}")
        chain.finished |= now

    def _kill(self, session: Session) -> bool:
        """Kill the victims; False where there was none left."""
        victims = self.dice.choice(self.scenario.victims)
        processes = session.processes() if victims == "all" else [session.pid]
        if victims == "rank" and (ranks := session.ranks()):
            processes = [self.dice.choice(ranks)]
        kill(*processes)
        return bool(processes)


def _kill_all(session: Session) -> None:
    kill(*session.processes())
    session.wait()


def _activities(view: View, *, resumed: bool) -> list[str]:
    """What the disk says a killed session was doing."""
    temporaries, replacing = view.temporaries(), {name for name in view.temporaries() if ".tmp-" in name}
    doing = {
        "starting": not view.events() if view.scenario.is_training else not (temporaries or view.grew()),
        "saving": bool(temporaries - replacing),
        "replacing a file": bool(replacing),
        "evaluating": view.is_evaluating(),
    }
    doing |= {"elsewhere": not any(doing.values()), "resumed": resumed}
    return [activity for activity, is_so in doing.items() if is_so]


# ------------------------------------------------------------------------------------------------------------ command


def make_data(folder: Path, server: ForkServer) -> Data:
    """The data of all scenarios; those of an earlier call, if they are complete."""
    data = Data(folder=folder)
    if (complete := folder / "complete").exists():
        return data
    folder.mkdir(parents=True)
    log = folder / "making.log"
    for command in data.commands():
        if server.start(command, log, {"VERNIER_HOME": str(folder / "home")}).wait():
            raise ChainFailed(f"{' '.join(command)}\n{log.read_text()}")
    data.forget_tables()
    complete.touch()
    return data


def run_scenario(scenario: Scenario, data: Data, work: Path, server: ForkServer, kills: int, seed: int) -> Tally:
    """Chains until there were that many kills."""
    dice = random.Random(f"{seed} {scenario.name}")
    began_s, tally = time.monotonic(), Tally()
    harness = Harness(scenario, data, work / scenario.name.replace(" ", "-").replace(",", ""), server, dice)
    while tally.kills < kills and tally.chains < 4 * kills:
        tally.add(harness.run_chain(tally.chains, min(dice.randrange(1, LONGEST_CHAIN + 1), kills - tally.kills)))
    tally.seconds = time.monotonic() - began_s
    return tally


def table(tallies: dict[str, Tally]) -> str:
    """As Markdown, a row per scenario and their sum."""
    heads = ["scenario", "kills", "identical", "chains", *ACTIVITIES]
    lines = [f"| {' | '.join(heads)} |", f"|---{'|---:' * (len(heads) - 1)}|"]
    total = Tally()
    for name, tally in [*tallies.items(), ("total", total)]:
        row = [tally.kills, tally.identical, tally.chains, *(tally.at[activity] for activity in ACTIVITIES)]
        lines.append(f"| {name} | {' | '.join(f'{n:,}' for n in row)} |")
        total.kills += tally.kills
        total.identical += tally.identical
        total.chains += tally.chains
        total.at += tally.at
    return "\n".join(lines)


def _chosen(names: list[str]) -> list[Scenario]:
    everything = [*SCENARIOS, *COMMANDS]
    chosen = [s for s in everything if not names or any(name in s.name for name in names)]
    if not chosen:
        raise SystemExit(f"No scenario has {' or '.join(names)} in its name: {', '.join(s.name for s in everything)}.")
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000, help="total, shared among the scenarios (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, help="of moments and victims (default: 1)")
    parser.add_argument("--scenario", action="append", default=[], help="only those with this in their name")
    parser.add_argument("--data", type=Path, help="make the data here and keep them, for several runs with other seeds")
    chosen = _chosen((flags := parser.parse_args()).scenario)
    share = flags.kills / sum(scenario.kills for scenario in chosen)
    tallies: dict[str, Tally] = {}
    work = Path(tempfile.mkdtemp(prefix="vernier-kills-"))
    with fork_server() as server:
        data = make_data(flags.data or work / "data", server)
        for scenario in chosen:
            kills = max(1, round(scenario.kills * share))
            tally = tallies[scenario.name] = run_scenario(scenario, data, work, server, kills, flags.seed)
            sys.stdout.write(f"{scenario.name}: {tally.identical} of {tally.kills}, {tally.seconds:.0f} s\n")
            sys.stdout.write("".join(f"  {failure}\n" for failure in tally.failures))
            sys.stdout.write("".join(f"  left behind: {name} ({n})\n" for name, n in tally.leftovers.items()))
            sys.stdout.flush()
    sys.stdout.write(f"\n{table(tallies)}\n")
    if any(tally.failures for tally in tallies.values()):
        sys.stdout.write(f"what differs is in {work}\n")
        return 1
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
