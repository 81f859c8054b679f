"""How often fingerprints and spot checks raise an alarm although nothing was wrong.

    python benchmarks/clean_audits.py steps [--minutes 9] [--out FILE]
    python benchmarks/clean_audits.py live [--minutes 9] [--out FILE]
    python benchmarks/clean_audits.py replays [--replays 1000] [--minutes 9] [--out FILE]
    python benchmarks/clean_audits.py show [--out FILE]

Each command adds lines to the file and continues where the last one ended, so a million steps fit into short slices.

`steps`: a job trains the same steps again and again in this process, from the same state, and the fingerprints of each
step must be those of the first pass. A compared step is one that was computed again: those of the first pass do not
count. Recipes, seeds and images are others in each round. With spot checks, the job also checks itself, as in a run.
`live`: `vernier train` with two processes, exact reduction and spot checks; the processes compare every step.
`replays`: `vernier audit` of random intervals of finished runs, whose start is restored from a checkpoint.

The models are as small as they can be, as what is tested is the comparison, not speed: a false alarm would come from
an operation or a buffer that is not the same each time, from the order of tensors, or from the checks themselves.
"""

import argparse
import contextlib
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line sets it, before torch is imported

import torch
from torch import Tensor, nn

from vernier.clock import now_s, utc_stamp
from vernier.config import Config, Recipe, override, to_dict
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.engine.observe import Observers
from vernier.engine.training.divergence import Diverged
from vernier.engine.training.session import train
from vernier.engine.training.setup import Job, prepare
from vernier.errors import ConfigError
from vernier.lab.audit.fingerprints import KINDS
from vernier.lab.audit.replay import Audit
from vernier.optim.kinds.sgd import Sgd
from vernier.recipes import load
from vernier.records.events import DivergenceEvent, Event, FingerprintEvent
from vernier.store import RunDir, find_runs

PASS_STEPS, PASSES = 250, 20
LIVE_STEPS, RUN_STEPS, KEPT_EVERY = 2000, 60, 6


class Tiny(nn.Module):
    """Two convolutions, batch norm and a linear layer."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.one, self.norm = nn.Conv2d(3, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8)
        self.two, self.head = nn.Conv2d(8, 8, 3, stride=2), nn.Linear(8, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.head(self.two(self.norm(self.one(x)).relu()).relu().mean((2, 3)))
        return hidden


class Tiniest(nn.Module):
    """A convolution and a linear layer."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.one, self.head = nn.Conv2d(3, 8, 4, stride=4, bias=False), nn.Linear(8, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.head(self.one(x).relu().mean((2, 3)))
        return hidden


TINY, TINIEST = (f"{Path(__file__).resolve()}:{name}" for name in ("Tiny", "Tiniest"))
_RESNET = {"model.name": "resnet8-small", "model.width": 8}
_EXACT = {"machine.reduction": "exact"}
RECIPES: dict[str, dict[str, object]] = {
    "sgd": {"model.name": TINIEST},
    "adamw": {"model.name": TINIEST, "optim.name": "adamw", "optim.lr": 1e-3},
    "ema": {"model.name": TINIEST, "ema.decay": 0.99},
    "mixup": {"model.name": TINIEST, "augment.mixup": 0.2},
    "batch norm": {},
    "two loader threads": {"machine.workers": 2},
    "exact": _EXACT,
    "exact, spot checks": {**_EXACT, "audit.spot_check": 0.25},
    "muon": {**_RESNET, "optim.name": "muon", "optim.lr": 0.02, "optim.bias_lr": 0.1, "optim.head_lr": 0.02},
    "resnet8, exact, spot checks": {**_RESNET, **_EXACT, "audit.spot_check": 0.25, "machine.workers": 1},
    "detector": {},
}
"""What differs from SGD with the model `Tiny`."""
_CHEAP = (*("sgd", "adamw", "ema", "mixup") * 4, "batch norm", "two loader threads")
_ROUND = (
    *(*_CHEAP, "exact", "exact, spot checks", "muon"),
    *(*_CHEAP, "exact", "exact, spot checks", "resnet8, exact, spot checks"),
    *(*_CHEAP, "exact", "exact, spot checks", "detector"),
)
"""Cheap recipes more often."""


def config_of(name: str, data: Path, seed: int, **more: object) -> Config:
    detector = name == "detector"
    settings: dict[str, object] = {
        "data.source": str(data / ("boxes" if detector else "shapes")),
        "global_batch": 2,
        "seed": seed,
        "eval.every_epochs": 0.0,
        "machine.threads": 1,
        "machine.workers": 0,
        "audit.every_steps": 1,
        "checkpoint.every_epochs": 0.0,
        **{f"data.{each}": 96 if detector else 16 for each in ("image_px", "eval_px", "eval_short_side_px")},
        **({"model.width": 16} if detector else {"model.name": TINY, "augment.crop": "pad", "schedule.epochs": 1000.0}),
        **RECIPES[name],
        **more,
    }
    config = load("ssd-shapes-quick") if detector else Config(recipe=Recipe(name="clean", optim=Sgd(lr=0.05)))
    # The optimizer first: its settings depend on it.
    for key in sorted(settings, key=lambda each: (each != "optim.name", each)):
        config = override(config, key, settings[key])
    return config


def make_data(folder: Path) -> Path:
    if not (folder / "boxes").exists():
        make_shapes(folder / "shapes", ShapesSpec(train=64, val=10, size_px=16))
        make_shapes(folder / "boxes", ShapesSpec(kind="detect", train=32, val=10, size_px=96))
    return folder


class Alarms:
    """Counts what a run reports as corruption."""

    def __init__(self) -> None:
        self.found = list[str]()

    def emit(self, event: Event) -> None:
        if isinstance(event, DivergenceEvent):
            self.found.append(event.quantity)

    def progress(self, phase: str, done: int, total: int) -> None:
        pass


# --------------------------------------------------------------------------------------------------------------- steps


def fingerprints_of(job: Job, start: list[tuple[Tensor, Tensor]], alarms: Alarms) -> Iterator[FingerprintEvent]:
    """Train the steps of a pass from the same state."""
    with torch.no_grad():
        for tensor, was in start:
            tensor.copy_(was)
    guard, observers = job.step.guard, Observers(alarms)
    guard.forget()
    batches = job.loader.batches(job.requests(1, 1 + PASS_STEPS))
    for step in range(1, 1 + PASS_STEPS):
        job.step(step, batches)
        try:
            guard.step_done(observers)
        except Diverged as error:
            alarms.emit(error.event)
        (event,) = guard.fingerprints.pop()  # type: ignore[attr-defined]
        yield event
    batches.close()


def differing(one: FingerprintEvent, other: FingerprintEvent) -> bool:
    return any(getattr(one, kind) != getattr(other, kind) for kind in (*KINDS, "shards", "tensors"))


def compare_steps(name: str, data: Path, seed: int, until_s: float) -> dict[str, Any]:
    job, alarms, began_s = prepare(config_of(name, data, seed)), Alarms(), now_s()
    # The first step creates the state of the optimizer.
    batches = job.loader.batches(job.requests(0, 1))
    job.step(0, batches)
    batches.close()
    states = (v for s in job.optimizer.state.values() for v in s.values() if isinstance(v, Tensor))
    averages = [] if job.average is None else job.average.tensors.values()
    live = [*job.model.state_dict().values(), *states, *averages]
    start = [(tensor, tensor.detach().clone()) for tensor in live]
    first, compared, wrong, passes = list(fingerprints_of(job, start, alarms)), 0, 0, 0
    while passes < PASSES and (not passes or now_s() < until_s):
        passes += 1
        for was, now in zip(first, fingerprints_of(job, start, alarms), strict=True):
            wrong, compared = wrong + differing(was, now), compared + 1
    job.close()
    # A run that stands still would compare equal numbers with equal numbers.
    moved = len({each.weights for each in first})
    return {
        "kind": "steps",
        "recipe": name,
        "seed": seed,
        "compared": compared,
        "different": moved,
        "differ": wrong,
        "alarms": alarms.found,
        "seconds": now_s() - began_s,
    }


def run_steps(arguments: argparse.Namespace) -> None:
    began_s = now_s()
    with tempfile.TemporaryDirectory() as folder:
        data = make_data(Path(folder))
        torch.set_num_threads(1)
        while (now := now_s()) - began_s < 60 * arguments.minutes:
            number = sum(1 for each in read(arguments.out) if each["kind"] == "steps")
            until_s = min(now + 45, began_s + 60 * arguments.minutes)
            add(arguments.out, compare_steps(_ROUND[number % len(_ROUND)], data, number, until_s))


# ---------------------------------------------------------------------------------------------------------------- live


def run_live(arguments: argparse.Namespace) -> None:
    """Runs of two processes, by the command line."""
    began_s = now_s()
    while now_s() - began_s < 60 * arguments.minutes:
        number = sum(1 for each in read(arguments.out) if each["kind"] == "live")
        name = ("exact", "sgd")[number % 2]
        with tempfile.TemporaryDirectory() as folder:
            data, started_s = make_data(Path(folder)), now_s()
            more = {
                "machine.procs": 2,
                "machine.workers": 1,
                "limits.max_steps": LIVE_STEPS,
                "checkpoint.every_steps": 50,
            }
            if name == "exact":
                more |= {"audit.spot_check": 0.25, "global_batch": 4}
            code, run = command_line_run(config_of(name, data, number, **more), Path(folder))
            events = run.history()
            taken = sum(isinstance(event, FingerprintEvent) for event in events)
            found = [event.quantity for event in events if isinstance(event, DivergenceEvent)]
            if not found and (code or taken < LIVE_STEPS):
                sys.exit(f"the run ended with {code} after {taken} fingerprints")
        recipe = "two processes, " + ("exact, spot checks" if name == "exact" else "ddp")
        add(
            arguments.out,
            {"kind": "live", "recipe": recipe, "compared": taken, "alarms": found, "seconds": now_s() - started_s},
        )


def command_line_run(config: Config, out: Path) -> tuple[int, RunDir]:
    """A run of several processes as `vernier train` starts it."""
    file, log = out / "config.json", out / "log.txt"
    file.write_text(json.dumps(to_dict(config)))
    words = [sys.executable, "-m", "vernier", "train", str(file), "--out", str(out / "runs")]
    with log.open("w") as written:
        code = subprocess.run(words, stdout=written, stderr=written, check=False).returncode
    runs = find_runs(out / "runs")
    if not runs:
        sys.exit(log.read_text()[-2000:])
    return code, runs[0]


# ------------------------------------------------------------------------------------------------------------- replays


def replayed_runs(folder: Path) -> Iterator[tuple[str, RunDir]]:
    """A finished run of every recipe, and one of two processes."""
    data = make_data(folder)
    often = {"limits.max_steps": RUN_STEPS, "checkpoint.every_steps": KEPT_EVERY, "checkpoint.keep_last": 1000}
    for seed, name in enumerate(RECIPES):
        out = folder / "runs" / f"{seed}"
        kept = [run for run in find_runs(out) if run.status().status == "finished"] if out.exists() else []
        yield name, kept[0] if kept else train(config_of(name, data, seed, **often), out).run
    more = {**often, "machine.procs": 2, "machine.workers": 1, "global_batch": 4, "audit.spot_check": 0.25}
    two = folder / "two"
    two.mkdir(exist_ok=True)
    if not (two / "runs").exists():
        code, _ = command_line_run(config_of("exact", data, 99, **more), two)
        if code:
            sys.exit(f"the run of two processes ended with {code}")
    yield "two processes, exact, spot checks", find_runs(two / "runs")[0]


def run_replays(arguments: argparse.Namespace) -> None:
    """Random intervals of the runs in turn; another interval begins with another checkpoint, or with the start."""
    began_s, rng = now_s(), random.SystemRandom()
    with contextlib.ExitStack() as stack:
        folder = arguments.runs or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(exist_ok=True)
        torch.set_num_threads(1)
        audits = [(name, Audit(run, None)) for name, run in replayed_runs(folder)]
        counts = Counter(each["recipe"] for each in read(arguments.out) if each["kind"] == "replays")
        while counts.total() < arguments.replays and now_s() - began_s < 60 * arguments.minutes:
            # The recipe with fewest replays so far.
            name, audit = min(audits, key=lambda each: counts[each[0]])
            started_s, interval = now_s(), rng.choice(audit.intervals)
            result = audit.replay([interval], lambda done, total: None)
            counts[name] += 1
            add(
                arguments.out,
                {
                    "kind": "replays",
                    "recipe": name,
                    "start": interval.start,
                    "compared": sum(each.compared for each in result.intervals),
                    "alarms": [] if result.verdict == "agrees" else [result.verdict],
                    "seconds": now_s() - started_s,
                },
            )
        for _, audit in audits:
            audit.close()


# -------------------------------------------------------------------------------------------------------------- results


def read(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def add(out: Path, line: dict[str, Any]) -> None:
    with out.open("a") as file:
        file.write(json.dumps({**line, "time": utc_stamp()}) + "\n")


def show(arguments: argparse.Namespace) -> None:
    lines, groups = read(arguments.out), defaultdict[tuple[str, str], list[dict[str, Any]]](list)
    for each in lines:
        groups[each["kind"], each["recipe"]].append(each)
    print(f"{'':<46}{'rounds':>8}{'compared':>12}{'alarms':>8}{'minutes':>9}")
    for (kind, recipe), group in sorted(groups.items()):
        show_row(f"{kind}: {recipe}", group)
    for kind in sorted({kind for kind, _ in groups}):
        show_row(f"{kind}: all", [each for each in lines if each["kind"] == kind])


def show_row(name: str, group: list[dict[str, Any]]) -> None:
    compared = sum(each["compared"] for each in group)
    alarms = sum(len(each["alarms"]) + each.get("differ", 0) for each in group)
    bound = f"  below {-math.log(0.05) / compared:.2g} with 95 %" if not alarms and compared else ""
    print(f"{name:<46}{len(group):>8}{compared:>12,}{alarms:>8}{sum(e['seconds'] for e in group) / 60:>9.1f}{bound}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(required=True)
    for action, carry_out in (("steps", run_steps), ("live", run_live), ("replays", run_replays), ("show", show)):
        sub = actions.add_parser(action)
        sub.set_defaults(carry_out=carry_out)
        sub.add_argument("--minutes", type=float, default=9, help="end after about this time; the next call continues")
        sub.add_argument("--replays", type=int, default=1000)
        sub.add_argument("--runs", type=Path, help="folder in which replays keep the runs for the next call")
        sub.add_argument("--out", type=Path, default=Path("clean-audits.jsonl"))
    parsed = parser.parse_args()
    try:
        parsed.carry_out(parsed)
    except ConfigError as error:
        sys.exit(error.message)
