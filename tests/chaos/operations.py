"""Commands that write files: killed at every change of the disk, on a full disk, and after every power cut.

    python -m tests.chaos.operations                          every change, 300 states per command: half an hour
    python -m tests.chaos.operations --stride 5 --states 200 --command export

After each, the same command runs undisturbed and must leave what a command leaves that was never disturbed. States
after a power cut follow from a recording (`disk_model`); those of caches are checked without a new process, and so
all of them.
"""

import argparse
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError

from tests.tiny_training import run_training, tiny_config
from vernier.config import override
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.store import find_runs

from .commands import exported
from .disk_model import Disk, Tree, crash_states, fingerprint
from .faults import FAULTS
from .results import Result, differences, tree_result
from .traced_commands import CACHES, MIRROR, make_mirror
from .tracing import CHANGES, Ending, Mode, Plan, Server, missing
from .trainings import working_folder

ATTACKS = ("killed", "disk full", "power cut")


@dataclass(frozen=True)
class Program:
    """A command; {data} and {root} in its words are the folders that it reads and writes."""

    name: str
    words: str
    outcome: Callable[[Path], Result] = tree_result
    fill: Callable[[Path, Path], None] = field(default=lambda _data, _root: None)
    whole: Callable[[Path, Result], bool] | None = None
    """Whether what has its final name is whole: what a user would take, without the command run again."""

    @property
    def cache(self) -> Callable[[Path], bool] | None:
        return CACHES.get(self.words.split()[0])


def _copy_run(data: Path, root: Path) -> None:
    shutil.copytree(data / "run", root / "run")


def _whole_export(root: Path, reference: Result) -> bool:
    """A power cut leaves the model or none; the card, which is written after it, may be missing."""
    return not (root / "model.safetensors").exists() or exported(root)["model"] == reference["model"]


def _images(root: Path) -> Result:
    """Without notes for a command that continues, which nobody needs any more."""
    return {name: content for name, content in tree_result(root).items() if not name.endswith((".lock", ".progress"))}


def _cache(root: Path) -> Result:
    """What is in a cache is checked by the command itself."""
    return {"files": sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())}


PREPARE = "data prepare folder {data}/photos {root}/out --workers 1 --format"
PROGRAMS = (
    Program("export", "export {root}/run --out {root}/model.safetensors", exported, _copy_run, _whole_export),
    Program("data get", "data get cifar10 --out {root}/set --mirror file://{data}/mirror", _images),
    Program("data prepare, shards", f"{PREPARE} shards --shard-mb 1 --no-restarts", _images),
    Program("data prepare, raw", f"{PREPARE} raw --short-side-px 32", _images),
    Program("data prepare, tfrecord", f"{PREPARE} tfrecord --files 2 1", _images),
    Program("cache of engines", "engine {root}", _cache),
    Program("cache of compiled kernels", "inductor {root}", _cache),
)


@dataclass
class Findings:
    """Of one attack on one command."""

    trials: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        self.trials += 1
        if problem:
            self.problems.append(problem)


class Bench:
    """Where one command is attacked, again and again."""

    def __init__(self, program: Program, work: Path, server: Server) -> None:
        self._program, self._server = program, server
        self._data, self._root = work / "data", work / "root"
        self._words = program.words.format(data=self._data, root=self._root).split()
        self._clear()
        ending = self._run(Plan(operations=CHANGES))
        assert ending.code == 0, f"{program.name}: {ending.output}"
        self.changes, self.reference = ending.counts[0], program.outcome(self._root)

    def _clear(self) -> None:
        self._fill({})
        self._program.fill(self._data, self._root)

    def _fill(self, tree: Tree) -> None:
        shutil.rmtree(self._root, ignore_errors=True)
        self._root.mkdir(mode=0o700)
        for path, content in tree.items():
            if content is None:
                (self._root / path).mkdir(mode=0o700)
            else:
                (self._root / path).write_bytes(content)

    def _run(self, plan: Plan | None = None) -> Ending:
        environment = {"VERNIER_HOME": str(self._root.parent / "home"), MIRROR: str(self._data / "mirror")}
        return self._server.run(*self._words, plan=plan, environments=[environment])

    def _problem(self) -> str:
        """What is wrong with what the same command leaves now."""
        ending = self._run()
        try:
            wrong = differences(self._program.outcome(self._root), self.reference)
        except SafetensorError as error:
            wrong = [str(error)]
        # What is complete may be refused, as nothing is written over.
        if ending.code not in (0, 2) or (ending.code and wrong) or "Traceback" in ending.output:
            return f"exit code {ending.code}: {ending.output[-500:]}"
        return "; ".join(wrong[:3])

    def killed(self, stride: int) -> Findings:
        """At every change, or at some."""
        found = Findings()
        for first in range(1, self.changes + 1, stride):
            self._clear()
            self._run(Plan(mode=Mode.KILL, operations=CHANGES, first=first))
            found.add(_at(f"killed at change {first}", self._problem()))
        return found

    def disk_full(self, stride: int) -> Findings:
        """From every operation on that needs room, or from some."""
        self._clear()
        plan, found = FAULTS["ENOSPC"], Findings()
        for first in range(1, self._run(Plan(operations=plan.operations)).counts[0] + 1, stride):
            self._clear()
            ending = self._run(Plan(plan.mode, plan.error, plan.operations, first, persistent=True))
            said = "traceback: " + ending.output[-800:] if "Traceback" in ending.output else ""
            if ending.code not in (0, 1, 2):
                said = f"exit code {ending.code}: {ending.output[-500:]}"
            found.add(_at(f"disk full from operation {first}", said or self._problem()))
        return found

    def power_cut(self, most: int, seed: int) -> Findings:
        """In each state that the disk may hold at some moment, or in as many as are wanted.

        States are drawn again with other random numbers until there are enough, or no new ones.
        """
        self._clear()
        base = self._root.with_name("base")
        shutil.rmtree(base, ignore_errors=True)
        shutil.copytree(self._root, base)
        dice, found, seen, size = random.Random(seed), Findings(), set[bytes](), -1
        ending, load = self._run(Plan(record=True)), self._program.cache
        while load is not None and size < len(seen) < most:
            size = len(seen)
            for tree in self._states(base, ending, dice, seen):
                self._fill(tree)
                found.add("" if load(self._root) else f"a damaged file was used: {sorted(tree)}")
                if len(seen) >= most:
                    break
        if load is None:
            trees = list(self._states(base, ending, dice, seen))
            for tree in trees if len(trees) <= most else dice.sample(trees, most):
                self._fill(tree)
                found.add(_at("power cut", self._problem()))
        return found

    def left_whole(self, most: int, seed: int) -> Findings:
        """States after a power cut in which nothing with its final name is damaged; the command is not run again."""
        assert self._program.whole is not None
        self._clear()
        base = self._root.with_name("base")
        shutil.rmtree(base, ignore_errors=True)
        shutil.copytree(self._root, base)
        dice, found, seen, size = random.Random(seed), Findings(), set[bytes](), -1
        ending = self._run(Plan(record=True))
        while size < len(seen) < most:
            size = len(seen)
            for tree in self._states(base, ending, dice, seen):
                self._fill({path: content for path, content in tree.items() if not path.startswith("run/")})
                try:
                    whole = self._program.whole(self._root, self.reference)
                except SafetensorError:
                    whole = False
                found.add("" if whole else f"a damaged file has its final name: {sorted(tree)}")
                if len(seen) >= most:
                    break
        return found

    def _states(self, base: Path, ending: Ending, dice: random.Random, seen: set[bytes]) -> Iterator[Tree]:
        disk = Disk(base)
        disk.root = str(self._root)
        for record in ending.records:
            if record.result >= 0 and disk.replay(record):
                for tree in crash_states(disk, dice):
                    if (mark := fingerprint(tree)) not in seen:
                        seen.add(mark)
                        yield tree


def _at(where: str, problem: str) -> str:
    return f"{where}: {problem}" if problem else ""


def make_inputs(work: Path) -> None:
    """What the commands read."""
    data = work / "data"
    make_shapes(data / "photos", ShapesSpec(train=24, val=20, size_px=32, seed=3))
    make_mirror(data / "mirror")
    run_training(override(tiny_config(data / "photos"), "limits.max_steps", 2), data / "runs")
    find_runs(data / "runs")[0].path.rename(data / "run")


def attack(program: Program, work: Path, server: Server, *, stride: int, states: int, seed: int) -> dict[str, Findings]:
    """All attacks on one command."""
    bench = Bench(program, work, server)
    found = {"killed": Findings(), "disk full": Findings()}
    if stride:
        found = {"killed": bench.killed(stride), "disk full": bench.disk_full(stride)}
    found["power cut"] = bench.power_cut(states, seed)
    if program.whole is not None:
        more = bench.left_whole(100 * states, seed)
        found["power cut"] = Findings(
            found["power cut"].trials + more.trials, found["power cut"].problems + more.problems
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stride", type=int, default=1, help="kill and fail at every n-th operation only; 0: never")
    parser.add_argument("--states", type=int, default=300, help="power cuts per command; caches: 100 times as many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--command", action="append", default=[], help="only those with this in their name")
    options = parser.parse_args()
    if reason := missing():
        sys.exit(f"Cannot trace file operations: {reason}.")
    problems = 0
    print(f"| command | {' | '.join(ATTACKS)} | problems | minutes |\n|---|---:|---:|---:|---:|---:|", flush=True)
    with working_folder() as work:
        make_inputs(work)
        (work / "root").mkdir()
        with Server(work / "root", work / "server", "tests.chaos.traced_commands") as server:
            for program in PROGRAMS:
                if options.command and not any(name in program.name for name in options.command):
                    continue
                began_s, states = time.monotonic(), options.states * (100 if program.cache else 1)
                found = attack(program, work, server, stride=options.stride, states=states, seed=options.seed)
                wrong = [problem for each in found.values() for problem in each.problems]
                counts = " | ".join(f"{found[name].trials:,}" for name in ATTACKS)
                minutes = (time.monotonic() - began_s) / 60
                print(f"| {program.name} | {counts} | {len(wrong)} | {minutes:.1f} |", flush=True)
                for problem in wrong[:5]:
                    print(f"  {problem}", file=sys.stderr, flush=True)
                problems += len(wrong)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
