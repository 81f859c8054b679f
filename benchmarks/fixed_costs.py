"""What commands cost before they do anything: help, refusals, evaluation, prediction, and training to its first step.

All commands take turns with `python -c "import torch"`, so that a disturbance of the machine affects all alike. Prints
medians with the smallest and largest of the rounds, in seconds, and the difference to torch's own import, the median of
differences within rounds. The built-in data set is rendered before, if it is not there yet. A benchmark's
seconds, and what they were spent on, are printed first.

    python benchmarks/fixed_costs.py [--rounds 7] [--only train] [--no-bench]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vernier.clock import now_s, utc_stamp
from vernier.data.shapes import ShapesSpec, make_shapes

VERNIER = [sys.executable, "-m", "vernier"]
IMPORT = "python -c 'import torch'"
SMALL = ("--set", "limits.log_every_steps=1", "--max-steps", "3", "--train-only", "--no-checkpoints", "--quiet")


def seconds(command: list[str], code: int) -> float:
    """How long a command takes, which must end with this code."""
    began_s = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    took_s = time.perf_counter() - began_s
    if done.returncode != code:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return took_s


def seconds_to_first_step(out: Path, words: list[str]) -> float:
    """From the start of the command to the beginning of its first step, by the clock of the run's events."""
    began_s = now_s()
    run = json.loads(subprocess.run([*VERNIER, *words, "--json"], capture_output=True, text=True, check=True).stdout)[
        "run"
    ]
    events = map(json.loads, (out / Path(run).name / "events.jsonl").read_text().splitlines())
    step = next(event for event in events if event["kind"] == "step")
    return float(step["t_s"]) - step["step_s"][0] - began_s


def commands(run: Path, photo: Path) -> dict[str, tuple[list[str], int]]:
    """What a command is called in the table, its words, and the code it ends with."""
    return {
        IMPORT: ([sys.executable, "-c", "import torch"], 0),
        "vernier --help": ([*VERNIER, "--help"], 0),
        "vernier train --help": ([*VERNIER, "train", "--help"], 0),
        "vernier train --explain": ([*VERNIER, "train", "--explain"], 0),
        "vernier train resnet50 --explain": (
            [*VERNIER, "train", "resnet50", "--data", "synthetic", "--global-batch", "32", "--explain"],
            0,
        ),
        "vernier eval RUN (100 images)": ([*VERNIER, "eval", str(run), "--quiet"], 0),
        "vernier predict RUN IMAGE": ([*VERNIER, "predict", str(run), str(photo)], 0),
        "refused: no such recipe": ([*VERNIER, "train", "resnet5O"], 2),
        "refused: no such device": ([*VERNIER, "train", "--device", "cuda"], 2),
        "refused: no such data": ([*VERNIER, "train", "--data", "/nowhere"], 2),
        "refused: too little memory": (
            [*VERNIER, "train", "resnet50", "--data", "synthetic", "--global-batch", "12800"],
            2,
        ),
        "refused: no such run": ([*VERNIER, "eval", "runs/nowhere"], 2),
        "refused: no such image": ([*VERNIER, "predict", str(run), "nowhere.jpg"], 2),
    }


def prepare(folder: Path) -> tuple[Path, Path]:
    """A small run, and an image for it."""
    data = make_shapes(folder / "shapes", ShapesSpec(train=200, val=100, size_px=64))
    words = ["train", "--data", str(data), "--out", str(folder / "small"), "--epochs", "1", "--quiet", "--json"]
    done = subprocess.run([*VERNIER, *words], capture_output=True, text=True, check=True)
    return Path(json.loads(done.stdout)["run"]), next(p for p in data.rglob("*") if p.suffix in (".jpg", ".png"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--no-bench", dest="bench", action="store_false")
    options = parser.parse_args()
    took: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="vernier-fixed-costs-") as scratch:
        folder = Path(scratch)
        rows = commands(*prepare(folder))
        first = {
            "vernier train to its first step": ["train"],
            "vernier train resnet50, batch 4, to its first step": [
                *("train", "resnet50", "--data", "synthetic", "--global-batch", "4"),
            ],
        }
        for number in range(options.rounds):
            for name, (command, code) in rows.items():
                if options.only in name or name == IMPORT:
                    took.setdefault(name, []).append(seconds(command, code))
            for name, words in first.items():
                if options.only in name:
                    out = folder / f"first-{number}"
                    took.setdefault(name, []).append(seconds_to_first_step(out, [*words, "--out", str(out), *SMALL]))
        if options.bench and options.only in "bench":
            words = [
                "bench",
                "train",
                "resnet8-small",
                "--batch",
                "32",
                "--repeats",
                "2",
                "--max-seconds",
                "15",
                "--json",
            ]
            began_s = now_s()
            done = subprocess.run([*VERNIER, *words, "--out", scratch], capture_output=True, text=True, check=True)
            spent_s = json.loads(done.stdout)["spent_s"]
            print(f"a benchmark took {now_s() - began_s:.1f} s: {json.dumps(spent_s)}")
    print(f"{utc_stamp()}, n = {options.rounds}\n\n| command | seconds | beyond import torch |\n|---|---|---|")
    for name, values in took.items():
        beyond = statistics.median(a - b for a, b in zip(values, took[IMPORT], strict=True))
        spread = f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
        print(f"| `{name}` | {spread} | {beyond:+.2f} |")


if __name__ == "__main__":
    main()
