"""What fingerprints and spot checks find, and what they cost.

    python benchmarks/audit.py faults [--faults 1000] [--spot-check 1] [--out FILE]
    python benchmarks/audit.py cost [--model NAME]...

`faults`: three processes train a small model with exact reduction. Again and again they go back to the same state, one
of them gets a fault (a flipped bit in one of seven places: once, at a rate, or stuck), and all train six steps, as
`vernier train` does. Noted is what the running processes notice, what `vernier audit` finds in the recorded
fingerprints by comparing them with those of a clean replay, and what other checks would see of the same steps: a NaN
in loss or gradients, SuperBench's two scalars (the loss, and the mean of the first row of logits) in every step and
process, and a hash of the final weights as they are saved. Every tenth episode has no fault: any difference there is a
false alarm.

`cost`: the CPU time of fingerprints, of those of the copy that a checkpoint gets, and of spot checks, compared with
that of training steps without them. Models and variants take turns, step by step.
"""

import argparse
import json
import math
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line sets it, before torch is imported

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.chaos.corruption import PLACES, Fault, Injection

from vernier.clock import now_s, utc_stamp
from vernier.config import Augment, Checkpoint, Config, Data, Eval, Limits, Machine, Model, Recipe, Schedule
from vernier.config.settings import Audit
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.devices import resolve
from vernier.engine.observe import Observers
from vernier.engine.processes.launch import topology
from vernier.engine.processes.world import World, join_processes
from vernier.engine.training import loop
from vernier.engine.training.setup import Job, prepare
from vernier.lab.audit.fingerprints import combine, fingerprint
from vernier.optim.kinds.sgd import Sgd
from vernier.recipes import load
from vernier.records.events import DivergenceEvent, Event, FingerprintEvent

PROCESSES, WARM_UP, STEPS, BATCH = 3, 3, 6, 6
KINDS = ("once", "rate", "stuck")


@dataclass
class Episode:
    """What is known of one fault; steps are counted from the first flip."""

    fault: dict[str, Any] | None
    flips: int = 0
    live_step: int | None = None
    live_ranks: tuple[int, ...] = ()
    audit_step: int | None = None
    audit_ranks: tuple[int, ...] = ()
    nan: bool = False
    scalars: bool = False
    final_hash: bool = False


@dataclass
class Seen:
    """What one process saw of the steps of an episode."""

    events: list[Event] = field(default_factory=list)
    scalars: list[tuple[float, float]] = field(default_factory=list)
    nan: bool = False
    first_flip: int | None = None
    flips: int = 0
    saved: int = 0
    held: int = 0
    """Fingerprints of all weights and statistics: as they go into the checkpoint, and in the model."""

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def progress(self, phase: str, done: int, total: int) -> None:
        pass


def small_config(data: Path, spot_check: float) -> Config:
    recipe = Recipe(
        name="faults",
        global_batch=BATCH,
        model=Model(name="resnet8-small", width=4),
        data=Data(source=str(data), image_px=16, eval_px=16, eval_short_side_px=16),
        augment=Augment(crop="pad"),
        optim=Sgd(lr=0.05),
        schedule=Schedule(epochs=2.0),
        eval=Eval(every_epochs=0),
    )
    machine = Machine(threads=1, procs=PROCESSES, reduction="exact", workers=1)
    audit = Audit(every_steps=1, spot_check=spot_check, on_corruption="warn")
    return Config(recipe=recipe, machine=machine, audit=audit, checkpoint=Checkpoint(), limits=Limits())


def of_all(tensors: dict[str, torch.Tensor]) -> int:
    return combine(fingerprint(tensors[name]) for name in sorted(tensors))


class Trial:
    """A job that trains the same six steps again and again, from the same state."""

    def __init__(self, config: Config, world: World) -> None:
        self.job, self.injection = prepare(config, world=world), Injection(None).install()
        self._logits = math.nan
        self.job.model.register_forward_hook(self._note_logits)
        self._run(0, WARM_UP, Seen())
        model, states = self.job.model.state_dict(), self.job.optimizer.state
        self._live = [*model.values(), *(v for s in states.values() for v in s.values() if isinstance(v, torch.Tensor))]
        self._start = [tensor.detach().clone() for tensor in self._live]

    def _note_logits(self, module: Any, given: Any, out: torch.Tensor) -> None:
        self._logits = float(out.detach()[0].mean())

    def episode(self, fault: Fault | None) -> Seen:
        with torch.no_grad():
            for tensor, start in zip(self._live, self._start, strict=True):
                tensor.copy_(start)
        guard = self.job.step.guard
        guard.forget()
        guard._warned = False  # type: ignore[attr-defined]
        self.injection.arm(fault)
        seen = Seen()
        self._run(WARM_UP, WARM_UP + STEPS, seen)
        files = loop.tensor_files(self.job.model, self.job.optimizer, None)
        guard.before_checkpoint(WARM_UP + STEPS, Observers(seen))
        if self.job.world.first:
            guard.check_copy(files)
        seen.saved, seen.held = of_all(files["model.safetensors"]), of_all(self.job.model.state_dict())
        seen.flips = self.injection.flips
        return seen

    def _run(self, start: int, stop: int, seen: Seen) -> None:
        job, observers = self.job, Observers(seen)
        batches = job.loader.batches(job.requests(start, stop))
        for step in range(start, stop):
            loss, _ = job.step(step, batches)
            job.step.guard.step_done(observers)
            job.device.synchronize()
            job.step.guard.report(observers)
            norm = job.step.gradient_norm
            seen.nan |= not math.isfinite(float(loss)) or (norm is not None and not math.isfinite(float(norm)))
            seen.scalars.append((float(job.step.own_loss or loss), self._logits))
            if seen.first_flip is None and self.injection.flips:
                seen.first_flip = step + 1
        batches.close()


def random_fault(rng: random.Random, number: int, places: Sequence[str] = PLACES) -> Fault:
    """Places and kinds in turn, everything else at random; in a checkpoint once, by the process that writes it."""
    place, kind = places[number % len(places)], KINDS[number // len(places) % len(KINDS)]
    last = WARM_UP + STEPS
    saving = place == "checkpoint"
    return Fault(
        place=place,
        step=last if saving else rng.randint(WARM_UP + 1, last - 2),
        rank=0 if saving else rng.randrange(PROCESSES),
        micro=rng.randrange(BATCH // PROCESSES),
        tensor=rng.randrange(1000),
        element=rng.randrange(100_000),
        bit=rng.randrange(32),
        stuck=kind == "stuck" and not saving,
        rate=0.3 if kind == "rate" and not saving else 0.0,
    )


def judged(fault: Fault | None, by_rank: list[Seen], clean: list[Seen]) -> Episode:
    """What each check makes of an episode."""
    own = by_rank[fault.rank if fault else 0]
    episode = Episode(fault=asdict(fault) if fault else None, flips=own.flips)
    first = own.first_flip or WARM_UP + STEPS
    alarms = [event for event in by_rank[0].events if isinstance(event, DivergenceEvent)]
    if alarms:
        episode.live_step, episode.live_ranks = alarms[0].step - first, alarms[0].ranks
    pairs = list(
        zip(
            *([e for e in seen.events if isinstance(e, FingerprintEvent)] for seen in (by_rank[0], clean[0])),
            strict=True,
        )
    )
    kinds = ("gradients", "weights", "statistics", "optimizer", "shards")
    for now, was in pairs:
        if any(getattr(now, kind) != getattr(was, kind) for kind in kinds):
            episode.audit_step = now.step - first
            shards = [n for n, (a, b) in enumerate(zip(now.shards or (), was.shards or (), strict=True)) if a != b]
            if len(shards) < BATCH:
                episode.audit_ranks = tuple(sorted({shard * PROCESSES // BATCH for shard in shards}))
            break
    else:
        if by_rank[0].saved != by_rank[0].held:
            episode.audit_step, episode.audit_ranks = 0, (0,)
    episode.nan = any(seen.nan for seen in by_rank)
    episode.scalars = any(a.scalars != b.scalars for a, b in zip(by_rank, clean, strict=True))
    episode.final_hash = by_rank[0].saved != clean[0].saved
    return episode


def run_process(arguments: argparse.Namespace) -> None:
    config = small_config(arguments.data, arguments.spot_check)
    with join_processes(topology(), resolve("cpu"), config.machine) as world:
        trial, rng = Trial(config, world), random.Random(arguments.seed)
        places = [arguments.place] if arguments.place else PLACES
        torch.set_num_threads(1)
        clean, began_s = world.share(trial.episode(None)), now_s()
        for number in range(0, arguments.faults, 9):
            # Decided by the first process, so that all end together.
            if world.broadcast_from_first(lambda: now_s() - began_s > arguments.minutes * 60):
                break
            # A clean episode after nine with faults.
            for fault in [*(random_fault(rng, number + i, places) for i in range(9)), None]:
                by_rank = world.share(trial.episode(fault if fault and fault.rank == world.rank else None))
                if world.first:
                    with arguments.out.open("a") as file:
                        file.write(json.dumps(asdict(judged(fault, by_rank, clean))) + "\n")
        trial.job.close()


def inject_faults(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        data = make_shapes(Path(folder) / "shapes", ShapesSpec(train=120, val=10, size_px=16))
        arguments.out.unlink(missing_ok=True)
        began_s = now_s()
        words = [sys.executable, __file__, "process", "--data", str(data), "--faults", str(arguments.faults)]
        words += ["--spot-check", str(arguments.spot_check), "--seed", str(arguments.seed), "--out", str(arguments.out)]
        words += ["--minutes", str(arguments.minutes), *(["--place", arguments.place] if arguments.place else [])]
        common = {**os.environ, "WORLD_SIZE": str(PROCESSES), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        processes = [
            subprocess.Popen(words, env={**common, "RANK": str(rank), "OMP_NUM_THREADS": "1"})
            for rank in range(PROCESSES)
        ]
        codes = [process.wait() for process in processes]
    if any(codes):
        sys.exit(f"processes ended with {codes}")
    episodes = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    show_faults(episodes, f"spot check {arguments.spot_check:g}, {now_s() - began_s:.0f} s, {utc_stamp()}")


def show_faults(episodes: list[dict[str, Any]], heading: str) -> None:
    print(heading)
    clean = [each for each in episodes if each["fault"] is None]
    alarms = [each for each in clean if each["live_step"] is not None or each["audit_step"] is not None]
    print(
        f"clean episodes: {len(clean)}, process-steps compared: {len(clean) * STEPS * PROCESSES}, alarms: {len(alarms)}"
    )
    groups: dict[str, list[dict[str, Any]]] = {place: [] for place in PLACES} | {kind: [] for kind in KINDS}
    for each in episodes:
        fault = each["fault"]
        # A bit that never flipped, or that was 1 before it got stuck there, leaves nothing to find.
        if fault is None or not each["flips"]:
            continue
        kind = "stuck" if fault["stuck"] else "rate" if fault["rate"] else "once"
        groups[fault["place"]].append(each)
        groups[kind].append(each)
    everything = [each for place in PLACES for each in groups[place]]
    print(f"faults: {len(everything)}\n")
    columns = (
        "n",
        "no effect",
        "found live",
        "right device",
        "wrong device",
        "steps",
        "audit finds",
        "audit: device",
        "NaN",
        "2 scalars",
        "final hash",
    )
    print(f"{'':<12}" + "".join(f"{name:>14}" for name in columns))
    for name, group in [*groups.items(), ("all", everything)]:
        # Masked: no sum, weight, gradient or statistic of any process is another one.
        effect = [e for e in group if e["audit_step"] is not None or e["live_step"] is not None]
        live = [e for e in effect if e["live_step"] is not None]
        right = [e for e in live if e["live_ranks"] == [e["fault"]["rank"]]]
        accused = [e for e in live if e["live_ranks"] and e["fault"]["rank"] not in e["live_ranks"]]
        audited = [e for e in effect if e["audit_step"] is not None]
        named = [e for e in audited if e["audit_ranks"] == [e["fault"]["rank"]]]
        steps = statistics.mean(e["live_step"] for e in live) if live else math.nan
        cells = [
            len(group),
            len(group) - len(effect),
            len(live),
            len(right),
            len(accused),
            f"{steps:.2f}",
            len(audited),
            len(named),
        ]
        cells += [sum(e[check] for e in effect) for check in ("nan", "scalars", "final_hash")]
        print(f"{name:<12}" + "".join(f"{cell:>14}" for cell in cells))


VARIANTS = {
    "plain": {},
    "fingerprints": {"every_steps": 1},
    "copy": {"every_steps": 1},
    "spot checks": {"spot_check": 1.0},
}


def measure_cost(arguments: argparse.Namespace) -> None:
    """All models and variants in turn, so that a busy minute is in all of them; CPU time, which others change less."""
    names, spent = arguments.model or ["resnet50", "ssd", "resnet8-small"], dict[tuple[str, str], list[float]]()
    with tempfile.TemporaryDirectory() as folder:
        jobs = {name: {kind: cost_job(Path(folder), name, kind) for kind in VARIANTS} for name in names}
        batches = {name: next(job.loader.batches(job.requests(0, 1))) for name, (job, *_) in rows(jobs)}
        for number in range(arguments.steps + 1):
            for name, variants in jobs.items():
                for kind, job in variants.items():
                    seconds = cost_of_step(job, number, batches[name], copied=kind == "copy")
                    if number:  # the first one creates the state of the optimizer
                        spent.setdefault((name, kind), []).append(seconds)
        every = Audit().every_steps
        for name, (job, *_) in rows(jobs):
            parameters = sum(p.numel() for p in job.model.parameters()) / 1e6
            plain = spent[name, "plain"]
            print(
                f"{name}: {parameters:.2f} M parameters, batch {job.config.recipe.global_batch}, "
                f"{job.derived.virtual_shards} virtual shards, n = {len(plain)}: step {spread(plain)} of CPU time"
            )
            step, extra = statistics.median(plain), {kind: differences(spent, name, kind) for kind in VARIANTS}
            print(
                f"  fingerprints {spread(extra['fingerprints'])}: "
                f"{100 * statistics.median(extra['fingerprints']) / step / every:.3f} % with one every {every} steps"
            )
            check = [a - b for a, b in zip(extra["copy"], extra["fingerprints"], strict=True)]
            share = 100 * statistics.median(check) / step
            print(f"  of the copy for a checkpoint {spread(check)}: {share:.0f} % of a step")
            print(
                f"  spot checks of all shards {spread(extra['spot checks'])}: "
                f"{statistics.median(extra['spot checks']) / step:.2f} % of a step for each 1 % of shards"
            )
            for each in jobs[name].values():
                each.close()


def rows(jobs: dict[str, dict[str, Job]]) -> list[tuple[str, list[Job]]]:
    return [(name, list(variants.values())) for name, variants in jobs.items()]


def cost_of_step(job: Job, number: int, batch: Any, *, copied: bool) -> float:
    """Seconds of CPU time of all threads of this process."""
    files = loop.tensor_files(job.model, job.optimizer, None)
    began_s = time.process_time()
    job.step(number % job.derived.total_steps, repeated(batch))
    job.device.synchronize()
    taken = job.step.guard.fingerprints  # type: ignore[attr-defined]
    taken.pop()
    if copied and job.optimizer.state and len(files["optimizer.safetensors"]):
        taken.of_copy(number, files)
    return time.process_time() - began_s


def differences(spent: dict[tuple[str, str], list[float]], name: str, kind: str) -> list[float]:
    """What a variant takes more than the plain one of the same round."""
    return [a - b for a, b in zip(spent[name, kind], spent[name, "plain"], strict=True)]


def spread(seconds: list[float]) -> str:
    low, high = min(seconds), max(seconds)
    return f"{1000 * statistics.median(seconds):.1f} ms ({1000 * low:.1f} to {1000 * high:.1f})"


def repeated(batch: Any) -> Iterator[Any]:
    while True:
        yield batch


def cost_job(root: Path, name: str, kind: str) -> Job:
    if name == "ssd":
        recipe = load("ssd-shapes-quick").recipe
        config = Config(recipe=replace(recipe, eval=replace(recipe.eval, every_epochs=0), global_batch=8))
    else:
        px = 32 if "small" in name else 224
        batch = 64 if "small" in name else 4
        data = make_shapes(root / "shapes", ShapesSpec(train=128, val=10, size_px=32))
        recipe = Recipe(
            name="cost",
            global_batch=batch,
            model=Model(name=name),
            data=Data(source=str(data), image_px=px, eval_px=px, eval_short_side_px=px),
            optim=Sgd(lr=1e-4),
            schedule=Schedule(epochs=100),
            eval=Eval(every_epochs=0),
        )
        config = Config(recipe=recipe)
    machine = Machine(threads=1, workers=0, reduction="exact")
    return prepare(replace(config, machine=machine, audit=Audit(**{"every_steps": 0, **VARIANTS[kind]})))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(required=True)
    for action, carry_out in (("faults", inject_faults), ("process", run_process)):
        sub = actions.add_parser(action)
        sub.set_defaults(carry_out=carry_out)
        sub.add_argument("--faults", type=int, default=1000)
        sub.add_argument("--minutes", type=float, default=60, help="end after this time, whatever the number of faults")
        sub.add_argument("--spot-check", type=float, default=1.0)
        sub.add_argument("--seed", type=int, default=0)
        sub.add_argument("--out", type=Path, default=Path("faults.jsonl"))
        sub.add_argument("--data", type=Path)
        sub.add_argument("--place", choices=PLACES, help="only faults there")
    sub = actions.add_parser("cost")
    sub.set_defaults(carry_out=measure_cost)
    sub.add_argument("--model", action="append")
    sub.add_argument("--steps", type=int, default=10)
    parsed = parser.parse_args()
    parsed.carry_out(parsed)
