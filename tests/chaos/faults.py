"""Lets every file operation of a training fail: `python -m tests.chaos.faults`.

The n-th operation, or all from the n-th on, gets an error of the operating system, is interrupted, or writes less than
it was given. Afterwards the disk is well again, and the same command must end with the result of an undisturbed run.
"""

import argparse
import errno
import os
import random
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

from vernier.store import RunDir, find_runs

from .power_cuts import reported_in
from .tracing import EVERY, Ending, Mode, Operation, Plan, Record, Server, missing
from .trainings import arguments, final_state, make_data, working_folder

SHORT = {"schedule__epochs": 1, "data__epoch_images": 48, "checkpoint__every_steps": 1, "checkpoint__keep_last": 1}
"""Three steps with a checkpoint each, two evaluations, old checkpoints removed."""
OPENED = Operation.OPEN_READ | Operation.OPEN_WRITE
NEEDS_ROOM = (
    Operation.OPEN_WRITE
    | Operation.WRITE
    | Operation.TRUNCATE
    | Operation.SYNC
    | Operation.RENAME
    | Operation.LINK
    | Operation.MKDIR
    | Operation.CLOSE
)
CHANGING = NEEDS_ROOM & ~Operation.CLOSE | Operation.UNLINK | Operation.RMDIR
BLOCKING = OPENED | Operation.READ | Operation.WRITE | Operation.TRUNCATE | Operation.SYNC | Operation.CLOSE
FAULTS = {
    "ENOSPC": Plan(mode=Mode.ERROR, error=errno.ENOSPC, operations=NEEDS_ROOM),
    "EDQUOT": Plan(mode=Mode.ERROR, error=errno.EDQUOT, operations=NEEDS_ROOM),
    "EROFS": Plan(mode=Mode.ERROR, error=errno.EROFS, operations=CHANGING),
    "EIO": Plan(mode=Mode.ERROR, error=errno.EIO, operations=EVERY & ~Operation.OTHER),
    # A file on a network that the server has exchanged meanwhile.
    "ESTALE": Plan(mode=Mode.ERROR, error=errno.ESTALE, operations=EVERY & ~Operation.OTHER),
    "EMFILE": Plan(mode=Mode.ERROR, error=errno.EMFILE, operations=OPENED),
    "EINTR": Plan(mode=Mode.ERROR, error=errno.EINTR, operations=BLOCKING),
    "short write": Plan(mode=Mode.SHORT_WRITE, operations=Operation.WRITE),
}
LOGS = ("events.jsonl", "telemetry.jsonl", "tensorboard", "predictions")


@dataclass(frozen=True)
class Trial:
    """One fault: the n-th operation that can have it, or all from there on."""

    fault: str
    first: int
    persistent: bool

    def plan(self) -> Plan:
        return replace(FAULTS[self.fault], first=self.first, persistent=self.persistent)

    def __str__(self) -> str:
        return f"{self.fault} {'from' if self.persistent else 'at'} operation {self.first}"


@dataclass(frozen=True)
class Result:
    """How a trial ended; `problem` says what should not have happened."""

    trial: Trial
    ending: str
    where: str
    """The operation that failed first, and the kind of its file."""
    problem: str = ""


class Bench:
    """Where trials are done, one after the other."""

    def __init__(self, work: Path, data: Path, server: Server) -> None:
        self._folder, self._data, self._server = work / "run", data, server
        self._out = self._folder / "out"
        self.reference: dict[str, object] = {}

    def _command(self) -> list[str]:
        return arguments(self._data, self._out, **SHORT)

    def _clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()

    def count(self, fault: str) -> int:
        """How many operations of an undisturbed run can have a fault. Also notes the result of the run."""
        self._clear()
        ending = self._server.run(*self._command(), plan=replace(FAULTS[fault], mode=Mode.NONE))
        assert ending.code == 0, ending.output
        self.reference = final_state(self._out)
        return ending.counts[0]

    def try_out(self, trial: Trial) -> Result:
        """A run with the fault, then the same command without."""
        self._clear()
        ending = self._server.run(*self._command(), plan=trial.plan())
        hits = [record for record in ending.records if record.fault]
        word = {0: "finished", 1: "failed", 2: "refused", 75: "stopped"}.get(ending.code, f"exit {ending.code}")
        problem = self._problem(trial, ending, hits)
        if not problem and ending.code != 0:
            problem = self._problem_of_second_run()
        where = f"{hits[0].operation} {_kind(hits[0], self._folder)}" if hits else "no operation"
        return Result(trial, word, where, problem)

    def _problem(self, trial: Trial, ending: Ending, hits: Sequence[Record]) -> str:
        """What is wrong with the run that met the fault."""
        end = ending.output.strip()[-700:]
        if "Traceback" in ending.output:
            return f"traceback: {ending.output[ending.output.index('Traceback') :][:2000]}"
        if ending.code not in (0, 1, 2, 75):
            return f"exit code {ending.code}: {end}"
        if ending.code == 0:
            return "" if final_state(self._out) == self.reference else f"called finished with another result: {end}"
        if all(any(log in Path(hit.path).parts for log in LOGS) for hit in hits):
            return f"ended because of a log: {end}"
        reason = os.strerror(trial.plan().error)
        if reason not in end or str(self._folder) not in end.splitlines()[-1]:
            return f"the message does not name path and reason: {end}"
        return self._lost_checkpoint()

    def _lost_checkpoint(self) -> str:
        for name, step in reported_in(self._out).items():
            checkpoints = RunDir(self._out / name).checkpoints
            checkpoints.tidy()  # as the next command does
            newest = checkpoints.newest()
            if newest is None or newest.step < step:
                return f"the checkpoint of step {step} was reported, the newest is {newest}"
        return ""

    def _problem_of_second_run(self) -> str:
        """The same command on a disk that is well again: it resumes what can be resumed, to the same result."""
        resumable = [run.path.name for run in find_runs(self._out) if run.checkpoints.newest() is not None]
        ending = self._server.run(*self._command())
        if ending.code != 0 or "Traceback" in ending.output:
            return f"the same command afterwards: exit code {ending.code}: {ending.output[-700:]}"
        if final_state(self._out) != self.reference:
            return "the same command afterwards ends with another result"
        if resumable and (runs := [run.path.name for run in find_runs(self._out)]) != resumable:
            return f"the same command started anew: {runs}, though {resumable} could be resumed"
        return ""


def _kind(record: Record, folder: Path) -> str:
    """The path below the run, without numbers and names that were drawn."""
    parts = Path(record.path).relative_to(folder).parts[2:] if record.path != str(folder) else ()
    text = "/".join(parts) or Path(record.path).name[:3]
    text = re.sub(r"\.tmp[A-Za-z0-9]{6}\b", ".tmp", re.sub(r"tmp-\d+", "tmp", text))
    return re.sub(r"events\.out\.tfevents.*", "events.out", re.sub(r"step-\d+", "step", text))


# ------------------------------------------------------------------------------------------------------------- trials


def trials_of(counts: dict[str, int]) -> Iterator[Trial]:
    """Every operation, once and for good; an interruption that never ends is no fault of a disk."""
    for fault, count in counts.items():
        for first in range(1, count + 1):
            yield Trial(fault, first, persistent=False)
            if fault != "EINTR":
                yield Trial(fault, first, persistent=True)


class Benches:
    """Several of them, for trials side by side."""

    def __init__(self, work: Path, jobs: int) -> None:
        self._stack, self._free, data = ExitStack(), SimpleQueue[Bench](), make_data(work)
        self.jobs = jobs
        for number in range(jobs):
            folder = work / f"bench{number}"
            (folder / "run").mkdir(parents=True)
            server = self._stack.enter_context(Server(folder / "run", folder / "server"))
            self._free.put(Bench(folder, data, server))

    def __enter__(self) -> "Benches":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def counts(self) -> dict[str, int]:
        """Operations that can have each fault; every bench gets the result to compare with."""
        bench = self._free.get()
        counts = {fault: bench.count(fault) for fault in FAULTS}
        others = [self._free.get() for _ in range(self.jobs - 1)]
        for each in (bench, *others):
            each.reference = bench.reference
            self._free.put(each)
        return counts

    def try_out(self, trial: Trial) -> Result:
        bench = self._free.get()
        try:
            return bench.try_out(trial)
        finally:
            self._free.put(bench)


def report(results: Sequence[Result]) -> str:
    """A line per fault, and every kind of problem once."""
    lines = []
    for fault in FAULTS:
        for persistent in (False, True):
            mine = [r for r in results if r.trial.fault == fault and r.trial.persistent == persistent]
            if mine:
                endings = ", ".join(f"{n:,} {word}" for word, n in Counter(r.ending for r in mine).most_common())
                problems = sum(bool(r.problem) for r in mine)
                how = "from then on" if persistent else "once"
                lines.append(f"{fault} {how}: {len(mine):,} trials: {endings}; {problems:,} problems")
    kinds = Counter((r.trial.fault, r.trial.persistent, r.where, r.problem[:40]) for r in results if r.problem)
    for kind, n in kinds.most_common(60):
        example = next(r for r in results if (r.trial.fault, r.trial.persistent, r.where, r.problem[:40]) == kind)
        lines.append(f"{n} x {kind[2]}, {example.trial}: {example.problem}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Let every file operation of a training fail.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="share of the trials that are done, drawn at random")
    parser.add_argument("--faults", nargs="*", default=list(FAULTS), choices=list(FAULTS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if reason := missing():
        sys.exit(f"Cannot trace file operations: {reason}.")
    began = time.monotonic()
    with working_folder() as work, Benches(work, options.jobs) as benches:
        counts = {fault: count for fault, count in benches.counts().items() if fault in options.faults}
        dice = random.Random(options.seed)
        trials = [trial for trial in trials_of(counts) if dice.random() < options.share]
        with ThreadPoolExecutor(options.jobs) as pool:
            results = []
            for result in pool.map(benches.try_out, trials):
                results.append(result)
                if result.problem:
                    print(f"{result.where}, {result.trial}: {result.problem}", file=sys.stderr, flush=True)
                if len(results) % 100 == 0:
                    print(f"{len(results):,} of {len(trials):,} trials", file=sys.stderr, flush=True)
    print(report(results))
    problems = sum(bool(result.problem) for result in results)
    took_min = (time.monotonic() - began) / 60
    print(f"{len(results):,} trials, {problems:,} problems, {took_min:.0f} min")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
