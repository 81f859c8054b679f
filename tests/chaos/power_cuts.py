"""Cuts the power at every moment of recorded trainings: `python -m tests.chaos.power_cuts`.

A training is recorded (`tracing`), the states its disk may hold after a power cut are enumerated (`disk_model`), and in
each of them Vernier's own code looks for the checkpoint to resume from. For a sample the command is really run to its
end, and the result compared with that of an undisturbed run.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from safetensors.torch import load_file

from vernier.config import Config
from vernier.engine.training.checkpoints.contents import read_state
from vernier.engine.training.checkpoints.resume import choose_resume_point, run_config
from vernier.store import CheckpointDir, RunDir, find_runs

from .disk_model import Disk, Tree, crash_states, fingerprint
from .tracing import CHANGES, Ending, Mode, Plan, Record, Server, missing
from .trainings import STEPS, arguments, final_state, make_data, two_processes, working_folder

BLOCK = 16
"""Moments that one process looks at before it takes the next ones."""
CACHED_FILES = 2000


@dataclass(frozen=True)
class Recording:
    """A session of a training: what was on the disk before, what it did, and the configuration of its command."""

    name: str
    base: Path
    """A copy of the folder before the session."""
    root: str
    """The folder that was recorded; runs are in `out` below it."""
    records: tuple[Record, ...] = field(repr=False)
    config: Config = field(repr=False)
    command: tuple[str, ...] = field(repr=False)
    processes: int
    reference: dict[str, object] = field(repr=False)

    def moments(self) -> Iterator[tuple[Disk, dict[str, int]]]:
        """The disk after each change, and the newest checkpoint that each run had reported by then."""
        disk, reported = Disk(self.base), reported_in(self.base / "out")
        disk.root = self.root
        yield disk, reported
        for record in self.records:
            if record.result >= 0 and disk.replay(record):
                reported = reported | _reported(record)
                yield disk, reported

    def final_tree(self) -> Tree:
        """What programs see after the session, according to the model."""
        *_, (disk, _) = self.moments()
        return disk.current()


def _steps_of(content: bytes) -> list[int]:
    """The steps of the checkpoint events in lines of an event file."""
    steps = []
    for line in content.splitlines():
        with contextlib.suppress(ValueError):
            if (event := json.loads(line)).get("kind") == "checkpoint":
                steps.append(int(event["step"]))
    return steps


def _reported(record: Record) -> dict[str, int]:
    """The run and step of a checkpoint whose event this operation writes."""
    path = Path(record.path)
    steps = _steps_of(record.content) if record.operation == "write" and path.name == "events.jsonl" else []
    return {path.parent.name: max(steps)} if steps else {}


def reported_in(out: Path) -> dict[str, int]:
    """Run -> newest checkpoint that its event file reports."""
    files = {path.parent.name: _steps_of(path.read_bytes()) for path in out.glob("*/events.jsonl")}
    return {run: max(steps) for run, steps in files.items() if steps}


# ------------------------------------------------------------------------------------------------------------- checks


_loaded: set[tuple[int, ...]] = set()


def _load(checkpoint: CheckpointDir) -> None:
    """Read all of a checkpoint, as a resumed session does; once for all states that share its files."""
    files = sorted(checkpoint.path.iterdir())
    content = tuple(file.stat().st_ino for file in files)
    if content in _loaded:
        return
    assert read_state(checkpoint).step == checkpoint.step
    for file in files:
        if file.suffix == ".safetensors":
            load_file(file)
    _loaded.add(content)


def problem_of(out: Path, config: Config, reported: dict[str, int]) -> str:
    """What is wrong with a state: a checkpoint that was reported and is lost, or remains that the command stops at."""
    try:
        point = choose_resume_point(config, out, None, lambda message: None)
        if point is not None and point.checkpoint is not None:
            _load(point.checkpoint)
        for name, step in reported.items():
            run = RunDir(out / name)
            newest = run.checkpoints.newest()
            if newest is None or newest.step < step:
                return f"{name}: the checkpoint of step {step} was reported, the newest is {newest}"
            if point is None or point.checkpoint != newest:
                _load(newest)
            run.history()
            finished = run.status().status == "finished"
            if finished and newest.step != STEPS:
                return f"{name}: called finished at step {newest.step}"
            if not finished and (point is None or point.checkpoint != newest):
                return f"{name}: {newest} is there, the command takes {point}"
    except Exception as error:  # the point: whatever it is, a user would see it
        return f"{type(error).__name__}: {error}"
    return ""


class States:
    """Makes states on a real file system. Files that many states share are linked, not written again."""

    def __init__(self, folder: Path) -> None:
        _loaded.clear()
        self._folder = folder
        self._cache: dict[bytes, Path] = {}
        self._number = 0
        folder.mkdir(parents=True)

    def make(self, tree: Tree) -> Path:
        self._number += 1
        state = self._folder / f"state-{self._number}"
        state.mkdir()
        for path, content in tree.items():  # a folder comes before what is in it
            if content is None:
                (state / path).mkdir()
            else:
                os.link(self._file(content), state / path)
        return state

    def _file(self, content: bytes) -> Path:
        if content not in self._cache:
            if len(self._cache) >= CACHED_FILES:
                for path in self._cache.values():
                    path.unlink()
                self._cache = {}
                _loaded.clear()  # numbers of files are given again
            path = self._folder / f"file-{self._number}-{len(self._cache)}"
            path.write_bytes(content)
            self._cache[content] = path
        return self._cache[content]


@dataclass
class Findings:
    """What was seen of one recording, or of some of its moments."""

    moments: int = 0
    states: int = 0
    distinct: set[bytes] = field(default_factory=set)
    without_checkpoint: int = 0
    problems: list[str] = field(default_factory=list)
    samples: list[Tree] = field(default_factory=list)

    def add(self, other: "Findings") -> None:
        self.moments += other.moments
        self.states += other.states
        self.distinct |= other.distinct
        self.without_checkpoint += other.without_checkpoint
        self.problems += other.problems
        self.samples += other.samples


def check_moments(
    recording: Recording, scratch: Path, seed: int, sample_share: float, chosen: Sequence[int]
) -> Findings:
    """Look at every state of some moments."""
    findings, wanted = Findings(), set(chosen)
    states = States(scratch / f"{recording.name}-{os.getpid()}-{chosen[0]}")
    for number, (disk, reported) in enumerate(recording.moments()):
        if number not in wanted:
            continue
        findings.moments += 1
        dice = random.Random(f"{seed} {recording.name} {number}")
        for tree in crash_states(disk, dice):
            findings.states += 1
            if (mark := fingerprint(tree)) in findings.distinct:
                continue
            findings.distinct.add(mark)
            findings.without_checkpoint += not reported
            state = states.make(tree)
            if problem := problem_of(state / "out", recording.config, reported):
                findings.problems.append(f"{recording.name}, moment {number}: {problem}")
            shutil.rmtree(state)
            if dice.random() < sample_share:
                findings.samples.append(tree)
    shutil.rmtree(states._folder)
    return findings


def check_recording(
    recording: Recording, scratch: Path, *, seed: int, stride: int, samples: int, jobs: int
) -> Findings:
    """Look at the states of every `stride`-th moment, in several processes."""
    total = sum(1 for _ in recording.moments())
    numbers = range(seed % stride, total, stride)
    blocks = [numbers[begin : begin + BLOCK] for begin in range(0, len(numbers), BLOCK)]
    check = partial(check_moments, recording, scratch, seed, samples / (20 * len(numbers)))
    findings = Findings()
    if jobs == 1:
        for block in blocks:
            findings.add(check(block))
        return findings
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for part in pool.imap_unordered(check, blocks):
            findings.add(part)
    return findings


# --------------------------------------------------------------------------------------------------------- recordings


@dataclass
class Recorder:
    """Records trainings below one folder."""

    folder: Path
    data: Path
    server: Server

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def record(self, name: str, *, processes: int = 1, **settings: float) -> Recording:
        """Run a command with what is in the folder now, and record it."""
        base = self.folder.with_name(f"base-{name}")
        shutil.copytree(self.folder, base)
        command = arguments(self.data, self.out, **settings)
        ending = self.run(*command, plan=Plan(record=True), processes=processes)
        assert set(ending.codes) == {0}, ending.output
        reference = self._undisturbed(processes, settings)
        assert final_state(self.out) == reference, name
        recording = Recording(
            name=name,
            base=base,
            root=str(self.folder),
            records=ending.records,
            config=run_config(find_runs(self.out)[-1]),
            command=tuple(command),
            processes=processes,
            reference=reference,
        )
        assert recording.final_tree() == read_tree(self.folder), f"{name}: the trace does not lead to what is on disk"
        return recording

    def _undisturbed(self, processes: int, settings: dict[str, float]) -> dict[str, object]:
        out = self.folder.with_name("undisturbed")
        assert set(self.run(*arguments(self.data, out, **settings), processes=processes).codes) == {0}
        state = final_state(out)
        shutil.rmtree(out)
        return state

    def run(self, *command: str, plan: Plan | None = None, processes: int = 1) -> Ending:
        environments = two_processes() if processes == 2 else [{}]
        return self.server.run(*command, plan=plan, environments=environments)

    def fill(self, tree: Tree) -> None:
        """Put a state into the folder, in place of what is there."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        for path, content in tree.items():
            if content is None:
                (self.folder / path).mkdir()
            else:
                (self.folder / path).write_bytes(content)

    def kill_after(self, share: float, **settings: float) -> None:
        """Begin a training and kill it after this share of its changes of the disk."""
        command = arguments(self.data, self.out, **settings)
        changes = self.run(*command, plan=Plan(operations=CHANGES)).counts[0]
        self.fill({})
        plan = Plan(mode=Mode.KILL, operations=CHANGES, first=round(share * changes))
        ending = self.run(*command, plan=plan)
        assert ending.code < 0, ending.output


def read_tree(folder: Path) -> Tree:
    return {str(p.relative_to(folder)): None if p.is_dir() else p.read_bytes() for p in folder.rglob("*")}


def first_run(recorder: Recorder) -> Recording:
    """Into an empty folder: the start, the first save, pruning to one checkpoint and the best, the end."""
    recorder.fill({})
    return recorder.record("first-run", checkpoint__keep_last=1)


def second_run(recorder: Recorder) -> Recording:
    """Beside a finished run of the same command."""
    recorder.fill({})
    assert recorder.run(*arguments(recorder.data, recorder.out)).code == 0
    return recorder.record("second-run")


def resumed_run(recorder: Recorder, name: str = "resumed") -> Recording:
    """A session that resumes one that was killed while it saved."""
    recorder.fill({})
    recorder.kill_after(0.5)
    return recorder.record(name)


def after_a_power_cut(recorder: Recorder) -> Recording:
    """A session that resumes in the remains of a power cut: half-removed and half-written checkpoints, torn logs."""
    first, dice = resumed_run(recorder, "before-a-power-cut"), random.Random(7)
    trees = [
        tree
        for number, (disk, reported) in enumerate(first.moments())
        if number % 10 == 0 and reported and max(reported.values()) < STEPS - 2
        for tree in crash_states(disk, dice)
    ]
    recorder.fill(max(trees, key=lambda tree: sum("checkpoints/." in path for path in tree)))
    return recorder.record("after-a-power-cut")


def two_process_run(recorder: Recorder) -> Recording:
    """Two processes, one of which saves."""
    recorder.fill({})
    return recorder.record("two-processes", processes=2)


SCENARIOS: tuple[Callable[[Recorder], Recording], ...] = (
    first_run,
    second_run,
    resumed_run,
    after_a_power_cut,
    two_process_run,
)


@contextlib.contextmanager
def recorder_in(work: Path) -> Iterator[Recorder]:
    folder = work / "recorded"
    folder.mkdir()
    with Server(folder, work / "server") as server:
        yield Recorder(folder, make_data(work), server)


# ------------------------------------------------------------------------------------------------------- real commands


def run_from(recorder: Recorder, recording: Recording, tree: Tree) -> str:
    """Run the command in a state to its end; how the result differs from the undisturbed one."""
    recorder.fill(tree)
    ending = recorder.run(*recording.command, processes=recording.processes)
    if set(ending.codes) != {0} or "Traceback" in ending.output:
        return f"{recording.name}: exit codes {ending.codes}: {ending.output[-600:]}"
    if final_state(recorder.out) != recording.reference:
        return f"{recording.name}: the result differs from the undisturbed one"
    return ""


def check_scenario(
    scenario: Callable[[Recorder], Recording], recorder: Recorder, *, seed: int, stride: int, samples: int, jobs: int
) -> tuple[Recording, Findings, int]:
    """Record a scenario, check its states, and run the command in some of them; how many."""
    recording = scenario(recorder)
    scratch = recorder.folder.with_name("states")
    findings = check_recording(recording, scratch, seed=seed, stride=stride, samples=samples, jobs=jobs)
    chosen = random.Random(seed).sample(findings.samples, min(samples, len(findings.samples)))
    findings.problems += [problem for tree in chosen if (problem := run_from(recorder, recording, tree))]
    return recording, findings, len(chosen)


def main() -> int:
    parser = argparse.ArgumentParser(description="Cut the power at every moment of recorded trainings.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stride", type=int, default=1, help="look at every n-th moment only")
    parser.add_argument("--samples", type=int, default=10, help="states per scenario in which the command is run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if reason := missing():
        sys.exit(f"Cannot trace file operations: {reason}.")
    began, total, resumed, problems = time.monotonic(), set[bytes](), 0, []
    with working_folder() as work, recorder_in(work) as recorder:
        for scenario in SCENARIOS:
            recording, findings, runs = check_scenario(scenario, recorder, **vars(options))
            total |= findings.distinct
            resumed += runs
            problems += findings.problems
            print(
                f"{recording.name}: {len(recording.records):,} operations, {findings.moments:,} moments, "
                f"{findings.states:,} states of which {len(findings.distinct):,} distinct "
                f"({findings.without_checkpoint:,} before the first checkpoint), command run in {runs}, "
                f"{len(findings.problems)} problems",
                flush=True,
            )
    for problem in problems[:20]:
        print(problem)
    took_min = (time.monotonic() - began) / 60
    print(f"{len(total):,} distinct states, {resumed} commands, {len(problems)} problems, {took_min:.0f} min")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
