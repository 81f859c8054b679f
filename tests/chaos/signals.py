"""Signals at random moments of a training, from its first instruction on: which exit codes, and what is left behind.

`python -m tests.chaos.signals` sends 200; with `--procs 2` to a launcher of two processes. How long Python itself takes
before that first instruction, in which the kernel decides, is measured apart.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import TINY, command
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.errors import EXIT_STOPPED
from vernier.signals import SIGNALS

PATIENCE_S = 300
TRAINING = [*TINY, "--epochs", "400", "--set", "eval.every_epochs=0", "--set", "checkpoint.every_steps=20"]


@dataclass(frozen=True)
class Outcome:
    """One signal and what came of it."""

    signal: str
    after_s: float
    code: int
    seconds: float
    trained: bool
    problem: str
    """Empty, or what should not be: another exit code, a traceback, a run that is neither whole nor absent."""


def _problem(out: Path, code: int, err: str) -> str:
    if "Traceback" in err or code != EXIT_STOPPED:
        return err[-2000:] or "no message"
    for run in out.iterdir() if out.exists() else ():
        status = json.loads((run / "run.json").read_text())["status"] if (run / "run.json").exists() else "none"
        if status != "stopped" or not list((run / "checkpoints").glob("step-*")):
            return f"{run.name} is {status}"
    return ""


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for this signal."""
    text = Path(f"/proc/{pid}/status").read_text()
    caught = int(next(line for line in text.splitlines() if line.startswith("SigCgt")).split()[1], 16)
    return bool(caught >> (number - 1) & 1)


def send_one(words: list[str], out: Path, number: int, after_s: float) -> Outcome:
    """Start a training, send a signal so long after its first instruction, and see how it ends."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not _catches(process.pid, SIGNALS[-1]):  # the last one that gets its handler
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(after_s)
        process.send_signal(number)
        sent = time.monotonic()
        _, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    name = next(s.name for s in SIGNALS if s == number)
    seconds, trained = time.monotonic() - sent, "saved, run the same command" in err
    return Outcome(name, after_s, process.returncode, seconds, trained, _problem(out, process.returncode, err))


def send_many(data: Path, out: Path, count: int, seed: int, longest_s: float, *more: str) -> Iterator[Outcome]:
    """Signals of all kinds at random times; every training resumes the one before."""
    dice = random.Random(seed)
    words = command("train", "--data", str(data), "--out", str(out), *TRAINING, *more)
    for _ in range(count):
        yield send_one(words, out, dice.choice(SIGNALS), dice.uniform(0.0, longest_s))


def python_start_s(tries: int = 15) -> list[float]:
    """Seconds from the start of the process to the first line of Vernier, by when signals are caught."""
    script = "import sys, time; from vernier import signals; signals.catch_from_start(); sys.stdout.write('.')"
    seconds = []
    for _ in range(tries):
        began = time.monotonic()
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.read(1)
        seconds.append(time.monotonic() - began)
        process.communicate()
    return sorted(seconds)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=200)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--procs", type=int, default=1)
    options.add_argument("--longest-s", type=float, default=8.0)
    given = options.parse_args()
    starts = python_start_s()
    print(f"signals are caught {1000 * starts[len(starts) // 2]:.0f} ms after the start (largest of {len(starts)}: "
          f"{1000 * starts[-1]:.0f} ms)")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        data = make_shapes(Path(folder) / "shapes", ShapesSpec(train=160, val=50, size_px=32, seed=3))
        more = ("--procs", str(given.procs)) if given.procs > 1 else ()
        outcomes = []
        for outcome in send_many(data, Path(folder) / "runs", given.count, given.seed, given.longest_s, *more):
            print(outcome, flush=True)
            outcomes.append(outcome)
    codes = Counter(outcome.code for outcome in outcomes)
    trained = sum(outcome.trained for outcome in outcomes)
    print(f"{len(outcomes)} signals, {trained} of them after the first step: exit codes {dict(codes)}")
    print(f"problems: {[o for o in outcomes if o.problem] or 'none'}; longest {max(o.seconds for o in outcomes):.1f} s")


if __name__ == "__main__":
    main()
