"""How training speed goes with processes and threads on one machine: 1 x 1, 2 x 1 and 1 x 2, in alternating blocks.

Each arrangement is a group of processes that lives as long as the benchmark; one at a time is asked for a block of steps while
the others wait, so that drift of the machine meets all alike. Every process takes the same number of images a step (weak
scaling); images a second are those of all processes together, data included. Prints the ratios with a 95 % interval from
the paired rounds. Usage: python benchmarks/scaling.py [--rounds 12] [--steps 8] [--model resnet18] [--batch 16] [--px 64]
"""

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line sets it, before torch is imported


def serve(path: str) -> None:
    """One process of a group: the first reads numbers of steps from standard input, all do them, the first answers."""
    from vernier.config import Config, from_dict
    from vernier.devices import resolve
    from vernier.engine.distributed import joined
    from vernier.engine.launch import topology
    from vernier.engine.rate import Stepper

    config = from_dict(Config, json.loads(Path(path).read_text()))
    with joined(topology(), resolve("cpu"), config.machine) as world:
        stepper = Stepper(config, world)
        while (steps := world.from_first(lambda: int(sys.stdin.readline() or 0))) > 0:
            seconds = stepper.block(steps)
            if world.first:
                sys.stdout.write(f"{steps * stepper.images_per_step / seconds}\n")
                sys.stdout.flush()
        stepper.close()


class Group:
    """Processes x threads."""

    def __init__(self, procs: int, threads: int, folder: Path, options: argparse.Namespace) -> None:
        from vernier.config import Config, Data, Eval, Machine, Model, Optim, Recipe, Schedule, to_dict

        self.name = f"{procs} process(es) x {threads} thread(s)"
        data = Data(
            source=str(folder / "shapes"), image_px=options.px, eval_px=options.px, eval_short_side_px=options.px
        )
        recipe = Recipe(
            global_batch=procs * options.batch, model=Model(name=options.model), data=data, optim=Optim(lr=1e-3),
            schedule=Schedule(epochs=1e6), eval=Eval(every_epochs=0),
        )  # fmt: skip
        machine = Machine(procs=procs, threads=threads, workers=1, rank_timeout_s=600)
        file = folder / f"{procs}x{threads}.json"
        file.write_text(json.dumps(to_dict(Config(recipe=recipe, machine=machine))))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._processes = [self._start(rank, procs, port, file) for rank in range(procs)]

    @staticmethod
    def _start(rank: int, procs: int, port: int, file: Path) -> "subprocess.Popen[str]":
        launcher = {
            "WORLD_SIZE": procs,
            "LOCAL_WORLD_SIZE": procs,
            "RANK": rank,
            "LOCAL_RANK": rank,
            "MASTER_PORT": port,
        }
        variables = {name: str(value) for name, value in launcher.items()} if procs > 1 else {}
        return subprocess.Popen(
            [sys.executable, __file__, "--serve", str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **variables, "MASTER_ADDR": "127.0.0.1"},
        )  # fmt: skip

    def images_per_s(self, steps: int) -> float:
        first = self._processes[0]
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write(f"{steps}\n")
        first.stdin.flush()
        return float(first.stdout.readline())

    def close(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            process.wait(60)


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """The median and a bootstrap 95 % interval of it."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(4000))
    return statistics.median(ratios), medians[100], medians[3899]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--px", type=int, default=64)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    from vernier.data.shapes import ShapesSpec, make

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder / "shapes", ShapesSpec(train=512, val=10, size_px=options.px))
        groups = {key: Group(*key, folder, options) for key in ((1, 1), (2, 1), (1, 2))}
        rates: dict[tuple[int, int], list[float]] = {key: [] for key in groups}
        for round_ in range(-1, options.rounds):
            for key in random.Random(round_).sample(list(groups), len(groups)):
                rate = groups[key].images_per_s(options.steps)
                if round_ >= 0:  # the first round warms up
                    rates[key].append(rate)
        for group in groups.values():
            group.close()
    result = {"model": options.model, "batch_per_process": options.batch, "px": options.px, "rounds": options.rounds}
    for key, group in groups.items():
        sys.stdout.write(f"{group.name}: median {statistics.median(rates[key]):.1f} img/s\n")
    for base in ((1, 1), (1, 2)):
        middle, low, high = interval([a / b for a, b in zip(rates[(2, 1)], rates[base], strict=True)])
        sys.stdout.write(f"2 x 1 over {base[0]} x {base[1]}: {middle:.3f} ({low:.3f} to {high:.3f})\n")
    sys.stdout.write(json.dumps({**result, "images_per_s": {f"{p}x{t}": v for (p, t), v in rates.items()}}) + "\n")


if __name__ == "__main__":
    main()
